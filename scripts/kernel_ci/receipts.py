"""Receipts: the evidence that one stage leaves for one cell.

A stage that could not run leaves none; only positive evidence counts (see `gate`).
"""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from pydantic import Field

from kernel_ci.documents import Document, Model

Stage = Literal["build", "audit", "test"]
STAGES: tuple[Stage, ...] = ("build", "audit", "test")

#: Packages whose versions are recorded where they are installed.
_RECORDED = ("apache-tvm-ffi", "kernels", "numpy", "torch", "jax", "jax-tvm-ffi", "pytest")


class Machine(Model):
    """Where a stage ran.

    Attributes:
        platform: `<arch>-<os>`.
        system: The system, as Python's `platform.platform()` describes it.
        python: The Python version.
        device: The accelerator that was used, or None.
        runner: The CI runner's name, or None at a desk.
    """

    platform: str
    system: str
    python: str
    device: str | None = None
    runner: str | None = None


class Counts(Model):
    """How many tests ended how.

    Attributes:
        passed: Tests that passed.
        failed: Tests that failed, errors in fixtures included.
        skipped: Tests that were skipped.
        not_covered: Tests that say themselves what they need, which is not here.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    not_covered: int = 0


class Receipt(Document):
    """The evidence that one stage leaves for one cell.

    Attributes:
        plan: Id of the plan that asked for it.
        run: Id of the run.
        cell: Id of the cell.
        stage: Which stage.
        digest: Digest of the variant directory that the stage produced or looked at.
        outcome: Whether it went well.
        findings: What went wrong, or is worth knowing, one line each.
        counts: The test counts; None for other stages.
        skips: Tests that were skipped, as `test: reason`.
        not_covered: Tests that need what is not here, as `test: what`.
        runtimes: Releases of apache-tvm-ffi under which an audit ran the variant.
        tools: Versions of what was used.
        machine: Where it ran.
        started: When it began (UTC, ISO 8601).
        seconds: How long it took.
        reproduce: The command that does the same at a desk.
        key: Digest of what decided the outcome, where a later run may take it over (`reuse`).
        reused: Id of the run that did the work, where this one took it over.
    """

    kind: Literal["kernel-ci receipt"] = "kernel-ci receipt"
    format: Literal[1] = 1
    plan: str
    run: str
    cell: str
    stage: Stage
    digest: str
    outcome: Literal["passed", "failed"]
    findings: tuple[str, ...] = ()
    counts: Counts | None = None
    skips: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    tools: dict[str, str] = Field(default_factory=dict)
    machine: Machine
    started: str
    seconds: float
    reproduce: str
    key: str | None = None
    reused: str | None = None


def this_machine(device: str | None = None) -> Machine:
    """Describe the machine that this process runs on."""
    from kernel_ci.plan import host_platform

    runner = os.environ.get("RUNNER_NAME") if "GITHUB_ACTIONS" in os.environ else None
    return Machine(
        platform=host_platform(),
        system=platform.platform(terse=True),
        python=platform.python_version(),
        device=device,
        runner=runner,
    )


def now() -> str:
    """Return the time as a receipt records it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def installed() -> dict[str, str]:
    """Return the versions of the packages that decide what a kernel computes, and how fast."""
    found = {}
    for name in _RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
