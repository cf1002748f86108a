"""The audit of variant directories: what it reads, and what it does with damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kernel_ci import tvm_ffi
from kernel_ci.audit.report import AuditReport, Finding, render
from kernel_ci.audit.variant import audit, audit_build, audit_variant
from kernel_ci.errors import InputError
from tests import probes
from tests.probes import IDENTITY, NEWEST

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, forge: Path) -> Make:
    """Return a function that assembles a variant directory around the plain library."""

    def assemble(name: str = probes.CPU, library: Path | None = None, **changes: Any) -> Path:
        built = library or probes.compile_library(forge, probes.PLAIN)
        return probes.assemble(tmp_path / "build", built, name=name, **changes)

    return assemble


def faults(report: AuditReport) -> list[tuple[str, str]]:
    return [(f.check, f.where) for f in report.findings if f.level != "note"]


def only(report: AuditReport, check: str) -> Finding:
    assert {f.check for f in report.findings if f.level == "error"} == {check}
    return next(f for f in report.findings if f.check == check)


def test_good_variant(make: Make, tmp_path: Path) -> None:
    report = audit(make())
    assert report.findings == ()
    assert report.ok
    facts = report.all_libraries()[0].facts
    assert facts.functions == ("run",)
    assert facts.needed[0] == "libtvm_ffi.so"
    assert report.variants[0].stated is not None
    report.write(tmp_path / "report.json")
    assert AuditReport.read(tmp_path / "report.json") == report


def test_report_says_what_was_read(make: Make) -> None:
    from rich.console import Console

    output = StringIO()
    render(audit(make(identity="_probe_cpu_[red]x")), Console(width=160, file=output))
    text = output.getvalue()
    for said in (
        "TVMFFIErrorSetRaisedFromCStr",
        probes.HEADERS,
        "libtvm_ffi.so",
        "search path",
        "run",
        "[red]",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("options", "check", "said"),
    [
        (("-Wl,-z,execstack",), "executable-stack", "stack"),
        (('-DCALLS="TVMFFIInvented"',), "tvm-ffi-symbol", "TVMFFIInvented"),
    ],
)
def test_planted_in_the_library(
    make: Make, forge: Path, options: tuple[str, ...], check: str, said: str
) -> None:
    report = audit(make(library=probes.compile_library(forge, probes.PLAIN, *options)))
    assert said in only(report, check).message
    assert not report.ok


@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "headless"])
def test_damaged_library(make: Make, forge: Path, tmp_path: Path, damage: str) -> None:
    data = probes.compile_library(forge, probes.PLAIN).read_bytes()
    broken = tmp_path / "broken.so"
    headless = data[:0x28] + bytes(8) + data[0x30:0x3A] + bytes(6) + data[0x40:]
    broken.write_bytes(
        {"empty": b"", "truncated": data[:2000], "text": b"hello", "headless": headless}[damage]
    )
    report = audit(make(library=broken))
    assert ("readable", f"{IDENTITY}.so") in faults(report)
    assert not report.ok


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"name": 1}'])
def test_damaged_metadata(make: Make, text: str) -> None:
    directory = make()
    (directory / "metadata.json").write_text(text)
    report = audit(directory)
    assert ("metadata", "metadata.json") in faults(report)


def test_file_missing(make: Make) -> None:
    directory = make()
    (directory / "_ops.py").unlink()
    assert {check for check, _ in faults(audit(directory))} == {"digest", "layout"}


def test_library_for_another_system(make: Make) -> None:
    report = audit(make("tvm-ffi01-cpu-x86_64-windows"))
    assert ("machine", f"{IDENTITY}.so") in faults(report)


def test_metadata_missing(make: Make) -> None:
    directory = make()
    (directory / "metadata.json").unlink()
    assert "there is no metadata.json" in only(audit(directory), "metadata").message


def test_library_from_elsewhere_without_our_stamp(tmp_path: Path) -> None:
    release = tvm_ffi.fetch(NEWEST, "x86_64-linux")
    report = audit(release.library.with_name("libtvm_ffi_testing.so"))
    library = report.libraries[0]
    assert library.window.headers is None
    assert library.window.floor == "0.1.13"  # it uses VisitInterrupt
    assert ("stamp", "libtvm_ffi_testing.so") in faults(report)


def test_build_folder(make: Make, tmp_path: Path) -> None:
    make()
    make("tvm-ffi01-cu130-x86_64-linux", backend={"type": "cuda"})
    (tmp_path / "build" / "stray").mkdir()
    report = audit(tmp_path)  # the folder above, as downloaded
    assert report.subject == "build"
    assert len(report.variants) == 2
    checks = {f.check for f in report.findings}
    assert {"unique-id", "layout", "metadata"} <= checks
    assert {f.where.partition("/")[0] for f in report.findings if f.check == "metadata"} == {
        "tvm-ffi01-cu130-x86_64-linux"
    }


def test_nothing_to_audit(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", Path(__file__), Path("/dev/null")):
        with pytest.raises(InputError):
            audit(path)
    with pytest.raises(InputError, match="no such directory"):
        audit_variant(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no variant"):
        audit_build(tmp_path)
