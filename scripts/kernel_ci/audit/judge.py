"""Judge what the readers found. Pure: facts in, findings out.

Each function is one subject; `check` names in the findings are stable, for people who
filter reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from packaging.version import Version

from kernel_ci.abi.stamp import Stamp
from kernel_ci.abi.table import is_tvm_ffi, table
from kernel_ci.abi.window import RuntimeWindow, Window, check_headers
from kernel_ci.audit.facts import DirectoryFacts, LibraryFacts
from kernel_ci.audit.policy import manylinux, systems
from kernel_ci.audit.report import DynamicReport, Finding, Level, VariantReport
from kernel_ci.errors import InputError, Rejected
from kernel_ci.variant import LIBRARY_SUFFIX, Variant

#: Words in a function's name that tell which backends it is for, as in `relu_cuda`.
_BACKEND_WORDS = {
    "cann": "cann", "cpu": "cpu", "cuda": "cuda", "hip": "rocm", "metal": "metal", "mps": "metal",
    "neuron": "neuron", "rocm": "rocm", "sycl": "xpu", "tpu": "tpu", "xpu": "xpu",
}  # fmt: skip

#: Attributes of a loaded module that are no function of the library (tvm_ffi.Module).
_MODULE_ATTRIBUTES = frozenset({
    "clear_imports", "entry_name", "export_library", "get_function", "get_function_doc",
    "get_function_metadata", "get_property_mask", "get_write_formats", "implements_function",
    "import_module", "imports", "inspect_source", "is_compilation_exportable", "is_runnable",
    "kind", "write_to_file",
})  # fmt: skip


def variant_of(name: str) -> Variant | None:
    """Return the variant that a directory's name means, None for another name."""
    try:
        return Variant.parse(name)
    except InputError:
        return None


# --- A library by itself ----------------------------------------------------------------


def library(facts: LibraryFacts, backend: str | None) -> list[Finding]:
    """Judge a library by itself.

    Args:
        facts: What was read.
        backend: The backend that it is for, None if nothing tells.
    """
    judges: tuple[Callable[[LibraryFacts, str | None], Iterable[Finding]], ...] = (
        needed_libraries,
        undefined_symbols,
        symbol_versions,
        macos_minimum,
        loading,
        exported_functions,
    )
    return [finding for judge in judges for finding in judge(facts, backend)]


def needed_libraries(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """Libraries that the loader must find: only those that are certain to be there."""
    known = systems()
    for name in facts.needed:
        if known.allowed(name, facts.os, backend):
            continue
        owner = known.backend_of(name, facts.os)
        whose = f"belongs to {owner}" if owner else "is on no list of libraries that are there"
        yield Finding(
            check="needed",
            level="error",
            where=facts.path,
            message=f"needs {name}, which {whose}" + (f" (backend: {backend})" if backend else ""),
            fix="link it statically, or remove the dependency"
            " (a library that is linked but not used goes with -Wl,--as-needed)",
        )
    uses = any(is_tvm_ffi(entry.name) for entry in facts.imports)
    if uses and not any("tvm_ffi" in name for name in facts.needed):
        yield Finding(
            check="needed",
            level="note",
            where=facts.path,
            message="uses tvm-ffi but does not name libtvm_ffi.so as needed; it loads only"
            " after something else loaded that",
            fix="link with -ltvm_ffi",
        )


def undefined_symbols(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """Symbols that neither libtvm_ffi nor an allowed library provides."""
    known = systems()
    providers = [
        entry
        for entry in known.library
        if entry.system == facts.os
        and (entry.backend is None or backend is None or entry.backend == backend)
        and any(entry.is_one(name, facts.os) for name in facts.needed)
    ]
    exports = table().exports.get(facts.platform, {})
    for entry in facts.imports:
        if entry.weak or entry.name in exports or is_tvm_ffi(entry.name):
            continue  # the window judges tvm-ffi's
        # ELF: a version; elsewhere: the library that the symbol is bound to.
        if entry.version is not None or entry.library is not None:
            continue
        if any(provider.provides(entry.name) for provider in providers):
            continue
        why = known.why_foreign(entry.name)
        yield Finding(
            check="undefined",
            level="error",
            where=facts.path,
            message=f"{entry.name} is undefined, and nothing that the library may count on"
            f" provides it{f': {why}' if why else ''}",
            fix="link what defines it into the library; -Wl,-z,defs makes the linker say so",
        )


def symbol_versions(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """Demands on glibc, libstdc++ and libgcc_s, against manylinux_2_28."""
    if facts.format != "elf":
        return
    policy = manylinux()
    for owner, versions in sorted(facts.version_needs.items()):
        for version in versions:
            excess = policy.excess(version)
            if excess is None:
                continue
            users = [entry.name for entry in facts.imports if entry.version == version]
            yield Finding(
                check="manylinux",
                level="error",
                where=facts.path,
                message=f"{excess}, the newest of {policy.name} ({owner}"
                + (f"; for {', '.join(users[:4])}" if users else "")
                + ")",
                fix="build with zig's compiler (the default), or in a manylinux_2_28 image",
            )


def macos_minimum(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """The oldest macOS that a library runs on."""
    if facts.format != "macho":
        return
    limits = systems().macos_minimum
    limit = limits.get(backend or "metal", limits["cpu"])
    if facts.min_os is None:
        yield Finding(
            check="macos-version",
            level="error",
            where=facts.path,
            message="does not say which macOS it needs",
            fix="build with -mmacosx-version-min",
        )
    elif Version(facts.min_os) > Version(limit):
        yield Finding(
            check="macos-version",
            level="error",
            where=facts.path,
            message=f"needs macOS {facts.min_os}; {backend or 'any'} kernels must run on {limit}",
            fix=f"build with -mmacosx-version-min={limit}",
        )


def loading(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """What the loader is told: search paths, unloading, stack, relocations, symbols."""
    if facts.rpath:
        yield Finding(
            check="rpath",
            level="error",
            where=facts.path,
            message=f"holds the search path {':'.join(facts.rpath)}",
            fix="link without -rpath; libtvm_ffi is in memory before the library is loaded",
        )
    names = {entry.name for entry in facts.imports}
    if facts.stays_loaded is False and "__cxa_atexit" in names and "__cxa_finalize" not in names:
        # Without the startup files of GNU's compilers (crtbeginS.o) nothing runs a library's
        # exit handlers when it is unloaded, and tvm-ffi unloads up to 0.1.14.post0.
        yield Finding(
            check="unload",
            level="error",
            where=facts.path,
            message="registers exit handlers and does not run them when it is unloaded: on"
            " tvm-ffi up to 0.1.14.post0 the process then crashes while it ends",
            fix="link with -Wl,-z,nodelete",
        )
    if facts.executable_stack:
        yield Finding(
            check="executable-stack",
            level="error",
            where=facts.path,
            message="demands an executable stack, which hardened systems refuse",
            fix="link with -Wl,-z,noexecstack; assembly sources need .section .note.GNU-stack",
        )
    if facts.text_relocations:
        yield Finding(
            check="text-relocations",
            level="error",
            where=facts.path,
            message="has text relocations: its code was not compiled as position independent",
            fix="compile everything with -fPIC",
        )
    if not facts.stripped:
        yield Finding(
            check="stripped",
            # zig's Mach-O linker keeps local symbols even with -s.
            level="note" if facts.format == "macho" else "warning",
            where=facts.path,
            message="holds a symbol table that nothing needs",
            fix="strip it (strip --strip-unneeded, on macOS strip -x; or link with -s)",
        )


def exported_functions(facts: LibraryFacts, backend: str | None) -> Iterator[Finding]:
    """What tvm-ffi can call."""
    if not facts.functions:
        yield Finding(
            check="functions",
            level="error",
            where=facts.path,
            message="exports no function that tvm-ffi can call (__tvm_ffi_<name>)",
            fix="export with TVM_FFI_DLL_EXPORT_TYPED_FUNC, and keep these names in the"
            " linker's export list",
        )


# --- Headers, stamp and runtimes ---------------------------------------------------------


def stamp_of(facts: LibraryFacts) -> Stamp | None:
    """Return a library's stamp, None without one that can be read."""
    try:
        return Stamp.parse(facts.stamp) if facts.stamp is not None else None
    except InputError:
        return None


def headers_of(
    facts: LibraryFacts, stated: RuntimeWindow | None
) -> tuple[str | None, list[Finding]]:
    """Return the release that a library was compiled with, and what is wrong about it.

    The stamp in the library counts; without one, what the metadata states.
    """
    findings: list[Finding] = []

    def say(level: str, check: str, message: str, fix: str) -> None:
        findings.append(
            Finding.model_validate(
                {
                    "check": check,
                    "level": level,
                    "where": facts.path,
                    "message": message,
                    "fix": fix,
                }
            )
        )

    stamp: Stamp | None = None
    if facts.stamp is None:
        say(
            "warning",
            "stamp",
            "has no build stamp: which tvm-ffi headers it was compiled with cannot be read"
            " from it, and breaks that no symbol shows cannot be ruled out",
            "build with kernel-ci, or compile its stamp.cc into the library",
        )
    else:
        try:
            stamp = Stamp.parse(facts.stamp)
        except InputError as error:
            say("error", "stamp", error.what, error.fix or "build the library again")
    headers = stamp.tvm_ffi if stamp else stated.built_with if stated else None
    if stamp:
        release = table().release(stamp.tvm_ffi)
        if release is not None and release.header_macro != stamp.header_macro:
            say(
                "error",
                "stamp",
                f"is stamped as built with {stamp.tvm_ffi}, but its headers call themselves"
                f" {stamp.header_macro} and those of that release {release.header_macro}",
                "compile with the headers of the release that the stamp names",
            )
        if stated and stated.built_with != stamp.tvm_ffi:
            say(
                "error",
                "stamp",
                f"is stamped as built with {stamp.tvm_ffi}, but metadata.json states"
                f" {stated.built_with}",
                "build the variant again; library and metadata are not of one build",
            )
    if headers is not None:
        try:
            warning = check_headers(headers)
        except (Rejected, InputError) as error:
            say("error", "headers", error.what, error.fix or "build with another release")
        else:
            if warning:
                say("warning", "headers", warning, "build with another release")
    return headers, findings


def runtimes(
    facts: LibraryFacts,
    window: Window,
    stated: RuntimeWindow | None,
    proven: Iterable[str] = (),
) -> list[Finding]:
    """Judge which runtimes a library fits, against those that it states.

    Args:
        facts: What was read from the library.
        window: How it fits each release.
        stated: What its metadata states.
        proven: Runtimes under which it was tested just now, and passed. What was unproven
            in their epochs no longer is.
    """
    epochs = {v for runtime in proven if table().release(runtime) for v in table().epoch(runtime)}
    findings = [
        Finding(
            check="tvm-ffi-symbol",
            level="error",
            where=facts.path,
            message=f"no known release of tvm-ffi exports {symbol}",
            fix="do not use what libtvm_ffi does not export (with zig, its C++ functions that"
            " take std types); if a newer release is out, run `nox -s abi-update`",
        )
        for symbol in window.unknown_symbols
    ]
    if window.unknown_symbols:
        return findings
    if not window.with_status("fits", "unproven"):
        findings.append(
            Finding(
                check="window",
                level="error",
                where=facts.path,
                message="fits no release of tvm-ffi: "
                + "; ".join(window.releases[-1].reasons or ("see the table",)),
                fix="remove what it needs from tvm-ffi beyond its C functions",
            )
        )
        return findings
    cxx = [
        entry.name
        for entry in facts.imports
        if is_tvm_ffi(entry.name) and not entry.weak and not entry.name.startswith("TVMFFI")
    ]
    if cxx:
        findings.append(
            Finding(
                check="cxx-symbols",
                level="warning",
                where=facts.path,
                message=f"imports C++ functions of tvm-ffi, which change between releases:"
                f" {', '.join(cxx[:4])}",
                fix="call them through the C interface (ffi::Function::GetGlobal) instead",
            )
        )
    if stated is None:
        findings.append(_floor_note(facts, window))
        return findings
    admitted = [entry for entry in window.releases if stated.admits(entry.version)]
    for status, word in (("breaks", "breaks"), ("unproven", "may break")):
        wrong = [
            entry
            for entry in admitted
            if entry.status == status and not (status == "unproven" and entry.version in epochs)
        ]
        if wrong:
            fits = window.floor or "none"
            findings.append(
                Finding(
                    check="window",
                    level="error",
                    where=facts.path,
                    message=f"its stated runtimes (from {stated.floor}"
                    + (f" to {stated.newest}" if stated.newest else "")
                    + f") include {_span(e.version for e in wrong)}, where it {word}:"
                    f" {'; '.join(wrong[0].reasons)}",
                    fix=f"state the floor {fits}"
                    + (f" and the newest {window.ceiling}" if window.ceiling else "")
                    + (", or prove it by tests under such a runtime" if word != "breaks" else ""),
                )
            )
    refused = [
        entry.version
        for entry in window.releases
        if entry.status == "fits" and not stated.admits(entry.version)
    ]
    if refused:
        findings.append(
            Finding(
                check="window",
                level="note",
                where=facts.path,
                message=f"refuses {_span(refused)}, which its symbols would allow",
                fix="nothing, if that was intended",
            )
        )
    return findings


def _floor_note(facts: LibraryFacts, window: Window) -> Finding:
    fits = window.with_status("fits")
    unproven = window.with_status("unproven")
    parts = [f"fits tvm-ffi {_span(fits)}" if fits else "fits no release for certain"]
    if unproven:
        parts.append(f"{_span(unproven)} only if tests prove it")
    return Finding(
        check="window",
        level="note",
        where=facts.path,
        message="states no tvm-ffi runtimes; by its symbols it " + ", ".join(parts),
        fix="state them in metadata.json, and refuse others in _ops.py",
    )


def _span(versions: Iterable[str]) -> str:
    """Return releases in words: one, or first to last."""
    found = list(versions)
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


# --- What was run ------------------------------------------------------------------------


def ran(report: DynamicReport) -> list[Finding]:
    """Judge what came of a library under several releases of tvm-ffi."""
    findings: list[Finding] = []

    def say(level: Level, message: str, fix: str) -> None:
        findings.append(
            Finding(check="runtime", level=level, where=report.where, message=message, fix=fix)
        )

    if report.not_run is not None:
        say("note", f"was not run: {report.not_run}", "audit it on a machine that can")
        return findings
    for run in report.runs:
        at = f"under tvm-ffi {run.version}"
        if run.outcome == "unavailable":
            say(
                "warning",
                f"could not be tried {at}: {'; '.join(run.faults)}",
                "audit it with a Python that this release has wheels for",
            )
        elif run.outcome == "failed":
            promised = run.admitted if run.admitted is not None else run.predicted == "fits"
            level: Level = "error" if promised else "note"
            if run.admitted is None and run.predicted in (None, "unproven"):
                level = "warning"
            say(
                level,
                f"fails {at}"
                + (", as its symbols say" if run.predicted == "breaks" else "")
                + f": {'; '.join(run.faults[:3])}",
                "refuse this release (kernel-ci.tvm-ffi in metadata.json, and _ops.py), or do"
                " without what it lacks",
            )
        elif run.predicted == "breaks":
            say(
                "note",
                f"passed {at}, where it breaks by its symbols or stamp: nothing that was"
                " called came that far",
                "test what it does with tvm-ffi",
            )
    silent = sorted({name for run in report.runs for name in run.silent})
    if silent:
        say(
            "warning",
            f"raised no error whatever arguments it got, so no error of it was seen:"
            f" {', '.join(silent)}",
            "export it with TVM_FFI_DLL_EXPORT_TYPED_FUNC, which checks arguments",
        )
    if not report.suite:
        say(
            "note",
            "its results were not checked: there are no tests marked kernels_ci, only loading"
            " and errors were tried",
            "name the kernel's tests (--tests), and mark the quick ones",
        )
    return findings


# --- A variant directory -----------------------------------------------------------------


def directory(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> list[Finding]:
    """Judge a variant directory: name, layout, metadata, digest, machine, Python API."""
    judges: tuple[Callable[[DirectoryFacts, Sequence[LibraryFacts]], Iterable[Finding]], ...] = (
        variant_name,
        layout,
        metadata,
        digest,
        machine,
        python_api,
    )
    return [finding for judge in judges for finding in judge(facts, libraries)]


def variant_name(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """The directory's name is what the client goes by."""
    try:
        Variant.parse(facts.name)
    except InputError as error:
        yield Finding(
            check="variant-name",
            level="error",
            where=".",
            message=error.what,
            fix=error.fix or "rename the directory",
        )


def layout(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """The files that a variant directory has."""
    for name in ("__init__.py", "_ops.py"):
        if name not in facts.files:
            yield Finding(
                check="layout",
                level="error",
                where=name,
                message="is missing",
                fix="build the variant again",
            )
    for name in facts.files:
        path = PurePosixPath(name)
        if path.suffix in {".pyc", ".pyo"} or "__pycache__" in path.parts:
            yield Finding(
                check="layout",
                level="error",
                where=name,
                message="is bytecode, which no digest covers",
                fix="delete it",
            )
    for name, target in facts.links.items():
        yield Finding(
            check="layout",
            level="error",
            where=name,
            message=f"is a symbolic link to {target}, which the Hub does not keep",
            fix="put the file itself there",
        )
    for name, reason in facts.python.unreadable.items():
        yield Finding(
            check="layout",
            level="error",
            where=name,
            message=f"is not valid Python: {reason}",
            fix="correct it",
        )
    if not libraries:
        yield Finding(
            check="layout",
            level="error",
            where=".",
            message="there is no library in the directory",
            fix="build the variant again",
        )
    own = [library for library in libraries if "/" not in library.path]
    identity = (facts.metadata or {}).get("id")
    variant = variant_of(facts.name)
    if own and isinstance(identity, str) and variant is not None:
        expected = identity + variant.library_suffix
        if expected not in {library.path for library in own}:
            yield Finding(
                check="layout",
                level="error",
                where=own[0].path,
                message=f"is not named after the metadata's id: {expected}",
                fix="build the variant again; name, id and library go together",
            )
    if len(libraries) > 1:
        yield Finding(
            check="layout",
            level="warning",
            where=".",
            message=f"holds {len(libraries)} libraries: "
            + ", ".join(library.path for library in libraries),
            fix="link them into one",
        )


def metadata(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """`metadata.json` against the client's parser, the variant's name and itself."""
    where = "metadata.json"
    if facts.metadata_error is not None:
        yield Finding(
            check="metadata",
            level="error",
            where=where,
            message=f"the kernels client cannot read it: {facts.metadata_error}",
            fix="build the variant again",
        )
    if facts.metadata is None:
        return
    found = facts.metadata
    backend = found.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else None
    variant = variant_of(facts.name)
    if variant is not None and kind is not None and kind != variant.backend:
        yield Finding(
            check="metadata",
            level="error",
            where=where,
            message=f"says backend {kind}, and the directory's name says {variant.backend}",
            fix="build the variant again",
        )
    name, identity = found.get("name"), found.get("id")
    if isinstance(name, str) and isinstance(identity, str) and isinstance(kind, str):
        prefix = f"_{name.replace('-', '_')}_{kind}_"
        if not identity.startswith(prefix) or not identity.isidentifier():
            yield Finding(
                check="metadata",
                level="error",
                where=where,
                message=f"id {identity!r} is not {prefix}<unique part>",
                fix="build the variant again",
            )
    provenance = found.get("provenance")
    kernel = provenance.get("kernel") if isinstance(provenance, dict) else None
    if isinstance(kernel, dict) and kernel.get("dirty"):
        yield Finding(
            check="metadata",
            level="warning",
            where=where,
            message="was built from sources with changes that are not committed",
            fix="commit, then build again",
        )


def digest(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """The digest in the metadata against the files."""
    if facts.metadata is None:
        return
    if facts.digest_faults is None:
        yield Finding(
            check="digest",
            level="error",
            where="metadata.json",
            message="holds no digest of the files (sha256 or sha512)",
            fix="build the variant again",
        )
        return
    for fault in facts.digest_faults:
        yield Finding(
            check="digest",
            level="error",
            where=fault.partition(" ")[0],
            message=f"the digest in metadata.json does not hold: {fault}",
            fix="build the variant again, and change nothing afterwards",
        )


def machine(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """The machine that a library is for, against the directory's name."""
    variant = variant_of(facts.name)
    if variant is None:
        return
    for library in libraries:
        if library.platform != variant.platform:
            yield Finding(
                check="machine",
                level="error",
                where=library.path,
                message=f"is a library for {library.platform} in a variant for {variant.platform}",
                fix="build the variant for its own platform",
            )
        elif not library.path.endswith(LIBRARY_SUFFIX[variant.os]):
            yield Finding(
                check="machine",
                level="error",
                where=library.path,
                message=f"does not end with {LIBRARY_SUFFIX[variant.os]}, which _ops.py loads",
                fix="rename it",
            )


def for_another_backend(function: str, backend: str | None) -> bool:
    """Tell whether a function's name says that it is for another backend.

    Upstream's kernels choose between `ops.relu_cpu` and `ops.relu_cuda` in Python, and
    each variant exports its own.
    """
    meant = {_BACKEND_WORDS[word] for word in function.split("_") if word in _BACKEND_WORDS}
    return bool(meant) and backend not in meant


def python_api(facts: DirectoryFacts, libraries: Sequence[LibraryFacts]) -> Iterator[Finding]:
    """What the Python files call, against what the library exports."""
    python = facts.python
    if python.public is None and "__init__.py" in facts.files:
        yield Finding(
            check="python-api",
            level="warning",
            where="__init__.py",
            message="has no literal __all__, which is the kernel's public API by the Hub's rules",
            fix="write __all__ = [...]",
        )
    exported = {name for library in libraries for name in library.functions}
    if not exported:
        return
    variant = variant_of(facts.name)
    backend = variant.backend if variant else None
    for name, where in sorted(python.ops.items()):
        if name not in exported | _MODULE_ATTRIBUTES and not for_another_backend(name, backend):
            yield Finding(
                check="python-api",
                level="error",
                where=where,
                message=f"uses ops.{name}, which the library does not export"
                f" (it exports {', '.join(sorted(exported))})",
                fix="export it from the sources of this backend, or do not use it",
            )
    unused = sorted(exported - set(python.ops))
    if unused:
        yield Finding(
            check="python-api",
            level="note",
            where=libraries[0].path,
            message=f"exports functions that no Python file names: {', '.join(unused)}",
            fix="nothing, if they are meant for callers of `ops`",
        )


# --- The variants of a kernel together ---------------------------------------------------


def build_folder(variants: Sequence[VariantReport]) -> list[Finding]:
    """Judge the variants of a kernel against each other."""
    judges: tuple[Callable[[Sequence[VariantReport]], Iterable[Finding]], ...] = (
        unique_ids,
        same_identity,
        parity,
    )
    return [finding for judge in judges for finding in judge(variants)]


def unique_ids(variants: Sequence[VariantReport]) -> Iterator[Finding]:
    """Two variants that one process can load must not share an id.

    The client registers a module by its id: the second one would silently get the first
    one's library.
    """
    seen: dict[tuple[str, str], str] = {}
    for variant in variants:
        parsed = variant_of(variant.facts.name)
        identity = (variant.facts.metadata or {}).get("id")
        if parsed is None or not isinstance(identity, str):
            continue
        first = seen.setdefault((parsed.platform, identity), variant.facts.name)
        if first != variant.facts.name:
            yield Finding(
                check="unique-id",
                level="error",
                where=f"{variant.facts.name}/metadata.json",
                message=f"has the id of {first}, {identity}: in one process the second of them"
                " would silently run the first one's library",
                fix="build both with kernel-ci, which gives each variant its own id",
            )


def same_identity(variants: Sequence[VariantReport]) -> Iterator[Finding]:
    """Name, version and license are those of the kernel, in every variant."""
    for key in ("name", "version", "license"):
        values: dict[str, list[str]] = {}
        for variant in variants:
            if variant.facts.metadata is not None:
                value = str(variant.facts.metadata.get(key))
                values.setdefault(value, []).append(variant.facts.name)
        if len(values) > 1:
            yield Finding(
                check="same-identity",
                level="error",
                where="metadata.json",
                message=f"{key} differs between variants: "
                + "; ".join(f"{value} in {', '.join(names)}" for value, names in values.items()),
                fix="build all variants from the same sources",
            )


def parity(variants: Sequence[VariantReport]) -> Iterator[Finding]:
    """Every variant exports the same functions and has the same public API.

    Functions that are for one backend by their names are left out.
    """
    functions = {
        v.facts.name: frozenset(f for library in v.libraries for f in library.facts.functions)
        for v in variants
    }
    public = {v.facts.name: frozenset(v.facts.python.public or ()) for v in variants}
    for kind, sets in (("the function", functions), ("the public name", public)):
        everything = frozenset().union(*sets.values())
        for name, present in sets.items():
            parsed = variant_of(name)
            for missing in sorted(everything - present):
                if sets is functions and for_another_backend(
                    missing, parsed.backend if parsed else None
                ):
                    continue
                having = [other for other, theirs in sets.items() if missing in theirs]
                yield Finding(
                    check="parity",
                    level="error",
                    where=name,
                    message=f"lacks {kind} {missing}, which {', '.join(having)} has",
                    fix="give every backend the same functions",
                )
