"""The dynamic audit: load and call a library under several releases of tvm-ffi.

Each release gets processes of its own, with immediate binding, so that a symbol which the
runtime lacks is an error while loading and not the death of a later call. Two things are
done under each: every exported function is driven into an error, and the kernel's own quick
tests (marked `kernels_ci`) are run, where it has them. A process that dies while ending has
failed, however right its results were.

This runs code from what is audited, which the static audit never does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from kernel_ci import abi, devices, tvm_ffi
from kernel_ci.abi.table import table
from kernel_ci.abi.window import RuntimeWindow
from kernel_ci.audit import judge, runtime_plugin
from kernel_ci.audit.report import (
    AuditReport,
    DynamicReport,
    LibraryReport,
    RuntimeRun,
    sort_findings,
)
from kernel_ci.audit.variant import audit
from kernel_ci.errors import InputError, Rejected
from kernel_ci.testing.suite import run_suite

#: What is tried unless something else is asked for.
DEFAULT = "floor,epochs,newest"

_ENVIRONMENT = {
    # Immediate binding, on Linux and on macOS. Windows knows nothing else.
    "LD_BIND_NOW": "1",
    "DYLD_BIND_AT_LAUNCH": "1",
    # An old tvm-ffi would compile an addon for torch when it is imported.
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
}

#: Seconds after which a library that is loaded and called hangs. It takes less than one.
_TIMEOUT = 120

#: Processes at once; each keeps about one core busy.
_MOST_JOBS = 4

#: What tvm-ffi says before the words of the dynamic linker.
_LOADER = re.compile(r"^.*Failed to load dynamic shared library \S+ (?:\S+: )?")

_QUICK = "kernels_ci"
_FRAMEWORK_IMPORT = re.compile(r"^(?:import|from) (?:torch|jax)\b", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    """A kernel's own tests.

    Attributes:
        tests: The folder.
        repo_id: The kernel's repository, for suites that call `kernels.get_kernel` with it.
    """

    tests: Path
    repo_id: str | None = None

    def sources(self) -> list[str]:
        """Return the text of its Python files."""
        return [path.read_text(errors="replace") for path in sorted(self.tests.rglob("*.py"))]


def audit_dynamic(
    path: Path,
    wanted: str = DEFAULT,
    *,
    suite: Suite | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AuditReport:
    """Audit what is at a path, and run it under several releases of tvm-ffi.

    Args:
        path: A library, a variant directory, or a folder of these; see `variant.audit`.
        wanted: Which releases; see `choose`.
        suite: The kernel's tests.
        say: Told about progress, one line a release.

    Returns:
        The report of the static audit, with what was run and what that showed.

    Raises:
        InputError: There is nothing to audit, or `wanted` names no releases.
        InfrastructureError: A release could not be downloaded.
    """
    choose(wanted, None)  # a spelling mistake shows before anything is done
    if suite is not None and not suite.tests.is_dir():
        raise InputError("no such folder", where=suite.tests, fix="name the kernel's tests")
    static = audit(path)
    if suite is not None and not static.variants:
        raise InputError(
            "a suite needs a variant directory, and this is a library by itself",
            where=path,
            fix="name the variant directory, or leave --tests out",
        )
    dynamic = tuple(_run_all(subject, wanted, suite, say) for subject in _subjects(path, static))
    ran = [report for report in dynamic if report.not_run is None]
    proven = set.intersection(*(set(report.verified) for report in ran)) if ran else set()
    report = audit(path, proven=proven) if proven else static
    findings = [*report.findings, *(finding for one in dynamic for finding in judge.ran(one))]
    return report.model_copy(update={"dynamic": dynamic, "findings": sort_findings(findings)})


@dataclass(frozen=True)
class _Subject:
    """What is run.

    Attributes:
        name: What reports call it.
        library: Its library with functions, None if it has none.
        path: The library's file.
        directory: The variant directory, None for a library by itself.
        stated: The runtimes that the variant states.
    """

    name: str
    library: LibraryReport | None
    path: Path
    directory: Path | None = None
    stated: RuntimeWindow | None = None

    @property
    def backend(self) -> str | None:
        named = judge.variant_of(self.name)
        return named.backend if named else None


def _subjects(path: Path, static: AuditReport) -> list[_Subject]:
    found = [_Subject(path.name, library, path.absolute()) for library in static.libraries]
    for variant in static.variants:
        directory = Path(static.path).absolute()
        if static.subject == "build":
            directory /= variant.facts.name
        library = next((entry for entry in variant.libraries if entry.facts.functions), None)
        file = directory / (library.facts.path if library else ".")
        found.append(_Subject(variant.facts.name, library, file, directory, variant.stated))
    return found


def choose(wanted: str, promised: RuntimeWindow | None) -> tuple[str, ...]:
    """Return the releases that a list of words means, oldest first.

    Args:
        wanted: Separated by commas: `floor`; `epochs` (one release from each ABI epoch);
            `newest`; `all` (each release of the table, fitting or not); or versions.
        promised: The runtimes that the library works with; None if none is known, when
            only `all` and versions name any.

    Raises:
        InputError: A word is none of these.
    """
    known = table()
    between = abi.epoch_runtimes(promised) if promised is not None else ()
    words: dict[str, Sequence[str]] = {
        "all": known.versions,
        "floor": (promised.floor,) if promised is not None else (),
        "epochs": between,
        "newest": between[-1:],
    }
    chosen: set[Version] = set()
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        try:
            chosen |= {Version(version) for version in words.get(word, (word,))}
        except InvalidVersion:
            raise InputError(
                f"{word!r} is neither a version nor one of {', '.join(words)}",
                where="--runtimes",
                fix=f"write e.g. {DEFAULT}",
            ) from None
    if not wanted.strip(", "):
        raise InputError("names no release", where="--runtimes", fix=f"write e.g. {DEFAULT}")
    return tuple(str(version) for version in sorted(chosen))


def _run_all(
    subject: _Subject, wanted: str, suite: Suite | None, say: Callable[[str], None]
) -> DynamicReport:
    """Run a library under each release that is wanted."""
    if subject.library is None:
        return DynamicReport(where=subject.name, not_run="it has no library with functions")
    library, stated = subject.library, subject.stated
    reason = devices.why_not(library.facts.platform, subject.backend)
    if reason is not None:
        return DynamicReport(where=subject.name, not_run=reason)
    versions = choose(wanted, stated or _promised(library))
    if not versions:
        return DynamicReport(where=subject.name, not_run="no release of tvm-ffi fits it")
    texts = suite.sources() if suite is not None and subject.directory is not None else []
    tested = suite if any(_QUICK in text for text in texts) else None
    environment = {**_ENVIRONMENT}
    if any(_FRAMEWORK_IMPORT.search(text) for text in texts):
        environment[runtime_plugin.FRAMEWORKS] = "1"

    def one(version: str) -> RuntimeRun:
        judged = library.window.judged(version)
        run = RuntimeRun(
            version=version,
            predicted=judged.status if judged else None,
            admitted=stated.admits(version) if stated is not None else None,
            outcome="unavailable",
        )
        clock = time.monotonic()
        try:
            runtime = tvm_ffi.runtime(version)
        except InputError as error:
            return run.model_copy(update={"faults": (error.what,)})
        faults, silent = probe(subject.path, library.facts.functions, runtime)
        tests: int | None = None
        # A release that the variant refuses would only show that it does.
        if tested is not None and run.admitted is not False and not faults:
            result = run_suite(
                tested.tests,
                backend=subject.backend or "cpu",
                variant=subject.directory,
                repo_id=tested.repo_id,
                quick=True,
                environment={
                    **environment,
                    runtime_plugin.RUNTIME: str(runtime),
                    "PYTHONPATH": str(runtime),
                    "PYTEST_ADDOPTS": f"-p {runtime_plugin.__name__}",
                },
            )
            tests, faults = result.counts.passed, result.findings
        run = run.model_copy(
            update={
                "outcome": "failed" if faults else "passed",
                "faults": faults,
                "silent": silent,
                "tests": tests,
                "seconds": round(time.monotonic() - clock, 2),
            }
        )
        say(f"{subject.name}: tvm-ffi {version}: {run.outcome} ({run.seconds:.1f} s)")
        return run

    with ThreadPoolExecutor(min(_MOST_JOBS, os.cpu_count() or 1)) as pool:
        runs = tuple(pool.map(one, versions))
    return DynamicReport(where=subject.name, suite=tested is not None, runs=runs)


def _promised(report: LibraryReport) -> RuntimeWindow | None:
    """Return the window of a library that states none, None where nothing fits."""
    try:
        return abi.runtime_window(report.window, report.window.headers or table().newest)
    except Rejected:
        return None


def probe(
    library: Path, functions: Sequence[str], runtime: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Load a library under a runtime, in a process of its own, and call its functions wrongly.

    Args:
        library: The library, absolute.
        functions: Its functions.
        runtime: The folder of the runtime (`tvm_ffi.runtime`).

    Returns:
        What went wrong, and the functions that raised nothing.
    """
    values = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    values |= {**_ENVIRONMENT, "PYTHONPATH": str(runtime)}
    command = [sys.executable, "-m", "kernel_ci.audit.runtime_probe", str(library), *functions]
    with tempfile.TemporaryDirectory(prefix="kernel-ci-runtime-") as scratch:
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                env=values,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = error.stdout.decode(errors="replace") if error.stdout else ""
            return (f"hangs {_where(_events(text))}",), ()
    return judge_probe(_events(done.stdout), done.returncode, done.stderr)


def _events(text: str) -> list[dict[str, str]]:
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # what the library itself prints
        if isinstance(event, dict) and "step" in event:
            found.append(event)
    return found


def judge_probe(
    events: Sequence[dict[str, str]], status: int, stderr: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell from what `runtime_probe` printed, and from how it ended, what went wrong.

    Args:
        events: The lines that it printed.
        status: The exit status of the process, negative for a signal.
        stderr: What it, or the dynamic linker, wrote there.

    Returns:
        What went wrong, and the functions that raised nothing whatever they got.
    """
    raised = {event["function"] for event in events if event["step"] == "raised"}
    silent = {event["function"] for event in events if event["step"] == "returned"} - raised
    refused = next((event["error"] for event in events if event["step"] == "refused"), None)
    last = next((line for line in reversed(stderr.strip().splitlines()) if line.strip()), "")
    faults = []
    if refused is not None:
        faults.append(f"cannot be loaded: {_LOADER.sub('', refused.splitlines()[0])}")
    if status < 0:
        faults.append(f"the process died by {_signal(-status)} {_where(events)}")
    elif status:
        faults.append(f"the process ended with status {status} {_where(events)}: {last}")
    elif refused is None and (not events or events[-1]["step"] != "done"):
        faults.append(f"the process ended early, {_where(events)}")
    return tuple(faults), tuple(sorted(silent))


def _where(events: Sequence[dict[str, str]]) -> str:
    """Say how far a probe came."""
    last = events[-1] if events else {"step": "none"}
    return {
        "none": "before tvm_ffi was imported",
        "runtime": "while the library was loaded",
        "calls": f"in {last.get('function')}, which was called with wrong arguments",
        "done": "while ending, after every call was right",
    }.get(last["step"], "after a call")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
