"""Which GPU architectures a library really has code for, against what was asked.

Architectures are called as their compilers call them: `sm_90a` is machine code for CUDA's 9.0a,
`compute_90` is PTX, which newer GPUs can translate, and `gfx90a` is ROCm's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_ci.audit import archs_xpu
from kernel_ci.audit.facts import LibraryFacts
from kernel_ci.audit.report import Finding
from kernel_ci.errors import InputError
from kernel_ci.toolchains.archs import PTX, merge

if TYPE_CHECKING:
    from kernel_ci.plan import Cell

#: Backend -> the ELF section that holds its code.
_SECTIONS = {"cuda": ".nv_fatbin", "rocm": ".hip_fatbin"}

# Of CUDA's fat binaries, as nvcc 13.0 and 13.2 write them (cuobjdump lists the same, but for the
# families, which it does not tell apart): a head, then for each image a head of its own.
_FATBIN = struct.Struct("<IHHQ")  # magic, version, size of the head, size of what follows
_FATBIN_MAGIC = 0xBA55ED50
_IMAGE = struct.Struct("<HHIQ")  # kind, version, size of the head, size of the image
_IMAGE_KINDS = {1: "compute", 2: "sm"}
_IMAGE_ARCH, _IMAGE_FLAGS = 28, 40  # offsets in the image's head: u32, u64
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 1 << 20, 1 << 21

# Of clang's offload bundles (ClangOffloadBundler documentation of LLVM).
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_ALIGNMENT = 4096

_REBUILD = "build it again; a kernel's own flags must not choose architectures"

#: The fat binaries of a library, one a source file, and the images in each.
Images = tuple[tuple[str, ...], ...]


def audit(
    directory: Path,
    backend: str | None,
    metadata: Mapping[str, Any] | None,
    libraries: Sequence[LibraryFacts],
) -> list[Finding]:
    """Judge the GPU code of a variant directory's libraries.

    Args:
        directory: The variant directory.
        backend: The backend in its name, None where it has no variant's name.
        metadata: Its decoded metadata.json, if that could be read.
        libraries: Its libraries.
    """
    findings: list[Finding] = []
    # What kernel-ci did not build states no devices, and there is nothing to compare with.
    devices = _devices(metadata or {}) if backend == "xpu" else ()
    for library in libraries:
        if library.format != "elf":
            continue
        if devices:
            targets = archs_xpu.sycl_targets(directory / library.path)
            findings += archs_xpu.judge_sycl(library.path, devices, targets)
        try:
            found = {key: read(directory / library.path, key) for key in _SECTIONS}
        except InputError as error:
            findings.append(
                Finding(
                    check="archs",
                    level="error",
                    where=library.path,
                    message=error.what,
                    fix=error.fix or "build the library again",
                )
            )
            continue
        findings += judge(library.path, backend, metadata or {}, found)
    return findings


def judge(
    where: str, backend: str | None, metadata: Mapping[str, Any], found: Mapping[str, Images]
) -> Iterator[Finding]:
    """Compare what is in a library with what its metadata says.

    Args:
        where: The library, for messages.
        backend: The variant's backend, None where nothing tells.
        metadata: The decoded metadata.json.
        found: The library's fat binaries, by backend.
    """

    def fault(level: Any, message: str, fix: str) -> Finding:
        return Finding(check="archs", level=level, where=where, message=message, fix=fix)

    for other in found:
        if other != backend and found[other] and backend is not None:
            yield fault("error", f"holds {other} code in a {backend} variant", "build it again")
    if backend not in _SECTIONS:
        return
    images = {image for images in found[backend] for image in images}
    stated = _lists(metadata)
    if stated is None:
        yield fault(
            "warning",
            "metadata.json states no architectures (backend.archs); the library has"
            f" {', '.join(_sorted(images)) or 'none'}",
            "state them, so that it can be told which GPUs a variant is for",
        )
        return
    total, sections = stated
    missing, surplus = expected(total) - images, images - expected(total)
    if missing:
        yield fault(
            "error",
            f"has no code for {', '.join(_sorted(missing))}, which metadata.json lists",
            _REBUILD,
        )
    if surplus:
        yield fault(
            "error",
            f"has code for {', '.join(_sorted(surplus))}, which metadata.json does not list",
            _REBUILD,
        )
    if sections and set(merge(sections.values())) != set(total):
        yield fault(
            "error",
            "backend.archs of metadata.json is not the sum of its kernel-ci.archs",
            "build it again",
        )
    elif not missing and not surplus and sections:
        yield from _single_files(where, found[backend], sections)


def _single_files(
    where: str, found: Images, sections: Mapping[str, tuple[str, ...]]
) -> Iterator[Finding]:
    """Find a source file that lacks what others have: the library as a whole does not show it."""
    allowed = [expected(archs) for archs in sections.values()]
    for images in found:
        if set(images) not in allowed:
            yield Finding(
                check="archs",
                level="error",
                where=where,
                message=f"a source file was compiled for {', '.join(_sorted(images)) or 'nothing'},"
                " which is what no section of build.toml asks for",
                fix=_REBUILD,
            )


def judge_cell(cell: Cell, metadata: Mapping[str, Any]) -> list[Finding]:
    """Compare what metadata.json says with what the plan asks for."""
    if cell.backend == "xpu":
        key, listed = "kernel-ci.archs", _devices(metadata)
    elif cell.backend in _SECTIONS:
        lists = _lists(metadata)
        key, listed = "backend.archs", lists[0] if lists else ()
    else:
        return []
    if set(listed) == set(cell.archs):
        return []
    return [
        Finding(
            check="archs",
            level="error",
            where="metadata.json",
            message=f"{key} is {', '.join(listed) or 'missing'};"
            f" the plan asks for {', '.join(cell.archs)}",
            fix="build the cell again",
        )
    ]


def expected(archs: Collection[str]) -> set[str]:
    """Return the images that a list such as `8.0`, `9.0+PTX` or `gfx90a` stands for."""
    images = set()
    for arch in archs:
        if arch.startswith("gfx"):
            images.add(arch)
            continue
        number = arch.removesuffix(PTX).replace(".", "")
        images.add(f"sm_{number}")
        if arch.endswith(PTX):
            images.add(f"compute_{number}")
    return images


def read(path: Path, backend: str) -> Images:
    """Return the fat binaries in an ELF library and the images in each.

    Args:
        path: The library.
        backend: `cuda` or `rocm`.

    Raises:
        InputError: They cannot be read.
    """
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(_SECTIONS[backend])
        data = section.data() if section is not None else b""
    try:
        return tuple(_fatbins(data) if backend == "cuda" else _bundles(data))
    except (struct.error, IndexError, UnicodeDecodeError, zlib.error):
        raise InputError(f"its section {_SECTIONS[backend]} is damaged", where=path) from None


def _fatbins(data: bytes) -> Iterator[tuple[str, ...]]:
    """Read CUDA's fat binaries; each begins at a multiple of 8."""
    at = 0
    while at + _FATBIN.size <= len(data):
        magic, _, head, size = _FATBIN.unpack_from(data, at)
        if magic == 0:  # between two of them
            at += 8
            continue
        if magic != _FATBIN_MAGIC or at + head + size > len(data):
            raise struct.error("no fat binary")
        yield tuple(_cuda_images(data[at + head : at + head + size]))
        at += -(-(head + size) // 8) * 8


def _cuda_images(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        kind, _, head, size = _IMAGE.unpack_from(data, at)
        (arch,) = struct.unpack_from("<I", data, at + _IMAGE_ARCH)
        (flags,) = struct.unpack_from("<Q", data, at + _IMAGE_FLAGS)
        suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
        yield f"{_IMAGE_KINDS.get(kind, f'kind {kind}')}_{arch}{suffix}"
        if head < _IMAGE.size:
            raise struct.error("no image")
        at += head + size


def _bundles(data: bytes) -> Iterator[tuple[str, ...]]:
    """Read clang's offload bundles; each begins at a multiple of 4096."""
    for at in range(0, len(data), _ALIGNMENT):
        if data.startswith(_COMPRESSED_MAGIC, at):
            yield tuple(_bundle(_decompressed(data[at:])))
        elif data.startswith(_BUNDLE_MAGIC, at):
            yield tuple(_bundle(data[at:]))


def _bundle(data: bytes) -> Iterator[str]:
    at = len(_BUNDLE_MAGIC)
    (count,) = struct.unpack_from("<Q", data, at)
    at += 8
    for _ in range(count):
        _, _, length = struct.unpack_from("<QQQ", data, at)
        at += 24
        # E.g. hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-, or host-x86_64-…
        name = data[at : at + length].decode("ascii")
        at += length
        if not name.startswith("host-"):
            yield name.partition(":")[0].rpartition("-")[2]


def _decompressed(data: bytes) -> bytes:
    """Return a compressed bundle's content; only zlib's method needs nothing that is not here."""
    version, method = struct.unpack_from("<HH", data, 4)
    # Versions 2 and 3 have the file's size before that of the content, 3 as 64-bit numbers.
    head = {1: 20, 2: 24, 3: 32}.get(version)
    if head is None or method != 0:
        raise InputError(
            "its code objects are compressed in a way that cannot be read here",
            fix='build with hip-flags = ["--no-offload-compress"]',
        )
    return zlib.decompressobj().decompress(data[head:])


def _lists(
    metadata: Mapping[str, Any],
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]] | None:
    """Return the architectures that metadata states, in total and a section of build.toml."""
    backend = metadata.get("backend")
    total = backend.get("archs") if isinstance(backend, Mapping) else None
    if not isinstance(total, list) or not all(isinstance(arch, str) for arch in total):
        return None
    return tuple(total), _sections(metadata)


def _sections(metadata: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the architectures that metadata states for each section of build.toml."""
    own = metadata.get("kernel-ci")
    sections = own.get("archs") if isinstance(own, Mapping) else None
    if not isinstance(sections, Mapping):
        return {}
    return {
        str(name): tuple(map(str, archs))
        for name, archs in sections.items()
        if isinstance(archs, list)
    }


def _devices(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the devices that an XPU variant's metadata states, of all sections; sorted."""
    return tuple(sorted(merge(_sections(metadata).values())))


def _sorted(images: Collection[str]) -> list[str]:
    return sorted(images, key=lambda image: (image.partition("_")[0], len(image), image))
