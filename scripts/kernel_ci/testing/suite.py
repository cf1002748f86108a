"""Running a kernel's own suite against a built or published variant, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernel_ci.receipts import Counts
from kernel_ci.testing import plugin

#: Environment that must not decide what a suite loads.
_CLEARED = ("PYTHONPATH", "PYTEST_ADDOPTS", "LOCAL_KERNELS", plugin.VARIANT, plugin.HUB)


@dataclass(frozen=True)
class SuiteResult:
    """How a suite ended.

    Attributes:
        counts: Tests by outcome.
        findings: Why it is not a success; empty for one.
        skips: Skipped tests, as `test: reason`.
        not_covered: Tests that need what is not here, as `test: what`.
        output: What pytest printed.
    """

    counts: Counts
    findings: tuple[str, ...]
    skips: tuple[str, ...]
    not_covered: tuple[str, ...]
    output: str

    @property
    def passed(self) -> bool:
        """Whether tests ran, all that ran passed, and the process ended well."""
        return not self.findings


def run_suite(
    tests: Path,
    *,
    backend: str,
    variant: Path | None = None,
    hub: str | None = None,
    repo_id: str | None = None,
    quick: bool = False,
    environment: dict[str, str] | None = None,
    python: Path | None = None,
) -> SuiteResult:
    """Run a kernel's pytest suite.

    Args:
        tests: The folder of the suite.
        backend: The backend to load the kernel for.
        variant: The variant directory to test.
        hub: `<repo>@<version>` to test what a Hub serves, in place of `variant`.
        repo_id: The kernel's repository; suites that call `kernels.get_kernel` with it get
            `variant` (through `LOCAL_KERNELS`).
        quick: Run only the tests marked `kernels_ci`.
        environment: Further environment variables.
        python: A Python to run it with in place of this one.
    """
    if not tests.is_dir():
        return _no_suite(f"there is no test suite: {tests} is missing")
    with tempfile.TemporaryDirectory(prefix="kernel-ci-test-") as scratch:
        report = Path(scratch) / "report.jsonl"
        values = {key: value for key, value in os.environ.items() if key not in _CLEARED}
        values |= {
            plugin.BACKEND: backend,
            plugin.REPORT: str(report),
            "PYTHONDONTWRITEBYTECODE": "1",
            # The folder of the suite is on the path through pytest; the current folder, which
            # may hold the kernel's sources, is not.
            "PYTHONSAFEPATH": "1",
        }
        if variant is not None:
            values[plugin.VARIANT] = str(variant)
            if repo_id is not None:
                values["LOCAL_KERNELS"] = f"{repo_id}={variant}"
        if hub is not None:
            values[plugin.HUB] = hub
        interpreter = str(python or sys.executable)
        command = [interpreter, "-m", "pytest", str(tests), "-c", str(_config(tests, scratch))]
        command += [f"--rootdir={tests}", "-p", "no:cacheprovider", "-q", "--color=no"]
        command += ["-m", "kernels_ci"] if quick else []
        done = subprocess.run(
            command,
            cwd=scratch,
            env=values | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        lines = report.read_text().splitlines() if report.exists() else []
    return judge([json.loads(line) for line in lines], done.returncode, variant, done.stdout)


def judge(
    events: list[dict[str, object]], status: int, variant: Path | None, output: str
) -> SuiteResult:
    """Tell from a suite's events and its process's exit status how it ended.

    Args:
        events: What the plugin reported.
        status: The exit status of the process; negative for a signal.
        variant: The variant directory that must have been loaded, or None.
        output: What pytest printed.
    """
    ends = [event for event in events if event["event"] == "end"]
    failed = {
        str(event["test"]): str(event["reason"]) for event in ends if event["outcome"] == "failed"
    }

    def named(outcome: str) -> tuple[str, ...]:
        return tuple(f"{e['test']}: {e['reason']}" for e in ends if e["outcome"] == outcome)

    passed = {str(event["test"]) for event in ends if event["outcome"] == "passed"} - failed.keys()
    counts = Counts(
        passed=len(passed),
        failed=len(failed),
        skipped=len(named("skipped")),
        not_covered=len(named("not_covered")),
    )
    findings = [
        f"{test}: {reason.splitlines()[0] if reason else 'failed'}"
        for test, reason in failed.items()
    ]
    finish = next((event for event in events if event["event"] == "finish"), None)
    started = [event["test"] for event in events if event["event"] == "start"]
    if status < 0:
        where = f"after {started[-1]} began" if started and finish is None else "while ending"
        if not started:
            where = "before the first test"
        findings.append(f"the process died by {_signal(-status)} {where}")
    elif finish is None:
        last = [line for line in output.splitlines() if line.startswith("E ")]
        detail = f": {last[-1].removeprefix('E').strip()}" if last else ""
        how = "end" if started else "start"
        findings.append(f"the suite did not {how}: exit status {status}{detail}")
    elif status not in (0, 1, 5):
        findings.append(f"pytest ended with exit status {status}")
    if not counts.passed and not findings:
        findings.append("no test was run" if not ends else "no test was run to its end")
    if variant is not None and finish is not None and counts.passed:
        loaded = finish["loaded"]
        assert isinstance(loaded, list)
        if str(variant) not in loaded:
            findings.append("the suite never loaded the variant under test")
    return SuiteResult(counts, tuple(findings), named("skipped"), named("not_covered"), output)


def _no_suite(finding: str) -> SuiteResult:
    return SuiteResult(Counts(), (finding,), (), (), "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _config(tests: Path, scratch: str) -> Path:
    """Return the pytest configuration of the suite: its kernel's own, or an empty one.

    The configuration of the repository around it must not change what a suite does.
    """
    for folder in (tests, tests.parent):
        for name in ("pytest.ini", "pytest.toml", "pyproject.toml"):
            file = folder / name
            if file.is_file() and (name != "pyproject.toml" or "[tool.pytest" in file.read_text()):
                return file
    empty = Path(scratch) / "pytest.ini"
    empty.write_text("[pytest]\n")
    return empty
