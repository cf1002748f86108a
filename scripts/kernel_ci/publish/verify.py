"""What became of a release: what the Hub serves, and whether clients can load it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kernel_ci import devices
from kernel_ci.build.package import SIGNATURE
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import Rejected
from kernel_ci.plan import Cell, Plan
from kernel_ci.publish.diff import Served
from kernel_ci.publish.hubclient import Hub
from kernel_ci.publish.release import File
from kernel_ci.publish.target import Target
from kernel_ci.testing.suite import run_suite

if TYPE_CHECKING:
    from rich.console import Console

_MOST_NAMED = 5

#: Files that are read at once. A release has hundreds of small ones.
_READERS = 8


def read_back(
    hub: Hub,
    revision: str,
    wanted: Mapping[str, File],
    sent: Mapping[str, File],
    *,
    where: str,
) -> None:
    """Compare what the Hub serves with a release.

    The Hub's list is compared for every file; those that were just sent are also read, and
    hashed while they arrive.

    Args:
        hub: The Hub.
        revision: The commit of the release.
        wanted: Every file of the release by path.
        sent: Those of them that were just sent.
        where: What is read, for messages.

    Raises:
        Rejected: They differ.
        InfrastructureError: The Hub could not be read.
    """
    faults = listed_faults(wanted, hub.tree(revision))

    def served(path: str) -> bool:
        # A second time, as a proxy may have cut it off.
        return any(hub.sha256(revision, path) == sent[path].sha256 for _ in range(2))

    with ThreadPoolExecutor(_READERS) as readers:
        faults += [
            f"{path} is served with other content"
            for path, good in zip(sent, readers.map(served, sent), strict=True)
            if not good
        ]
    if faults:
        more = [f"and {len(faults) - _MOST_NAMED} more"] if len(faults) > _MOST_NAMED else []
        raise Rejected(
            "the Hub does not serve what was published\n  "
            + "\n  ".join(faults[:_MOST_NAMED] + more),
            where=where,
            fix="run it again, which sends what is missing; if it stays, somebody else writes to"
            " the branch",
        )


def listed_faults(wanted: Mapping[str, File], listed: Mapping[str, Served]) -> list[str]:
    """Return how the Hub's list of a branch differs from a release's files. Pure."""
    faults = []
    for path, file in sorted(wanted.items()):
        if path not in listed:
            faults.append(f"{path} is missing")
        elif not listed[path].holds(file):
            faults.append(f"{path} has other content")
    faults += [
        f"{path} is there, and in no release"
        for path in sorted(listed)
        if path.startswith("build/") and path not in wanted and not path.endswith(f"/{SIGNATURE}")
    ]
    return faults


def load(plan: Plan, kernel: str, repo_id: str, target: Target, console: Console) -> bool:
    """Load a published kernel as users do, in fresh processes, and run its suite on it.

    Once for each backend that this machine can run; the client chooses the variant.

    Args:
        plan: The plan.
        kernel: The kernel's name.
        repo_id: Where it is published.
        target: The Hub.
        console: Where it is told how each went, and what cannot be loaded here.

    Returns:
        Whether all that can be loaded here works.
    """
    planned = plan.kernel(kernel)
    suite = open_kernel(planned).tests
    cells = [cell for cell in plan.cells if cell.kernel == kernel]
    here = [cell for cell in cells if loadable(cell)]
    good = True
    for backend in sorted({cell.backend for cell in here}):
        with (
            tempfile.TemporaryDirectory(prefix="kernel-ci-load-") as cache,
            console.status(f"loading {repo_id} from the Hub"),
        ):
            result = run_suite(
                suite,
                backend=backend,
                hub=f"{repo_id}@{planned.version}",
                environment={**target.environment(), "HF_HUB_CACHE": cache},
            )
        mark = "[green]ok[/]" if result.passed else "[red]FAILED[/]"
        console.print(
            f"{mark} load {repo_id} version {planned.version} ({backend}):"
            f" {result.counts.passed} passed",
            highlight=False,
        )
        if not result.passed:
            console.print(result.output, markup=False, highlight=False)
            for finding in result.findings:
                console.print(f"   {finding}", markup=False, highlight=False)
        good = good and result.passed
    for cell in cells:
        if cell not in here:
            console.print(f"-- load {cell.id}: not on this machine", highlight=False)
    return good


def loadable(cell: Cell) -> bool:
    """Tell whether this machine can load and run a cell's variant."""
    if cell.evidence == "build-only":
        return False
    return devices.why_not(cell.platform, cell.backend) is None
