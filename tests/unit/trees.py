"""Folders of kernels for tests: a build.toml that uses every key, and the files it names."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
[general]
name = "good-kernel"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda", "metal", "rocm", "xpu"]
upstream = "https://git.example/org/upstream"
source = "git@git.example:org/source.git"
python-depends = ["einops", "helion", "tvm-ffi"]
kernel-depends = [{ repo-id = "org/general-dep", version = 1 }]

[general.hub]
repo-id = "org/good-kernel"
branch = "v3-test"

[general.cuda]
minver = "12.6"
maxver = "13.2"
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = [{ repo-id = "org/cuda-dep", revision = "0a1b2c" }]

[general.xpu]
python-depends = ["onednn"]
kernel-depends = [{ repo-id = "org/xpu-dep", version = 0 }]

[general.neuron]
python-depends = ["nki"]
kernel-depends = [{ repo-id = "org/neuron-dep", version = 2 }]

[general.tpu]
python-depends = []

[tvm-ffi]
src = ["binding/binding.cc", "common.h"]
include = ["."]
pyext = ["py", "json"]
cxx-flags = ["-DBINDING"]

[kernel.on_cpu]
backend = "cpu"
depends = []
src = ["cpu/one.cpp", "cpu/two.c"]
include = ["cpu/include"]
cxx-flags = ["-O2", "-DNAME=a b"]

[kernel.on_cuda]
backend = "cuda"
depends = ["cutlass_3_6"]
src = ["gpu/kernel.cu", "gpu/kernel.cuh"]
include = ["gpu"]
cxx-flags = ["-DHOST"]
cuda-capabilities = ["8.0", "9.0a", "10.0f", "12.0+PTX"]
cuda-flags = ["--use_fast_math"]
cuda-minver = "12.6"

[kernel.on_metal]
backend = "metal"
depends = ["metal-cpp"]
src = ["metal/kernel.metal", "metal/launch.mm"]
include = ["metal"]
cxx-flags = ["-DMETAL"]

[kernel.on_rocm]
backend = "rocm"
depends = []
src = ["gpu/kernel.hip"]
include = ["gpu"]
cxx-flags = ["-DROCM"]
rocm-archs = ["gfx90a", "gfx1100"]
hip-flags = ["-ffast-math"]

[kernel.on_xpu]
backend = "xpu"
depends = ["sycl_tla", "torch"]
src = ["xpu/kernel.cpp"]
include = ["xpu"]
cxx-flags = ["-DXPU"]
sycl-flags = ["-fsycl-id-queries-fit-in-int"]
"""

FILES = (
    "binding/binding.cc",
    "common.h",
    "cpu/one.cpp",
    "cpu/two.c",
    "cpu/include/one.h",
    "gpu/kernel.cu",
    "gpu/kernel.cuh",
    "gpu/kernel.hip",
    "metal/kernel.metal",
    "metal/launch.mm",
    "xpu/kernel.cpp",
    "tvm-ffi-ext/good_kernel/__init__.py",
)

#: A kernel of edition 5 for the CPU alone, with nothing that can be left out.
SMALL = """\
[general]
name = "small"
version = 0
edition = 5
license = "MIT"
backends = ["cpu"]

[tvm-ffi]
src = ["binding.cc"]

[kernel.small]
backend = "cpu"
depends = []
src = ["small.cc"]
"""

SMALL_FILES = ("binding.cc", "small.cc", "tvm-ffi-ext/small/__init__.py")


def replaced(text: str, *edits: tuple[str, str]) -> str:
    """Return a text with each `(old, new)` applied; `old` must be there exactly once."""
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def write_tree(root: Path, text: str = GOOD, files: tuple[str, ...] = FILES) -> Path:
    """Write a build.toml and the (nearly empty) files of its kernel; return the folder."""
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"// {name}\n")
    root.mkdir(exist_ok=True)
    (root / "build.toml").write_text(text)
    return root


#: The good kernel, but it needs nothing that is not in its folder.
BUILDABLE = replaced(
    GOOD,
    ('depends = ["cutlass_3_6"]', "depends = []"),
    ('depends = ["metal-cpp"]', "depends = []"),
    ('depends = ["sycl_tla", "torch"]', "depends = []"),
)
