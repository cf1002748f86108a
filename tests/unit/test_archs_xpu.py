"""The code for accelerators in XPU and Metal libraries, read out of real ELF and Mach-O files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_ci.audit.archs_xpu import audit_metal, judge_sycl, metallib_size, sycl_targets
from kernel_ci.kernel import Kernel
from kernel_ci.toolchains import zig
from tests.helpers import REFERENCE

SPIRV = b"\x03\x02\x23\x07" + bytes(16)


def compile_with(
    tmp_path: Path, target: str, sections: dict[str, bytes], *, flags: tuple[str, ...] = ()
) -> Path:
    """Return an object with the given sections."""
    lines = []
    for index, (name, data) in enumerate(sections.items()):
        file = tmp_path / f"{index}.bin"
        file.write_bytes(data)
        lines.append(f'.section {name}\n.incbin "{file}"')
    source, made = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text("\n".join([*lines, ""]))
    command = [str(zig.executable()), "cc", "-target", target, "-c", str(source), "-o", str(made)]
    subprocess.run([*command, *flags], check=True)
    return made


def elf(tmp_path: Path, **targets: bytes) -> Path:
    sections = {
        f'"__CLANG_OFFLOAD_BUNDLE__sycl-{name}","a",@progbits': data
        for name, data in targets.items()
    }
    return compile_with(tmp_path, "x86_64-linux-gnu.2.28", sections)


def test_sycl_targets(tmp_path: Path) -> None:
    assert sycl_targets(elf(tmp_path, spir64=SPIRV, spir64_gen=b"\x7fELF")) == (
        "spir64",
        "spir64_gen",
    )


def test_a_library_without_device_code(tmp_path: Path) -> None:
    assert sycl_targets(elf(tmp_path)) == ()


def test_what_is_no_code_does_not_count(tmp_path: Path) -> None:
    assert sycl_targets(elf(tmp_path, spir64=b"nothing", spir64_gen=b"")) == ()


@pytest.mark.parametrize(
    ("found", "messages"),
    [
        (("spir64", "spir64_gen"), []),
        (("spir64",), ["has no code for spir64_gen, which was asked for"]),
        (
            ("spir64", "spir64_gen", "native_cpu"),
            ["has code for native_cpu, which nobody asked for"],
        ),
    ],
)
def test_what_was_asked(found: tuple[str, ...], messages: list[str]) -> None:
    findings = judge_sycl("x.so", ("pvc", "xe-lpg", "spir64"), found)
    assert [finding.message for finding in findings] == messages


def test_metallib(tmp_path: Path) -> None:
    good = compile_with(tmp_path, "aarch64-macos", {"__TEXT,__metallib": b"MTLB" + bytes(60)})
    assert metallib_size(good) == 64
    bad = compile_with(tmp_path, "aarch64-macos", {"__TEXT,__metallib": bytes(64)})
    assert metallib_size(bad) == 0
    assert metallib_size(elf(tmp_path, spir64=SPIRV)) == 0


def test_a_metal_variant_without_its_shaders(tmp_path: Path) -> None:
    kernel = Kernel.read(REFERENCE)
    made = compile_with(tmp_path, "aarch64-macos", {"__TEXT,__metallib": bytes(64)})
    (finding,) = audit_metal(kernel, tmp_path, [made.name])
    assert (finding.level, finding.message) == (
        "error",
        "has no compiled Metal shaders (__TEXT,__metallib)",
    )
    compile_with(tmp_path, "aarch64-macos", {"__TEXT,__metallib": b"MTLB" + bytes(60)})
    assert audit_metal(kernel, tmp_path, [made.name]) == []
