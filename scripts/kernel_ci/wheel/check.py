"""Judge a wheel: auditwheel's verdict, its tags against its content, and a variant's audit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from kernel_ci.audit.policy import systems
from kernel_ci.audit.report import AuditReport, Finding, Level, VariantReport, sort_findings
from kernel_ci.audit.variant import audit_variant
from kernel_ci.errors import InputError
from kernel_ci.variant import Variant
from kernel_ci.wheel import names


def check_wheel(path: Path) -> AuditReport:
    """Check a wheel that holds a kernel's variant, without running anything of it.

    Args:
        path: The wheel, of kernel-ci's making or not.

    Returns:
        The report of an audit of the variant inside, with findings about the wheel.

    Raises:
        InputError: It is no wheel, or holds no kernel's variant.
    """
    try:
        name, _, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise InputError(str(error), where=path, fix="name a file that ends in .whl") from None
    with tempfile.TemporaryDirectory(prefix="kernel-ci-wheel-") as scratch:
        tree = Path(scratch) / "tree"
        _unpack(path, tree)
        package, metadata = _package(tree, path)
        built_with = _built_with(metadata)
        platforms = sorted({tag.platform for tag in tags})
        variant = names.variant_of(name, ".".join(platforms), built_with)
        if variant is None:
            raise InputError(
                f"no variant follows from the name {name}, its tags and its metadata.json",
                where=path,
                fix="name wheels <kernel>-<backend>, e.g. relu-tvm-ffi-cu130",
            )
        # The audit knows a variant by its folder's name.
        moved = package.rename(Path(scratch) / str(variant))
        report = audit_variant(moved)
        (inside,) = report.variants
        findings = [
            *report.findings,
            *judge_tags({(t.interpreter, t.abi) for t in tags}, platforms, variant, inside),
            *judge_requirements(_requirements(tree), inside),
            *_other_libraries(tree),
            *_auditwheel(path, platforms, variant),
        ]
    return report.model_copy(update={"path": str(path), "findings": sort_findings(findings)})


def judge_tags(
    pythons: set[tuple[str, str]],
    platforms: list[str],
    variant: Variant,
    inside: VariantReport,
) -> Iterator[Finding]:
    """Compare a wheel's tags with the libraries in it.

    Args:
        pythons: The interpreter and ABI tags, such as `("py3", "none")`.
        platforms: The platform tags.
        variant: The variant that its name and tags mean.
        inside: What was read from it.
    """
    for interpreter, abi in sorted(pythons - {("py3", "none")}):
        yield _finding(
            "tags",
            "error",
            f"is tagged {interpreter}-{abi}, but a tvm-ffi kernel is loaded by any Python",
            "build it as py3-none",
        )
    if any(platform.startswith("linux_") for platform in platforms):
        yield _finding(
            "tags",
            "error",
            f"is tagged {', '.join(platforms)}, which no index takes",
            "repair it with auditwheel",
        )
    for library in inside.libraries:
        if library.facts.platform != variant.platform:
            yield _finding(
                "tags",
                "error",
                f"is tagged for {variant.platform}, but {library.facts.path} is for"
                f" {library.facts.platform}",
                "build it again",
            )
    backend = ((inside.facts.metadata or {}).get("backend") or {}) if inside.facts.metadata else {}
    kind = backend.get("type") if isinstance(backend, dict) else None
    if kind != variant.backend:
        yield _finding(
            "tags",
            "error",
            f"is named for {variant.backend}, but its metadata.json says {kind}",
            "build it again",
        )


def judge_requirements(required: list[str], inside: VariantReport) -> Iterator[Finding]:
    """Compare what a wheel requires with the runtimes that its variant states."""
    found = []
    for text in required:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield _finding("requires", "error", f"{text!r} is no requirement", "build it again")
            continue
        if canonicalize_name(requirement.name) == names.RUNTIME:
            found.append(requirement)
    if inside.stated is None:
        return
    wanted = Requirement(names.requirement(inside.stated))
    if [it.specifier for it in found] != [wanted.specifier]:
        yield _finding(
            "requires",
            "error",
            f"requires {', '.join(map(str, found)) or f'no {names.RUNTIME}'}, but works with"
            f" {wanted}",
            f"make it require {wanted}",
        )


def _auditwheel(path: Path, platforms: list[str], variant: Variant) -> Iterator[Finding]:
    """Tell what auditwheel says: symbols, and libraries that are neither there nor bundled."""
    if variant.os != "linux":
        return
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        verdict = {"error": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    if done.returncode or "error" in verdict:
        problem = verdict.get("error", done.stderr.strip())
        yield _finding("auditwheel", "error", f"cannot judge it: {problem}", "build it again")
        return
    symbols = str(verdict["sym_tag"])
    libraries = sorted(verdict["external_libs"])
    yield _finding(
        "auditwheel",
        "note",
        f"its symbols fit {symbols}; libraries from outside: {', '.join(libraries) or 'none'}",
        "nothing to be done",
    )
    for platform in platforms:
        if (claimed := _glibc(platform)) and (_glibc(symbols) or (99, 0)) > claimed:
            yield _finding(
                "auditwheel",
                "error",
                f"is tagged {platform}, but its symbols only fit {symbols}",
                "build it in an older image, or tag it as what it is",
            )
    for library in libraries:
        if not systems().allowed(library, variant.os, variant.backend):
            yield _finding(
                "auditwheel",
                "error",
                f"needs {library}, which is neither in it nor certain to be there",
                "link it statically, or let auditwheel bundle it",
            )


def _glibc(tag: str) -> tuple[int, int] | None:
    """Return the glibc that a manylinux tag promises to do with, None for another tag."""
    found = re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag)
    old = {"manylinux2014": (2, 17), "manylinux2010": (2, 12), "manylinux1": (2, 5)}
    return (int(found[1]), int(found[2])) if found else old.get(tag.partition("_")[0])


def _other_libraries(tree: Path) -> Iterator[Finding]:
    """Tell of libraries beside the variant: what a repair has bundled."""
    for file in sorted(tree.rglob("*")):
        if re.search(r"\.(so|dylib|dll)(\.[0-9.]+)?$", file.name):
            shown = file.relative_to(tree).as_posix()
            yield _finding(
                "bundled",
                "error",
                f"brings {shown}; libraries of tvm-ffi and of drivers must be those of the system",
                "exclude it from the repair",
            )


def _unpack(path: Path, tree: Path) -> None:
    """Unpack a wheel, and verify the digests that its RECORD states."""
    if not path.is_file():
        raise InputError("there is no such file", where=path, fix="name a wheel")
    command = [sys.executable, "-m", "wheel", "unpack", "--dest", str(tree), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    inner = list(tree.iterdir()) if tree.is_dir() else []
    if done.returncode or len(inner) != 1 or not zipfile.is_zipfile(path):
        lines = done.stderr.strip().splitlines() or ["it is no wheel"]
        raise InputError(f"cannot be unpacked: {lines[-1]}", where=path, fix="build it again")
    for child in inner[0].iterdir():
        child.rename(tree / child.name)
    inner[0].rmdir()


def _package(tree: Path, path: Path) -> tuple[Path, dict[str, object]]:
    """Return the folder of the variant in a wheel, and its metadata."""
    found = sorted(tree.glob("*/metadata.json"))
    try:
        (file,) = found
        metadata = json.loads(file.read_bytes())
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise InputError(
            f"holds {len(found) or 'no'} package with a metadata.json that can be read;"
            " a kernel's wheel holds one",
            where=path,
            fix="build it with `kernel-ci build --engine cibuildwheel`",
        )
    return found[0].parent, metadata


def _built_with(metadata: dict[str, object]) -> str:
    own = metadata.get("kernel-ci")
    stated = own.get("tvm-ffi") if isinstance(own, dict) else None
    return str(stated.get("built-with")) if isinstance(stated, dict) else ""


def _requirements(tree: Path) -> list[str]:
    (file,) = tree.glob("*.dist-info/METADATA")
    return Parser().parsestr(file.read_text(encoding="utf-8")).get_all("Requires-Dist") or []


def _finding(check: str, level: Level, message: str, fix: str) -> Finding:
    return Finding(check=check, level=level, where=".", message=message, fix=fix)
