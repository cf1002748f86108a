"""The build stamp survives what linkers and strip do, in each format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci import tvm_ffi
from kernel_ci.abi import stamp, table
from kernel_ci.audit.readers import read_library

VERSION = "0.1.13.post3"  # its header macros say 0.1.14

#: Besides the stamp something that can be dropped, and something that is called.
SOURCE = """
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
int unused() { return 1; }
extern "C" EXPORT int __tvm_ffi_f(int x) { return x; }
"""

# As a C compiler: nothing here needs libc++, which zig would first build for each target.
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target"]
HARSH = ["-O2", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"]
ELF = ["-fPIC", "-Wl,--gc-sections", "-Wl,-z,now", "-s"]
CASES = {
    "g++": (["g++", *HARSH, *ELF], "x86_64-linux", "elf"),
    "g++ lto": (["g++", *HARSH, *ELF, "-flto"], "x86_64-linux", "elf"),
    "lld": ([*ZIG, "x86_64-linux-gnu.2.28", *HARSH, *ELF], "x86_64-linux", "elf"),
    "lld lto": ([*ZIG, "x86_64-linux-gnu.2.28", *HARSH, *ELF, "-flto"], "x86_64-linux", "elf"),
    "aarch64": ([*ZIG, "aarch64-linux-gnu.2.28", *HARSH, *ELF], "aarch64-linux", "elf"),
    "macho": ([*ZIG, "aarch64-macos", *HARSH, "-s"], "aarch64-darwin", "macho"),
    "pe": ([*ZIG, "x86_64-windows-gnu", *HARSH], "x86_64-windows", "pe"),
}


def build(case: str, folder: Path, version: str = VERSION) -> Path:
    """Compile a library of the stamp and a function."""
    command = CASES[case][0]
    release = tvm_ffi.fetch(VERSION, "x86_64-linux")
    source = folder / "f.cc"
    source.write_text(SOURCE)
    output = folder / "library"
    command = [*command, f"-I{release.include}", f"-I{release.dlpack_include}"]
    command += [
        f"-D{key}={value}" for key, value in stamp.definitions(version, ["b", "error-cell"]).items()
    ]
    if case != "pe":
        sources = [str(stamp.SOURCE), str(source)]
        subprocess.run([*command, "-shared", *sources, "-o", str(output)], check=True)
        return output
    # zig would first build a C runtime for Windows, which takes minutes.
    objects = []
    for path in (stamp.SOURCE, source):
        objects.append(str(folder / f"{path.stem}.obj"))
        subprocess.run([*command, "-c", str(path), "-o", objects[-1]], check=True)
    link = [sys.executable, "-m", "ziglang", "lld-link", "/dll", "/noentry", "/nodefaultlib"]
    subprocess.run([*link, *objects, f"/out:{output}"], check=True)
    return output


@pytest.mark.parametrize("case", CASES)
def test_stamp_can_be_read(case: str, tmp_path: Path) -> None:
    facts = read_library(build(case, tmp_path))
    assert (facts.platform, facts.format) == CASES[case][1:]
    assert facts.stamp is not None
    found = stamp.Stamp.parse(facts.stamp)
    assert found.tvm_ffi == VERSION
    release = table().release(VERSION)
    assert release is not None
    assert found.header_macro == release.header_macro == "0.1.14"
    assert found.risks_ruled_out == {"b", "error-cell"}
    assert facts.functions == ("f",)
    assert stamp.SYMBOL not in facts.other_exports
    assert facts.stripped


def test_stamp_survives_strip(tmp_path: Path) -> None:
    library = build("g++", tmp_path)
    subprocess.run(["strip", "--strip-all", str(library)], check=True)
    assert read_library(library).stamp is not None


def test_no_stamp_without_a_version(tmp_path: Path) -> None:
    release = tvm_ffi.fetch(VERSION, "x86_64-linux")
    done = subprocess.run(
        ["g++", "-c", f"-I{release.include}", f"-I{release.dlpack_include}", str(stamp.SOURCE),
         "-o", str(tmp_path / "x.o")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "define KERNEL_CI_TVM_FFI_VERSION" in done.stderr
