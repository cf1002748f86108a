"""The commands `kernel-ci github …`, which the composite actions call.

Inputs come from environment variables that start with `IN_`, so that no YAML needs to
quote them, and results go to `GITHUB_OUTPUT` and the step summary.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_ci.errors import KernelCIError

_STAGES = {
    "plan": "decide what must exist, and which runner does what",
    "names": "name the artifacts of the plan IN_PLAN_ID and the cell IN_CELL",
    "cache-key": "name the compiler cache of the cell IN_CELL",
    "build": "build the cell IN_CELL",
    "test": "audit and test the cell IN_CELL",
    "gate": "judge the run by what its jobs left",
    "release": "tell whether a tag may be released, and which kernels it names",
    "publish": "publish a run that the gate has accepted",
}


def add_commands(parser: Any) -> None:
    """Add the sub-commands to the parser of `kernel-ci github`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text in _STAGES.items():
        added = actions.add_parser(name, help=text)
        added.set_defaults(run=_stage(name))
    check = actions.add_parser(
        "check", help="tell whether a repository's workflows grant kernel-ci's what they need"
    )
    check.add_argument("folder", type=Path, nargs="?", default=Path(), help="the repository")
    check.set_defaults(run=_check)
    move = actions.add_parser("move-version", help="move vX of this repository to a new vX.Y.Z")
    move.set_defaults(run=_move_version)


def _stage(name: str) -> Callable[[argparse.Namespace], int]:
    def run(_: argparse.Namespace) -> int:
        from kernel_ci.github import stages

        return _shown(stages.STAGES[name])

    return run


def _move_version(_: argparse.Namespace) -> int:
    from kernel_ci.github import versions

    return _shown(versions.main)


def _shown(call: Callable[[], int]) -> int:
    """Call, and show the error that ends it as an annotation too."""
    from kernel_ci.github import actions

    try:
        return call()
    except KernelCIError as error:
        actions.annotate_error(error)
        raise


def _check(options: argparse.Namespace) -> int:
    from kernel_ci.github import callers

    findings = callers.check(options.folder)
    for finding in findings:
        print(finding)
    return 1 if findings else 0
