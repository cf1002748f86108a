"""Whether the workflows of a repository grant kernel-ci's workflows what they need.

The permissions of a called workflow are capped by its caller's; GitHub then refuses the
whole file at its start, or a step fails late. This is told before, with the lines to add.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_ci.errors import InputError

#: What each reusable workflow's jobs ask for, and why.
NEEDS: dict[str, dict[str, tuple[str, str]]] = {
    "build": {"contents": ("read", "to check the kernels out")},
    "release": {
        "contents": ("read", "to check the kernels out"),
        "id-token": ("write", "to publish to the Hub without a stored token"),
    },
}
_LEVELS = {"none": 0, "read": 1, "write": 2}
_CALL = re.compile(r"(?:[^/]+/kernel-ci|\.|\$)/\.github/workflows/(build|release)\.ya?ml(?:@.+)?")


@dataclass(frozen=True)
class Finding:
    """A job that grants too little.

    Attributes:
        file: The workflow, relative to the repository.
        line: The line of its `uses:`.
        message: What is missing, and the lines to add.
    """

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def check(repository: Path) -> list[Finding]:
    """Check every workflow of a repository that calls one of kernel-ci's.

    Raises:
        InputError: There is no such folder, or a workflow is not YAML.
    """
    if not repository.is_dir():
        raise InputError("no such folder", where=repository, fix="name a repository's folder")
    found = []
    for path in sorted((repository / ".github" / "workflows").glob("*.y*ml")):
        name = path.relative_to(repository).as_posix()
        found += check_workflow(path.read_text(encoding="utf-8", errors="replace"), name)
    return found


def check_workflow(text: str, name: str) -> list[Finding]:
    """Check one workflow, given as its text; `name` stands in the findings."""
    import yaml

    try:
        workflow, node = yaml.safe_load(text), yaml.compose(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"is not YAML: {error}", where=name, fix="correct the file") from None
    jobs = workflow.get("jobs") if isinstance(workflow, dict) else None
    if not isinstance(jobs, dict):
        return []
    found = []
    for key, job in jobs.items():
        uses = job.get("uses") if isinstance(job, dict) else None
        match = _CALL.fullmatch(uses) if isinstance(uses, str) else None
        if match is None:
            continue
        granted = job.get("permissions", workflow.get("permissions"))
        needs = NEEDS[match[1]]
        missing = [name for name, (level, _) in needs.items() if not _grants(granted, name, level)]
        if missing:
            lines = "".join(
                f"\n      {scope}: {level}  # {why}" for scope, (level, why) in needs.items()
            )
            found.append(
                Finding(
                    name,
                    _line(node, key),
                    f"the job {key!r} does not grant {', '.join(missing)} to {match[1]}.yml;"
                    f" add to the job:\n    permissions:{lines}",
                )
            )
    return found


def _grants(granted: Any, scope: str, level: str) -> bool:
    if granted is None:
        # The repository's setting, which at its strictest is `contents: read`.
        return scope == "contents" and level == "read"
    if isinstance(granted, str):
        return granted == "write-all" or (granted == "read-all" and level == "read")
    if not isinstance(granted, dict):
        return False
    return _LEVELS.get(str(granted.get(scope, "none")), 0) >= _LEVELS[level]


def _line(node: Any, job: str) -> int:
    """Return the line of a job's `uses:`."""
    for section in ("jobs", job, "uses"):
        node = next((value for key, value in node.value if key.value == section), None)
        if node is None:
            return 1
    return int(node.start_mark.line) + 1
