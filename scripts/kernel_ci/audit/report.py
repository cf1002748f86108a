"""What an audit found: the facts it read and its findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from kernel_ci.abi.window import RuntimeWindow, Status, Window
from kernel_ci.audit.facts import DirectoryFacts, LibraryFacts
from kernel_ci.documents import Document, Model

if TYPE_CHECKING:
    from rich.console import Console

Level = Literal["error", "warning", "note"]


class Finding(Model):
    """Something an audit has to say.

    Attributes:
        check: Name of the check.
        level: Only an `error` makes the audit fail.
        where: File, relative to what is audited; a variant before it in a build folder.
        message: What is wrong.
        fix: What to do about it.
    """

    check: str
    level: Level
    where: str
    message: str
    fix: str


class LibraryReport(Model):
    """A library, and how it fits each release of tvm-ffi."""

    facts: LibraryFacts
    window: Window


class VariantReport(Model):
    """A variant directory, its library, and the runtimes that it states."""

    facts: DirectoryFacts
    libraries: tuple[LibraryReport, ...]
    stated: RuntimeWindow | None = None


class RuntimeRun(Model):
    """A library under one release of tvm-ffi.

    Attributes:
        version: The release.
        predicted: What its symbols and stamp say; None for a release not in the table.
        admitted: Whether the variant states that it works there; None if it states nothing.
        outcome: `passed`; `failed`; or `unavailable`: there is no such release for this
            interpreter, so nothing was learnt.
        faults: What went wrong, or why the release could not be had.
        silent: Functions that took arguments which no function takes, and raised nothing.
        tests: How many of its quick tests passed; None where they were not run.
        seconds: How long it took.
    """

    version: str
    predicted: Status | None
    admitted: bool | None
    outcome: Literal["passed", "failed", "unavailable"]
    faults: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    tests: int | None = None
    seconds: float = 0.0

    @property
    def agrees(self) -> bool | None:
        """Whether it went as predicted; None where there is nothing to compare."""
        if self.outcome == "unavailable" or self.predicted in (None, "unproven"):
            return None
        return (self.predicted == "fits") == (self.outcome == "passed")


class DynamicReport(Model):
    """What came of loading and calling a library under several releases of tvm-ffi.

    Attributes:
        where: The variant's name, or the library's.
        not_run: Why nothing was run; None if something was.
        suite: Whether the kernel's quick tests were there to be run.
        runs: One a release, oldest first.
    """

    where: str
    not_run: str | None = None
    suite: bool = False
    runs: tuple[RuntimeRun, ...] = ()

    @property
    def verified(self) -> tuple[str, ...]:
        """Releases under which the kernel's tests passed."""
        return tuple(run.version for run in self.runs if run.outcome == "passed" and run.tests)


class AuditReport(Document):
    """The result of an audit.

    Attributes:
        path: What was audited, as given.
        subject: A single `library`, a `variant` directory, or a `build` folder.
        libraries: The library, if it was a single one.
        variants: The variant directories.
        dynamic: What was run, one entry a library or variant; empty if nothing was asked for.
        findings: Errors first.
    """

    kind: Literal["audit-report"] = "audit-report"
    format: Literal[1] = 1
    path: str
    subject: Literal["library", "variant", "build"]
    libraries: tuple[LibraryReport, ...] = ()
    variants: tuple[VariantReport, ...] = ()
    dynamic: tuple[DynamicReport, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.level == "error" for finding in self.findings)

    def all_libraries(self) -> tuple[LibraryReport, ...]:
        """Return every library that was read."""
        return self.libraries + tuple(
            library for variant in self.variants for library in variant.libraries
        )


_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, errors first, else in their order."""
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.level]))


def render(report: AuditReport, console: Console) -> None:
    """Print what was read and what was found."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    for variant in report.variants:
        stated = variant.stated
        console.print(Text(variant.facts.name, style="bold"))
        metadata = variant.facts.metadata or {}
        console.print(
            Text(
                f"  {len(variant.facts.files)} files, id {metadata.get('id')},"
                f" version {metadata.get('version')};"
                + (f" states tvm-ffi {describe(stated)}" if stated else " states no tvm-ffi window")
            )
        )
        for library in variant.libraries:
            _library(library, console)
    for library in report.libraries:
        _library(library, console)
    for dynamic in report.dynamic:
        _dynamic(dynamic, console)
    if report.findings:
        table = Table(box=None, pad_edge=False)
        for title in ("", "check", "where", "what and how to mend it"):
            table.add_column(title, overflow="fold")
        styles = {"error": "red", "warning": "yellow", "note": "dim"}
        for finding in report.findings:
            table.add_row(
                f"[{styles[finding.level]}]{finding.level}[/]",
                finding.check,
                escape(finding.where),
                escape(f"{finding.message}\n→ {finding.fix}"),
            )
        console.print(table)
    count = {level: sum(f.level == level for f in report.findings) for level in _ORDER}
    console.print(
        Text(
            f"{'passed' if report.ok else 'failed'}: {count['error']} errors,"
            f" {count['warning']} warnings, {count['note']} notes",
            style="bold green" if report.ok else "bold red",
        )
    )


def _dynamic(dynamic: DynamicReport, console: Console) -> None:
    """Print what came of each release."""
    from rich.table import Table
    from rich.text import Text

    what = "loaded and called" + (", quick tests" if dynamic.suite else ", error path only")
    console.print(Text(f"{dynamic.where}: under releases of tvm-ffi", style="bold"))
    if dynamic.not_run is not None:
        console.print(Text(f"  not run: {dynamic.not_run}"))
        return
    table = Table(box=None, pad_edge=False, title=f"  {what}", title_justify="left")
    for heading in ("  tvm-ffi", "by its symbols", "stated", "here", "tests", "time", "what"):
        table.add_column(heading, overflow="fold")
    styles = {"passed": "green", "failed": "red", "unavailable": "yellow"}
    stated = {True: "works", False: "refused", None: "-"}
    for run in dynamic.runs:
        table.add_row(
            f"  {run.version}",
            run.predicted or "unknown",
            stated[run.admitted],
            Text(run.outcome, style=styles[run.outcome]),
            "-" if run.tests is None else str(run.tests),
            f"{run.seconds:.1f} s",
            Text("; ".join(run.faults[:2])),
        )
    console.print(table)


def describe(window: RuntimeWindow) -> str:
    """Return a window in words, e.g. `>=0.1.9, not 0.1.13`."""
    text = f">={window.floor}" + (f", <={window.newest}" if window.newest else "")
    if window.denied:
        text += ", not " + ", ".join(entry.version for entry in window.denied)
    return text


def _library(library: LibraryReport, console: Console) -> None:
    """Print what was read from a library."""
    from rich.table import Table
    from rich.text import Text

    facts, window = library.facts, library.window
    newest = {
        f"{owner}": ", ".join(versions) for owner, versions in sorted(facts.version_needs.items())
    }
    ceiling = window.ceiling
    fits = "none" if window.floor is None else f"{window.floor} to {ceiling or 'the newest'}"
    unproven = window.with_status("unproven")
    if unproven:
        fits += f"; unproven {unproven[0]} to {unproven[-1]}"
    rows = [
        (
            "format",
            f"{facts.format}, {facts.arch}, {facts.os}, {facts.size:,} bytes"
            f"{', stripped' if facts.stripped else ''}",
        ),
        ("needs", ", ".join(facts.needed) or "nothing"),
        ("search path", ":".join(facts.rpath) or "none"),
        *((f"versions of {owner}", versions) for owner, versions in newest.items()),
        *([("macOS", f"{facts.min_os} or later")] if facts.min_os else []),
        ("tvm-ffi imports", ", ".join(_tvm_ffi_imports(facts)) or "none"),
        ("tvm-ffi features", ", ".join(facts.features) or "none marked"),
        ("headers", window.headers or "unknown (no stamp)"),
        ("tvm-ffi runtimes", fits),
        ("functions", ", ".join(facts.functions) or "none"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(2):
        table.add_column(overflow="fold")
    for key, value in rows:
        table.add_row(Text(f"    {key}", style="dim"), Text(value))
    console.print(Text(f"  {facts.path}"))
    console.print(table)


def _tvm_ffi_imports(facts: LibraryFacts) -> list[str]:
    from kernel_ci.abi.table import is_tvm_ffi

    return [entry.name for entry in facts.imports if is_tvm_ffi(entry.name)]
