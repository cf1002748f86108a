"""Names of wheels, images, and the errors of the cibuildwheel engine, without running it."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from kernel_ci.abi import RuntimeWindow
from kernel_ci.abi.window import Denied
from kernel_ci.errors import BuildError, InfrastructureError, InputError, Rejected
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell, Selection, plan_folders
from kernel_ci.source import Source
from kernel_ci.toolchains.table import toolkits
from kernel_ci.wheel import names
from kernel_ci.wheel.engine import failure
from kernel_ci.wheel.images import PLATFORMS, identifier, images
from kernel_ci.wheel.stage import not_bundled
from tests.helpers import REFERENCE

CELLS = {cell.id: cell for cell in plan_folders([REFERENCE], Selection()).cells}
CPU = CELLS["relu-tvm-ffi/tvm-ffi01-cpu-x86_64-linux"]
CUDA = CELLS["relu-tvm-ffi/tvm-ffi01-cu130-x86_64-linux"]


@pytest.mark.parametrize("cell", CELLS.values(), ids=list(CELLS))
def test_every_cell_has_an_image_and_a_toolchain(cell: Cell) -> None:
    image = images().image_for(cell.platform)
    toolchain = images().toolchain_for(cell)
    if cell.platform.endswith("-darwin"):
        assert image is None
        assert toolchain is None
        return
    assert image is not None
    assert re.search(r"manylinux_2_28_(x86_64|aarch64)@sha256:[0-9a-f]{64}$", image)
    assert cell.platform.partition("-")[0] in image
    assert (toolchain is None) == (cell.backend == "cpu")
    if toolchain is not None:
        (installs,) = (line for line in toolchain.before if line.startswith("dnf install"))
        # What decides about the code that comes out has a version.
        assert re.search(r"-\d+\.\d+\.\d+", installs)


def test_the_containers_gcc_is_one_that_nvcc_takes() -> None:
    for toolchain in images().toolchain:
        if toolchain.backend == "cuda":
            (row,) = (it for it in toolkits().cuda if it.version == toolchain.version)
            found = re.search(r"gcc-toolset-(\d+)/", toolchain.compiler or "")
            assert found is not None
            assert int(found[1]) <= row.gcc
            assert f"gcc-toolset-{found[1]}-gcc-c++" in toolchain.before[-1]


def test_wheels_live_side_by_side_and_lead_back_to_their_variants() -> None:
    kernel = Kernel.read(REFERENCE)
    seen = set()
    for cell in CELLS.values():
        name, tag = names.distribution(kernel, cell), names.tag(cell)
        assert str(names.variant_of(name, tag, cell.tvm_ffi)) == cell.variant
        seen.add((name, tag))
    assert len(seen) == len(CELLS)
    assert names.distribution(kernel, CUDA) == "relu-tvm-ffi-cu130"
    assert names.tag(CUDA) == "manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("name", "tag", "release"),
    [
        ("relu", "manylinux_2_28_x86_64", "0.1.9"),
        ("relu-cu", "manylinux_2_28_x86_64", "0.1.9"),
        ("relu-cpu", "any", "0.1.9"),
        ("relu-cpu", "win_amd64", "0.1.9"),
        ("relu-cpu", "manylinux_2_28_x86_64", ""),
    ],
)
def test_names_that_lead_to_no_variant(name: str, tag: str, release: str) -> None:
    assert names.variant_of(name, tag, release) is None


def test_versions_grow_with_commits_and_uncommitted_ones_are_not_taken() -> None:
    kernel = Kernel.read(REFERENCE)
    clean = Source(digest="sha256:" + "0" * 64, commit="1" * 40, dirty=False)
    assert names.version(kernel, clean, 1_700_000_000) == "1.20231114221320"
    for source, time in (
        (clean, None),
        (clean.model_copy(update={"dirty": True}), 1_700_000_000),
        (Source(digest=clean.digest), None),
    ):
        assert names.version(kernel, source, time) == "1.dev0"


def test_the_requirement_takes_what_the_guard_admits() -> None:
    denied = Denied(version="0.1.4", reason="it is broken")
    window = RuntimeWindow(**{"built-with": "0.1.15.post2", "floor": "0.1.3", "denied": (denied,)})
    found = Requirement(names.requirement(window))
    assert found.name == "apache-tvm-ffi"
    taken = [
        version
        for version in ("0.1.2", "0.1.3", "0.1.4", "0.1.15.post2", "0.1.99", "0.2.0")
        if found.specifier.contains(version)
    ]
    assert taken == ["0.1.3", "0.1.15.post2", "0.1.99"]


def test_what_cibuildwheel_cannot_build_is_told() -> None:
    other = CPU.model_copy(update={"platform": "x86_64-windows"})
    with pytest.raises(InputError, match="builds no cpu variant for x86_64-windows"):
        identifier(other)
    newer = CUDA.model_copy(update={"backend_version": "14.0"})
    with pytest.raises(InputError, match=r"no toolchain of cuda 14\.0\n.*--engine host"):
        images().toolchain_for(newer)
    assert {cell.platform for cell in CELLS.values()} == set(PLATFORMS)


def test_drivers_and_the_runtime_are_not_bundled() -> None:
    assert not_bundled(CPU)[0] == "libtvm_ffi.so"
    for cell in CELLS.values():
        assert "libtvm_ffi.so" in not_bundled(cell)
    rocm = CELLS["relu-tvm-ffi/tvm-ffi01-rocm72-x86_64-linux"]
    assert any("amdhip64" in pattern for pattern in not_bundled(rocm))
    xpu = CELLS["relu-tvm-ffi/tvm-ffi01-xpu20253-x86_64-linux"]
    assert any("sycl" in pattern for pattern in not_bundled(xpu))


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("Building wheel...\nx.cc:1: error\n*** CMake build failed\n", BuildError),
        ("Building wheel...\nRepairing wheel...\nauditwheel: error: too recent\n", Rejected),
        (
            "Building wheel...\nRepairing wheel...\nTesting wheel...\n+ python wheel_test.py\n",
            Rejected,
        ),
        # Not the kernel's: the index or the registry did not answer.
        ("Building wheel...\nERROR: No matching distribution found\n", InfrastructureError),
        ("Testing wheel...\nERROR: No matching distribution found\n", InfrastructureError),
        ("Starting container image...\nError: no such image\n", InfrastructureError),
        ("", InfrastructureError),
    ],
)
def test_whose_fault_a_failure_is(output: str, kind: type[Exception]) -> None:
    error = failure(output, 1, CPU)
    assert type(error) is kind
    assert CPU.id in str(error)
