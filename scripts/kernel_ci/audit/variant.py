"""The static audit of a library, a variant directory or a kernel's `build/` folder.

Nothing is run or imported from what is audited, which may be anyone's.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kernel_ci.abi.window import RuntimeWindow
from kernel_ci.abi.window import judge as judge_window
from kernel_ci.audit import archs, judge
from kernel_ci.audit.directory import read_directory
from kernel_ci.audit.facts import LibraryFacts
from kernel_ci.audit.readers import library_format, read_library
from kernel_ci.audit.report import (
    AuditReport,
    Finding,
    LibraryReport,
    VariantReport,
    sort_findings,
)
from kernel_ci.errors import InputError

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll", ".pyd")


def audit(path: Path, *, proven: Collection[str] = ()) -> AuditReport:
    """Audit a library, a variant directory, or a folder of variant directories.

    Args:
        path: What to audit.
        proven: Runtimes under which all of it was tested just now, and passed.

    Raises:
        InputError: There is nothing at the path that can be audited.
    """
    if not path.is_file() and not path.is_dir():
        raise InputError(
            "there is nothing to audit",
            where=path,
            fix="give a library, a variant directory or a kernel's build folder",
        )
    if path.is_file():
        return audit_library(path, proven=proven)
    if (path / "metadata.json").is_file() or judge.variant_of(path.resolve().name):
        return audit_variant(path, proven=proven)
    # A kernel's build folder, or the folder above it, as a download from the Hub has it.
    folder = path / "build" if (path / "build").is_dir() else path
    if any(_is_variant(child) for child in folder.iterdir()):
        return audit_build(folder, proven=proven)
    raise InputError(
        "holds no variant directory",
        where=path,
        fix="give a library, a variant directory such as build/tvm-ffi01-cpu-x86_64-linux,"
        " or the folder with all of them",
    )


def audit_library(path: Path, *, proven: Collection[str] = ()) -> AuditReport:
    """Audit a single library; nothing tells its backend, so those of all are allowed.

    Raises:
        InputError: The file is no shared library.
    """
    report, findings = _library(read_library(path), None, None, proven)
    return AuditReport(
        path=str(path),
        subject="library",
        libraries=(report,),
        findings=sort_findings(findings),
    )


def audit_variant(directory: Path, *, proven: Collection[str] = ()) -> AuditReport:
    """Audit a variant directory.

    Raises:
        InputError: There is no such directory.
    """
    variant, findings = _variant(directory, proven)
    return AuditReport(
        path=str(directory),
        subject="variant",
        variants=(variant,),
        findings=sort_findings(findings),
    )


def audit_build(folder: Path, *, proven: Collection[str] = ()) -> AuditReport:
    """Audit all variant directories of a kernel, each and against each other.

    Raises:
        InputError: There is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise InputError("no such directory", where=folder, fix="build the kernel first")
    variants: list[VariantReport] = []
    findings: list[Finding] = []
    for child in sorted(folder.iterdir()):
        if child.name.startswith("."):
            continue
        if not _is_variant(child):
            findings.append(
                Finding(
                    check="layout",
                    level="warning",
                    where=child.name,
                    message="is no variant directory; the client warns about each stray entry",
                    fix="delete it",
                )
            )
            continue
        variant, found = _variant(child, proven)
        variants.append(variant)
        findings += [
            finding.model_copy(
                update={
                    "where": child.name if finding.where == "." else f"{child.name}/{finding.where}"
                }
            )
            for finding in found
        ]
    if not variants:
        raise InputError("holds no variant directory", where=folder, fix="build the kernel first")
    findings += judge.build_folder(variants)
    return AuditReport(
        path=str(folder),
        subject="build",
        variants=tuple(variants),
        findings=sort_findings(findings),
    )


def _is_variant(path: Path) -> bool:
    return path.is_dir() and (
        (path / "metadata.json").is_file() or judge.variant_of(path.name) is not None
    )


def _library(
    facts: LibraryFacts,
    backend: str | None,
    stated: RuntimeWindow | None,
    proven: Collection[str],
) -> tuple[LibraryReport, list[Finding]]:
    """Judge a library and the runtimes it fits."""
    headers, findings = judge.headers_of(facts, stated)
    stamp = judge.stamp_of(facts)
    window = judge_window(
        {entry.name for entry in facts.imports if not entry.weak},
        facts.features,
        headers,
        facts.platform,
        ruled_out=stamp.risks_ruled_out if stamp else (),
    )
    findings += judge.library(facts, backend)
    findings += judge.runtimes(facts, window, stated, proven)
    return LibraryReport(facts=facts, window=window), findings


def _variant(directory: Path, proven: Collection[str]) -> tuple[VariantReport, list[Finding]]:
    """Read and judge a variant directory."""
    if not directory.is_dir():
        raise InputError("no such directory", where=directory, fix="build the variant first")
    facts = read_directory(directory)
    findings: list[Finding] = []
    libraries: list[LibraryFacts] = []
    for name in facts.files:
        path = directory / name
        if not path.is_file() or not (
            name.endswith(_LIBRARY_SUFFIXES) or library_format(path) is not None
        ):
            continue
        try:
            libraries.append(read_library(path, name))
        except InputError as error:
            findings.append(
                Finding(
                    check="readable",
                    level="error",
                    where=name,
                    message=error.what,
                    fix=error.fix or "build the library again",
                )
            )
    findings += judge.directory(facts, libraries)
    stated: RuntimeWindow | None = None
    try:
        stated = RuntimeWindow.from_metadata(facts.metadata or {})
    except InputError as error:
        findings.append(
            Finding(
                check="metadata",
                level="error",
                where="metadata.json",
                message=f"{error.where}: {error.what}",
                fix="build the variant again",
            )
        )
    variant = judge.variant_of(facts.name)
    findings += archs.audit(
        directory, variant.backend if variant else None, facts.metadata, libraries
    )
    reports = []
    for library in libraries:
        report, found = _library(library, variant.backend if variant else None, stated, proven)
        reports.append(report)
        findings += found
    return VariantReport(facts=facts, libraries=tuple(reports), stated=stated), findings
