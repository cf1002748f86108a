"""Which code for accelerators an XPU or a Metal library holds: what `archs` is for CUDA and ROCm.

SYCL's device code is in sections of its own, one a target, under the names that clang's offload
tools use (seen in the objects of intel-sycl-rt 2025.3): `spir64` holds SPIR-V, `spir64_gen` the
ahead-of-time code for all devices of a cell together. Which devices those are, the section does
not say. Apple's compiled shaders begin with `MTLB`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_ci.audit.report import Finding

if TYPE_CHECKING:
    from kernel_ci.kernel import Kernel

_SECTION = "__CLANG_OFFLOAD_BUNDLE__sycl-"
_SPIRV_MAGIC = (0x07230203).to_bytes(4, "little")
_METALLIB_MAGIC = b"MTLB"

_REBUILD = "build it again; a kernel's own flags must not choose targets"


def audit_metal(kernel: Kernel, directory: Path, libraries: Sequence[str]) -> list[Finding]:
    """Find a Metal variant whose shaders are not in it.

    Args:
        kernel: The kernel; one without a `.metal` source needs none.
        directory: The variant directory.
        libraries: Its libraries, relative to it.
    """
    sources = (src for part in kernel.components_of("metal", None).values() for src in part.src)
    if not any(src.endswith(".metal") for src in sources):
        return []
    if any(metallib_size(directory / library) for library in libraries):
        return []
    return [_fault(".", "has no compiled Metal shaders (__TEXT,__metallib)")]


def _fault(where: str, message: str) -> Finding:
    return Finding(check="archs", level="error", where=where, message=message, fix=_REBUILD)


def sycl_targets(library: Path) -> tuple[str, ...]:
    """Return the SYCL targets that an ELF library has code for, e.g. `spir64`; sorted.

    A target counts only where there is code: a section that is empty, or a `spir64` one that
    is no SPIR-V, does not.
    """
    from elftools.elf.elffile import ELFFile

    found = set()
    with library.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if not section.name.startswith(_SECTION):
                continue
            # Further parts of the triple follow in objects: spir64_gen-unknown-unknown-pvc.
            target = section.name.removeprefix(_SECTION).partition("-")[0]
            data = section.data()
            if data and (target != "spir64" or data.startswith(_SPIRV_MAGIC)):
                found.add(target)
    return tuple(sorted(found))


def judge_sycl(where: str, archs: Sequence[str], found: Sequence[str]) -> list[Finding]:
    """Compare a library's SYCL targets with what was asked.

    Args:
        where: The library, for messages.
        archs: What the cell lists: devices, and `spir64` for SPIR-V.
        found: What `sycl_targets` returned.
    """
    asked = {"spir64" if arch == "spir64" else "spir64_gen" for arch in archs}
    messages = [f"has no code for {target}, which was asked for" for target in asked - set(found)]
    messages += [f"has code for {target}, which nobody asked for" for target in set(found) - asked]
    return [_fault(where, message) for message in sorted(messages)]


def metallib_size(library: Path) -> int:
    """Return the bytes of the compiled Metal shaders in a Mach-O library; 0 without any."""
    import lief

    binary = lief.parse(str(library))
    if not isinstance(binary, lief.MachO.Binary):
        return 0
    for section in binary.sections:
        if section.name == "__metallib" and bytes(section.content[:4]) == _METALLIB_MAGIC:
            return int(section.size)
    return 0
