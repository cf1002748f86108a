"""Read ELF libraries with pyelftools, lazily: large ones cost little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_ci.abi.stamp import SYMBOL as STAMP_SYMBOL
from kernel_ci.audit.facts import Import, LibraryFacts
from kernel_ci.audit.readers import damaged, find_features, split_exports, stamp_text
from kernel_ci.errors import InputError

_ARCH = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_FLAGS_1_NODELETE = 0x8
_FLAGS_TEXTREL = 0x4
_ALLOC = 0x2

#: Sections with the code for GPUs, of nvcc, hipcc and icpx.
_GPU_CODE = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin", "__CLANG_OFFLOAD_BUNDLE__")


def read(path: Path, name: str) -> LibraryFacts:
    """Return the facts of an ELF library.

    Raises:
        InputError: The file is damaged, no shared library, or lacks its section headers
            (what it needs could not be read, and reading nothing is no proof).
    """
    from elftools.common.exceptions import ELFError

    try:
        with path.open("rb") as file:
            return _read(file, path, name)
    except InputError:
        raise
    except (ELFError, ValueError, KeyError, AttributeError, TypeError, OSError) as error:
        # pyelftools fails on damaged files in all of these ways.
        raise damaged(name, error) from None


def _read(file: Any, path: Path, name: str) -> LibraryFacts:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(file)
    sections: dict[str, Any] = {section["sh_type"]: section for section in elf.iter_sections()}
    if elf["e_type"] != "ET_DYN" or "SHT_DYNAMIC" not in sections:
        raise InputError(
            f"is an ELF file but no shared library ({elf['e_type']})",
            where=name,
            fix="link with -shared, and keep the section headers (no sstrip)",
        )
    tags: dict[str, list[Any]] = {}
    for tag in sections["SHT_DYNAMIC"].iter_tags():
        tags.setdefault(tag.entry.d_tag, []).append(tag)
    symbols = sections.get("SHT_DYNSYM")
    needs_section = sections.get("SHT_GNU_verneed")
    if symbols is None or ("DT_VERNEED" in tags and needs_section is None):
        raise InputError(
            "its dynamic symbols or their versions have no section, so they cannot be read",
            where=name,
            fix="strip with `strip --strip-unneeded`, which keeps what the loader uses",
        )
    needs: dict[str, tuple[str, ...]] = {}
    owner: dict[int, tuple[str, str]] = {}
    if needs_section is not None:
        for need, versions in needs_section.iter_versions():
            found = []
            for version in versions:
                found.append(version.name)
                owner[version["vna_other"]] = (need.name, version.name)
            needs[need.name] = tuple(sorted(set(needs.get(need.name, ())) | set(found)))
    numbers = sections.get("SHT_GNU_versym")
    imports, exports, stamp = [], [], None
    for index, symbol in enumerate(symbols.iter_symbols()):
        binding = symbol["st_info"]["bind"]
        if not symbol.name or binding == "STB_LOCAL":
            continue
        if symbol["st_shndx"] == "SHN_UNDEF":
            number = numbers.get_symbol(index)["ndx"] if numbers is not None else 0
            library, version = owner.get(number if isinstance(number, int) else 0, (None, None))
            imports.append(
                Import(
                    name=symbol.name,
                    version=version,
                    library=library,
                    weak=binding == "STB_WEAK",
                )
            )
        elif symbol["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED"):
            exports.append(symbol.name)
            if symbol.name == STAMP_SYMBOL:
                stamp = _content(elf, symbol)
    functions, others = split_exports(exports)
    flags = tags["DT_FLAGS"][0].entry.d_val if "DT_FLAGS" in tags else 0
    flags_1 = tags["DT_FLAGS_1"][0].entry.d_val if "DT_FLAGS_1" in tags else 0
    rpath = [tag.rpath for tag in tags.get("DT_RPATH", [])]
    rpath += [tag.runpath for tag in tags.get("DT_RUNPATH", [])]
    return LibraryFacts(
        path=name,
        size=path.stat().st_size,
        format="elf",
        arch=_ARCH.get(elf["e_machine"], str(elf["e_machine"])),
        os="linux",
        identity=tags["DT_SONAME"][0].soname if "DT_SONAME" in tags else None,
        needed=tuple(tag.needed for tag in tags.get("DT_NEEDED", [])),
        rpath=tuple(part for entry in rpath for part in entry.split(":")),
        executable_stack=_executable_stack(elf),
        text_relocations="DT_TEXTREL" in tags or bool(flags & _FLAGS_TEXTREL),
        stays_loaded=bool(flags_1 & _FLAGS_1_NODELETE),
        stripped="SHT_SYMTAB" not in sections,
        version_needs=needs,
        imports=tuple(sorted(imports, key=lambda entry: (entry.name, entry.version or ""))),
        functions=functions,
        other_exports=others,
        features=find_features(path, _host_parts(elf)),
        stamp=stamp,
    )


def _host_parts(elf: Any) -> list[tuple[int, int]]:
    """Return offset and size of what is loaded for the processor.

    The code for GPUs, which makes a library large, has no text of tvm-ffi in it.
    """
    return [
        (section["sh_offset"], section["sh_size"])
        for section in elf.iter_sections()
        if section["sh_type"] == "SHT_PROGBITS"
        and section["sh_flags"] & _ALLOC
        and not section.name.startswith(_GPU_CODE)
    ]


def _executable_stack(elf: Any) -> bool:
    """Tell whether the loader must make the stack executable.

    Without PT_GNU_STACK it must, on the architectures we know.
    """
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_GNU_STACK":
            return bool(segment["p_flags"] & 1)
    return True


def _content(elf: Any, symbol: Any) -> str | None:
    """Return the text that a data symbol holds."""
    index = symbol["st_shndx"]
    if not isinstance(index, int):
        return None
    section = elf.get_section(index)
    start = symbol["st_value"] - section["sh_addr"]
    if section["sh_type"] == "SHT_NOBITS" or not 0 <= start < section["sh_size"]:
        return ""
    # Not section.data(): the section may hold a gigabyte of constants beside it.
    elf.stream.seek(section["sh_offset"] + start)
    return stamp_text(elf.stream.read(min(symbol["st_size"], section["sh_size"] - start)))
