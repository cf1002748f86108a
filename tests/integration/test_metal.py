"""The Metal kernel, as far as a machine without Apple's compilers can tell.

Its shader is compiled as C++ through a stand-in for Apple's header and computes; its host code
is compiled for macOS, with declarations that stand in for Apple's frameworks. That says nothing
about Apple's compilers: only a Mac does.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lief
import numpy as np
import pytest

from kernel_ci import toolchains, tvm_ffi
from kernel_ci.build import host
from kernel_ci.build.description import describe
from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Plan, Selection, host_platform, plan_folders
from kernel_ci.testing.kit import DTYPES, Dtype, numbers
from kernel_ci.toolchains import Compiler, zig
from tests.helpers import REFERENCE

HERE = Path(__file__).parent / "metal"
STAND_IN = HERE / "stand_in"
GUARD = 0xA5

dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_folders([REFERENCE], Selection(only=("*-metal-*",)))


@pytest.fixture(scope="module")
def shader(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """relu.metal as a function of this machine."""
    release = tvm_ffi.fetch(plan.cells[0].tvm_ffi, host_platform())
    library = tmp_path_factory.mktemp("metal") / "libshader.so"
    command = [str(zig.executable()), "c++", "-target", zig.TARGETS[host_platform()][0]]
    command += ["-std=c++17", "-O3", "-fPIC", "-shared", "-x", "c++", "-DMETAL_KERNEL"]
    # The process dies where an access is misaligned.
    command += ["-fsanitize=alignment", "-fsanitize-trap=alignment"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-attributes"]
    command += ["-Wno-ignored-attributes", f"-I{STAND_IN}", f"-I{REFERENCE}"]
    command += ["-isystem", str(release.include), "-isystem", str(release.dlpack_include)]
    subprocess.run([*command, str(HERE / "host.cc"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).relu_metal
    function.restype = ctypes.c_bool
    pointer, offset = ctypes.c_void_p, ctypes.c_uint64
    function.argtypes = [pointer, offset, pointer, offset, ctypes.c_int64, *[ctypes.c_int] * 2]
    return function


def check(
    shader: Any, bits: np.ndarray, dtype: Dtype, *, x_offset: int = 0, out_offset: int = 0
) -> None:
    """Compute relu of bit patterns at some offsets, and check every byte of the output."""
    size = bits.size * dtype.bytes
    x, out = buffer(x_offset + size), buffer(out_offset + size)
    x[x_offset : x_offset + size] = bits.view(np.uint8)
    where = (out.ctypes.data, out_offset, x.ctypes.data, x_offset)
    assert shader(*where, bits.size, dtype.code, dtype.bits)
    values = numbers(bits, dtype)
    right = np.where((values > 0) | np.isnan(values), bits, 0).astype(dtype.pattern)
    expected = np.full_like(out, GUARD)
    expected[out_offset : out_offset + size] = right.view(np.uint8)
    np.testing.assert_array_equal(out, expected)


def buffer(size: int) -> np.ndarray:
    """Return bytes aligned like an MTLBuffer's, with some more at the end."""
    memory = np.full(size + 64 + 256, GUARD, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + size + 64]


def random_bits(count: int, dtype: Dtype) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(count).bytes(count * dtype.bytes), dtype.pattern)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits(shader: Any, dtype: str) -> None:
    check(shader, np.arange(1 << 16, dtype=np.uint16), DTYPES[dtype])


@dtypes
def test_special_values(shader: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    positive = [0, 1, kind.normal - 1, kind.normal, kind.infinity - 1, kind.infinity]
    positive += [kind.infinity + 1, kind.sign - 1]  # NaNs
    bits = [*positive, *(kind.sign | value for value in positive)]
    check(shader, np.array(bits * 5, kind.pattern), kind)


@dtypes
def test_offsets(shader: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    bits = random_bits(77, kind)
    for offset in range(41):
        check(shader, bits, kind, x_offset=offset, out_offset=offset)
        check(shader, bits, kind, x_offset=offset)
        check(shader, bits, kind, out_offset=offset)


@dtypes
@pytest.mark.parametrize("size", [*range(1, 40), 4099, 256 * 4096 * 2 + 3, 256 * 4096 * 9])
def test_sizes(shader: Any, dtype: str, size: int) -> None:
    check(shader, random_bits(size, DTYPES[dtype]), DTYPES[dtype], x_offset=8, out_offset=8)


@dtypes
def test_in_place(shader: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    x = random_bits(1001, kind).copy()
    values = numbers(x.copy(), kind)
    expected = np.where((values > 0) | np.isnan(values), x, 0)
    assert shader(x.ctypes.data, 0, x.ctypes.data, 0, x.size, kind.code, kind.bits)
    np.testing.assert_array_equal(x, expected)


def test_refused_types(shader: Any) -> None:
    assert not shader(None, 0, None, 0, 1, DTYPES["int32"].code, 32)


#: Stands in for `xcrun metal`: writes down how it was called.
METAL = """
import json, sys
from pathlib import Path
output = Path(sys.argv[sys.argv.index("-o") + 1])
output.write_text(json.dumps(sys.argv[1:]))
"""


def test_host_code_and_build_for_macos(plan: Plan, tmp_path: Path) -> None:
    """All of the build but the last step, linking with Apple's frameworks."""
    metal = tmp_path / "metal.py"
    metal.write_text(METAL)
    cell, kernel = plan.cells[0], Kernel.read(REFERENCE)
    flags = f"-target aarch64-macos.26.0 -isystem {STAND_IN}"
    languages = {"C": "cc", "OBJC": "cc", "CXX": "c++", "OBJCXX": "c++"}
    entries = {
        "CMAKE_SYSTEM_NAME": "Darwin",
        "CMAKE_SYSTEM_PROCESSOR": "arm64",
        **{f"CMAKE_{key}_COMPILER": f"{zig.executable()};{it}" for key, it in languages.items()},
        **{f"CMAKE_{key}_FLAGS_INIT": flags for key in languages},
        # A method that does not exist is only a warning in Objective-C.
        "CMAKE_OBJCXX_FLAGS_INIT": f"{flags} -Wall -Wextra -Werror",
        # Of Apple's tools; only used when installing.
        "CMAKE_INSTALL_NAME_TOOL": sys.executable,
        "KERNEL_CI_METAL": f"{sys.executable};{metal};-std=metal4.0",
        "KERNEL_CI_DESCRIPTION": str(tmp_path / "description.json"),
    }
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    compiler = Compiler(name="zig", version="", cmake=entries, environment={})
    content = describe(kernel, cell, release, compiler, "_relu_metal", tmp_path / "exports")
    Path(entries["KERNEL_CI_DESCRIPTION"]).write_text(json.dumps(content))

    build = tmp_path / "build"
    configure = ["cmake", "-S", str(host.PROJECT), "-B", str(build), "-G", "Ninja"]
    run([*configure, *(f"-D{key}={value}" for key, value in entries.items())])
    run(["cmake", "--build", str(build), "-j2", "--target", "unit_kernel_relu_metal", "metallib"])

    objects = list(build.rglob("relu_metal.mm.o*"))
    parsed = [lief.MachO.parse(path) for path in objects]
    assert [b.header.cpu_type.name for fat in parsed if fat for b in fat] == ["ARM64"]
    source = str(REFERENCE / "metal" / "relu.metal")
    air = next(build.glob("*.air"))
    assert json.loads(air.read_text()) == ["-std=metal4.0", "-c", source, "-o", str(air)]
    library = build / "kernel.metallib"
    assert json.loads(library.read_text()) == ["-std=metal4.0", str(air), "-o", str(library)]
    assert f"-sectcreate,__TEXT,__metallib,{library}" in (build / "build.ninja").read_text()


def run(command: list[str]) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="Apple's compilers are here")
def test_building_says_that_it_needs_a_mac(plan: Plan) -> None:
    with pytest.raises(InputError, match="can only be built on macOS") as caught:
        toolchains.find(plan.cells[0])
    assert "macos-26" in str(caught.value.fix)
