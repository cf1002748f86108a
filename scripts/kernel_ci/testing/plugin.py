"""The pytest plugin for kernels' own suites; active only when kernel-ci names a variant.

A suite gets the *built* variant as the fixture `kernel`, never the sources:

* `KERNEL_CI_VARIANT=<variant directory>` loads it with `kernels.get_local_kernel`
* `KERNEL_CI_HUB=<repo>@<version>` loads it with `kernels.get_kernel`, as users do

`KERNEL_CI_BACKEND` names the backend, and `KERNEL_CI_REPORT` a file that gets one line of
JSON an event, so that a process that dies still tells how far it came.

Markers:

* `needs("torch", …)`: modules without which a test says nothing; where one is missing the
  test is reported as not covered, not as skipped.
* `needs_memory(gib)`: the same for free memory, in GiB.
* `kernels_ci`: quick tests, as in upstream's collection.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

VARIANT = "KERNEL_CI_VARIANT"
HUB = "KERNEL_CI_HUB"
BACKEND = "KERNEL_CI_BACKEND"
REPORT = "KERNEL_CI_REPORT"

#: What the reason of a skip begins with that means: not covered here.
NOT_COVERED = "not covered here: "

# So that a failed assertion in the kit tells what was compared.
pytest.register_assert_rewrite("kernel_ci.testing.kit")


def not_covered(why: str) -> NoReturn:
    """End a test that needs what is not here.

    Args:
        why: What it needs, for the receipt.
    """
    pytest.skip(NOT_COVERED + why)


def _is_active() -> bool:
    """Whether this run tests a kernel; in other projects' runs the plugin does nothing."""
    return any(name in os.environ for name in (VARIANT, HUB, REPORT))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, and report to kernel-ci where it asks for it."""
    for line in (
        "kernels_ci: quick tests of a kernel",
        "needs(*modules): not covered where a module is missing",
        "needs_memory(gib): not covered where less memory is free",
    ):
        config.addinivalue_line("markers", line)
    if path := os.environ.get(REPORT):
        config.pluginmanager.register(_Reporter(Path(path)), "kernel-ci-reporter")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test that needs what is not here, and say so."""
    if not _is_active():
        return
    missing = [
        name
        for marker in item.iter_markers("needs")
        for name in marker.args
        if find_spec(name) is None
    ]
    if missing:
        not_covered(f"needs {', '.join(missing)}")
    for marker in item.iter_markers("needs_memory"):
        free = free_memory() / 2**30
        if free < marker.args[0]:
            not_covered(f"needs {marker.args[0]} GiB of memory, {free:.1f} are free")


def free_memory() -> float:
    """Return the bytes of memory that can be taken without swapping; 0 where unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0
    found = next((line for line in lines if line.startswith("MemAvailable:")), "x 0")
    return float(found.split()[1]) * 1024


@pytest.fixture(scope="session")
def kit_device() -> Any:
    """The device that the kit's cases run on; a suite's conftest.py may bring one of its own."""
    from kernel_ci.testing.kit.devices import device_of

    return device_of(os.environ.get(BACKEND, "cpu"))


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    """The kernel under test, loaded from what was built or published."""
    import kernels

    backend = os.environ.get(BACKEND)
    loaded: ModuleType
    if (variant := os.environ.get(VARIANT)) is not None:
        loaded = kernels.get_local_kernel(Path(variant), backend=backend)
    elif (published := os.environ.get(HUB)) is not None:
        repo, _, version = published.rpartition("@")
        loaded = kernels.get_kernel(
            repo, version=int(version), backend=backend, trust_remote_code=[repo]
        )
    else:
        pytest.fail(
            f"no kernel to test: set {VARIANT} to a built variant directory,"
            " or run the suite with `kernel-ci test`"
        )
    return loaded


class _Reporter:
    """Writes what happens as lines of JSON, each at once."""

    def __init__(self, path: Path):
        self.path = path

    def _write(self, **event: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(event="start", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome, reason = report.outcome, ""
        if report.when != "call" and outcome == "passed":
            return
        if outcome == "skipped":
            xfail = getattr(report, "wasxfail", None)
            skip = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            reason = f"expected failure: {xfail}" if xfail is not None else skip
            reason = reason.removeprefix("Skipped: ")
        elif outcome == "failed":
            reason = str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)
        covered = not reason.startswith(NOT_COVERED)
        self._write(
            event="end",
            test=report.nodeid,
            when=report.when,
            outcome=outcome if covered else "not_covered",
            reason=reason.removeprefix(NOT_COVERED),
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.passed:
            return
        reason = str(report.longrepr)
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
        last = reason.strip().splitlines()[-1:]
        self._write(
            event="end",
            test=report.nodeid,
            when="collect",
            outcome=report.outcome,
            reason="".join(last),
        )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        import kernels

        loaded = [
            str(Path(found.module.__file__ or "").parent) for found in kernels.get_loaded_kernels()
        ]
        self._write(event="finish", status=int(exitstatus), loaded=loaded)
