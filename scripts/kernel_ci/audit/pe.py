"""Read PE libraries (DLLs) with LIEF."""

from __future__ import annotations

from pathlib import Path

from kernel_ci.abi.stamp import SYMBOL as STAMP_SYMBOL
from kernel_ci.audit.facts import Import, LibraryFacts
from kernel_ci.audit.readers import damaged, find_features, split_exports, stamp_text
from kernel_ci.errors import InputError

_STAMP_LIMIT = 4096


def read(path: Path, name: str) -> LibraryFacts:
    """Return the facts of a DLL.

    Raises:
        InputError: The file is damaged or no DLL.
    """
    import lief

    lief.logging.disable()
    binary = lief.PE.parse(str(path))
    if binary is None:
        raise damaged(name, ValueError("not a complete PE file"))
    if not binary.header.has_characteristic(lief.PE.Header.CHARACTERISTICS.DLL):
        raise InputError("is a PE file but no DLL", where=name, fix="link a DLL")
    arch = {
        lief.PE.Header.MACHINE_TYPES.AMD64: "x86_64",
        lief.PE.Header.MACHINE_TYPES.ARM64: "aarch64",
    }.get(binary.header.machine, binary.header.machine.name)
    imports = [
        Import(name=str(entry.name), library=str(library.name))
        for library in [*binary.imports, *binary.delay_imports]
        for entry in library.entries
        if not entry.is_ordinal
    ]
    stamp = None
    exports = []
    table = binary.get_export()
    for entry in table.entries if table is not None else ():
        exports.append(str(entry.name))
        if exports[-1] == STAMP_SYMBOL:
            start = binary.imagebase + entry.address
            stamp = stamp_text(bytes(binary.get_content_from_virtual_address(start, _STAMP_LIMIT)))
    functions, others = split_exports(exports)
    return LibraryFacts(
        path=name,
        size=path.stat().st_size,
        format="pe",
        arch=arch,
        os="windows",
        identity=str(table.name) if table is not None else None,
        needed=tuple(str(library.name) for library in [*binary.imports, *binary.delay_imports]),
        imports=tuple(sorted(imports, key=lambda entry: (entry.name, entry.library or ""))),
        functions=functions,
        other_exports=others,
        features=find_features(path),
        stamp=stamp,
    )
