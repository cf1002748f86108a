"""What is in fat binaries and offload bundles, against what metadata says."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.audit import archs
from kernel_ci.errors import InputError

SASS, PTX = 2, 1
SPECIFIC, FAMILY = 1 << 20, 1 << 21


def image(kind: int, arch: int, flags: int = 0, size: int = 24) -> bytes:
    """One image, with the head that nvcc 13 writes."""
    head = struct.pack(
        "<HHIQIIIIIIQ", kind, 0x101, 64, size, 0, 0, 0x10008, arch, 0, 0, 0x11 | flags
    )
    return head.ljust(64, b"\0") + b"\x7f" * size


def fatbin(*images: bytes) -> bytes:
    content = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def bundle(*names: str) -> bytes:
    data = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names))
    for name in names:
        data += struct.pack("<QQQ", 4096, 0, len(name)) + name.encode()
    return data


def test_cuda_images() -> None:
    data = fatbin(
        image(SASS, 75),
        image(SASS, 90, SPECIFIC),
        image(PTX, 120),
        image(SASS, 100, FAMILY | 1 << 24),
    )
    assert list(archs._fatbins(data + bytes(8) + fatbin(image(SASS, 80), image(3, 80)))) == [
        ("sm_75", "sm_90a", "compute_120", "sm_100f"),
        ("sm_80", "kind 3_80"),
    ]
    assert list(archs._fatbins(b"")) == []


def test_rocm_images() -> None:
    names = ("host-x86_64-unknown-linux", "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-")
    plain = bundle(*names, "hip-amdgcn-amd-amdhsa--gfx1100")
    wanted = ("gfx90a", "gfx1100")
    assert list(archs._bundles(plain.ljust(4096, b"\0") + plain)) == [wanted, wanted]
    packed = zlib.compress(plain)
    head = b"CCOB" + struct.pack("<HHIIQ", 2, 0, 24 + len(packed), len(plain), 7)
    assert list(archs._bundles(head + packed)) == [wanted]
    with pytest.raises(InputError, match="compressed"):
        list(archs._bundles(b"CCOB" + struct.pack("<HHIIQ", 2, 1, 24, 9, 7)))


@pytest.mark.parametrize("cut", [1, 20, 60, 100])
def test_damaged_fat_binaries(cut: int) -> None:
    whole = fatbin(image(SASS, 75), image(SASS, 90))
    for data in (whole[:-cut], whole[:16] + bytes(len(whole) - 16), b"x" * 64):
        with pytest.raises(struct.error):
            list(archs._fatbins(data))


def metadata(total: list[str], **sections: list[str]) -> dict[str, Any]:
    return {"backend": {"type": "cuda", "archs": total}, "kernel-ci": {"archs": sections}}


def said(
    content: dict[str, Any], *images: tuple[str, ...], backend: str = "cuda", other: str = "rocm"
) -> list[str]:
    found = {backend: images, other: ()}
    return [f"{f.level}: {f.message}" for f in archs.judge("x.so", backend, content, found)]


GOOD = ("sm_80", "sm_90a", "sm_120", "compute_120")
ASKED = ["12.0+PTX", "8.0", "9.0a"]


def test_equal() -> None:
    assert said(metadata(ASKED), GOOD) == []
    assert said(metadata(ASKED, one=ASKED), GOOD, GOOD) == []
    rocm = {"backend": {"type": "rocm", "archs": ["gfx90a"]}}
    assert said(rocm, ("gfx90a",), backend="rocm", other="cuda") == []
    assert said({}, backend="cpu") == []


def test_missing_and_surplus() -> None:
    (missing,) = said(metadata([*ASKED, "7.5"]), GOOD)
    assert missing == "error: has no code for sm_75, which metadata.json lists"
    (surplus,) = said(metadata(["8.0", "9.0a", "12.0"]), GOOD)
    assert surplus == "error: has code for compute_120, which metadata.json does not list"
    # 9.0a is not 9.0: machine code of the one does not run everywhere that the other does.
    assert len(said(metadata(["9.0"]), ("sm_90a",))) == 2
    (nothing,) = said(metadata(["8.0"]))
    assert "no code for sm_80" in nothing


def test_one_source_file_lacks_an_architecture() -> None:
    content = metadata(ASKED, one=ASKED, two=["8.0"])
    assert said(content, GOOD, ("sm_80",)) == []
    (found,) = said(content, GOOD, ("sm_90a",))
    assert found.startswith("error: a source file was compiled for sm_90a")


def test_contradiction_and_silence() -> None:
    (found,) = said(metadata(ASKED, one=["8.0"]), GOOD)
    assert "is not the sum" in found
    (found,) = said({"backend": {"type": "cuda"}}, GOOD)
    assert found.startswith("warning: metadata.json states no architectures")
    assert "sm_90a" in found


def test_code_for_another_backend() -> None:
    found = {"cuda": (("sm_80",),), "rocm": ()}
    (finding,) = archs.judge("x.so", "cpu", {}, found)
    assert finding.level == "error"
    assert "holds cuda code in a cpu variant" in finding.message


def test_a_file_without_such_sections() -> None:
    library = Path(struct.__file__).parent / "lib-dynload"
    some = next(library.glob("_struct*.so"), None)
    if some is None:
        pytest.skip("this Python has its extensions built in")
    assert archs.read(some, "cuda") == archs.read(some, "rocm") == ()
