"""Read Mach-O libraries with LIEF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_ci.abi.stamp import SYMBOL as STAMP_SYMBOL
from kernel_ci.audit.facts import Import, LibraryFacts
from kernel_ci.audit.readers import damaged, find_features, split_exports, stamp_text
from kernel_ci.errors import InputError

_STAMP_LIMIT = 4096
_WEAK_LOOKUP = -3  # BIND_SPECIAL_DYLIB_WEAK_LOOKUP of <mach-o/loader.h>

#: Local symbols that lld writes whether or not it strips.
_LINKERS_OWN = ("dyld_private", "__thunk")


def read(path: Path, name: str) -> LibraryFacts:
    """Return the facts of a Mach-O library.

    Raises:
        InputError: The file is damaged, no shared library, or holds several architectures.
    """
    import lief

    lief.logging.disable()
    fat = lief.MachO.parse(str(path))
    if fat is None:
        raise damaged(name, ValueError("not a complete Mach-O file"))
    if fat.size != 1:
        raise InputError(
            f"holds {fat.size} architectures, and a variant has one",
            where=name,
            fix="build for the architecture of the variant only",
        )
    binary = fat.at(0)
    if binary is None or binary.header.file_type != lief.MachO.Header.FILE_TYPE.DYLIB:
        raise InputError("is a Mach-O file but no dylib", where=name, fix="link with -shared")
    arch = {
        lief.MachO.Header.CPU_TYPE.ARM64: "aarch64",
        lief.MachO.Header.CPU_TYPE.X86_64: "x86_64",
    }.get(binary.header.cpu_type, binary.header.cpu_type.name)
    identity = [
        str(command.name)
        for command in binary.libraries
        if command.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB
    ]
    needed = [
        str(command.name)
        for command in binary.libraries
        if command.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB
    ]
    imports = _imports(binary, name)
    stamp = None
    exports = []
    for symbol in binary.exported_symbols:
        exports.append(_plain(str(symbol.name)))
        if exports[-1] == STAMP_SYMBOL:
            stamp = _content(binary, symbol.value)
    functions, others = split_exports(exports)
    minos: list[int] | None = None
    if binary.build_version is not None:
        minos = list(binary.build_version.minos)
    elif binary.version_min is not None:
        minos = list(binary.version_min.version)
    return LibraryFacts(
        path=name,
        size=path.stat().st_size,
        format="macho",
        arch=arch,
        os="darwin",
        identity=identity[0] if identity else None,
        needed=tuple(needed),
        rpath=tuple(str(command.path) for command in binary.rpaths),
        stripped=not any(
            symbol.category == lief.MachO.Symbol.CATEGORY.LOCAL
            and not str(symbol.name).endswith(_LINKERS_OWN)
            for symbol in binary.symbols
        ),
        min_os=f"{minos[0]}.{minos[1]}" if minos else None,
        imports=imports,
        functions=functions,
        other_exports=others,
        features=find_features(path),
        stamp=stamp,
    )


def _imports(binary: Any, name: str) -> tuple[Import, ...]:
    """Return the symbols that dyld must bind.

    Not those of the symbol table: zig's linker leaves symbols in it that were needed only by
    code which is gone. Two-level names: a binding says which library provides the symbol,
    unless it is to be looked for everywhere.

    Raises:
        InputError: The file does not say what dyld must bind, so nothing can be concluded.
    """
    import lief

    if not (binary.has_dyld_info or binary.has_dyld_chained_fixups):
        raise InputError(
            "holds neither dyld info nor chained fixups, so what it needs cannot be read",
            where=name,
            fix="link for macOS 10.6 or later",
        )
    found: dict[str, Import] = {}
    for binding in binary.bindings:
        # Definitions that dyld merges with those of other libraries are no needs: the library
        # holds one itself, or the symbol is bound in the ordinary way too.
        merged = binding.library_ordinal == _WEAK_LOOKUP or (
            isinstance(binding, lief.MachO.DyldBindingInfo)
            and binding.binding_class == lief.MachO.DyldBindingInfo.CLASS.WEAK
        )
        if merged or not binding.has_symbol:
            continue
        entry = Import(
            name=_plain(str(binding.symbol.name)),
            library=str(binding.library.name) if binding.has_library else None,
            weak=bool(binding.weak_import),
        )
        if entry.name not in found or found[entry.name].weak:
            found[entry.name] = entry
    return tuple(found[key] for key in sorted(found))


def _plain(name: str) -> str:
    """Return a name as C spells it: Mach-O puts an underscore before it."""
    return name.removeprefix("_")


def _content(binary: object, address: int) -> str:
    data = bytes(
        binary.get_content_from_virtual_address(address, _STAMP_LIMIT)  # type: ignore[attr-defined]
    )
    return stamp_text(data)
