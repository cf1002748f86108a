"""The XPU kernel, executed: its SYCL source is compiled at run time for SYCL's CPU device.

Needs a GCC, and PyPI's wheels of Intel's SYCL and OpenCL runtimes (1.4 GB, kept in the cache).
The form that icpx compiles ahead of time needs a oneAPI installation, and is not covered here.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernel_ci import cache, toolchains
from kernel_ci.audit.variant import audit
from kernel_ci.build import build_cell
from kernel_ci.layout import variant_directory
from kernel_ci.plan import Selection, plan_folders
from kernel_ci.testing.suite import run_suite
from kernel_ci.toolchains import Compiler, sysroot
from tests.helpers import REFERENCE

SUITE = Path(__file__).parent / "xpu_suite"

#: Of the oneAPI version that the support matrix builds for.
WHEELS = ("intel-sycl-rt==2025.3.3", "intel-opencl-rt==2025.3.3")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="Intel's SYCL runtime is for Linux on x86_64",
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]


@pytest.fixture(scope="module")
def runtime() -> Path:
    """The folder of SYCL's runtime, its headers, and a CPU device."""
    target = cache.root() / "sycl" / WHEELS[0].replace("==", "-")
    with cache.lock(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
                # --target would lose the wheels' own lib folders.
                command += ["--ignore-installed", "--no-warn-script-location", "--prefix"]
                subprocess.run([*command, f"{scratch}/sycl", *WHEELS], check=True)
                Path(scratch, "sycl").rename(target)
    return target


@pytest.fixture(scope="module")
def variant(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The variant directory, with the library as a compiler without SYCL makes it."""
    flags = " ".join([*sysroot.flags("x86_64"), f"-isystem {runtime}/include"])
    gcc = Compiler(
        name="g++",
        version="",
        cmake={
            "CMAKE_C_COMPILER": "gcc",
            "CMAKE_CXX_COMPILER": "g++",
            "CMAKE_C_FLAGS_INIT": flags,
            "CMAKE_CXX_FLAGS_INIT": flags,
        },
        environment={},
        link=(
            "-static-libstdc++",
            f"{runtime}/lib/libsycl.so",
            "-Wl,--no-as-needed,-lpthread,--as-needed",
        ),
    )
    folder = tmp_path_factory.mktemp("xpu")
    plan = plan_folders([REFERENCE], Selection(only=("*-xpu*",)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchains, "find", lambda cell, override: gcc)
        receipt = build_cell(plan, plan.cells[0], folder)
    assert receipt.findings == ()
    return variant_directory(folder, plan.cells[0])


def test_library_is_as_portable_as_all_others(variant: Path) -> None:
    report = audit(variant)
    errors = [finding for finding in report.findings if finding.level == "error"]
    # A compiler without SYCL makes no code for devices, and the audit has to see that.
    assert [(error.check, error.message) for error in errors] == [
        ("archs", "has no code for spir64, which was asked for"),
        ("archs", "has no code for spir64_gen, which was asked for"),
    ]


def test_kernel_computes(runtime: Path, variant: Path, tmp_path: Path) -> None:
    helper = tmp_path / "libusm.so"
    command = ["g++", "-std=c++17", "-w", "-fPIC", "-shared", "-isystem", f"{runtime}/include"]
    command += [str(SUITE / "usm.cc"), "-o", str(helper), f"{runtime}/lib/libsycl.so"]
    subprocess.run(command, check=True)
    result = run_suite(
        SUITE,
        # The client takes "xpu" only where torch knows such a device, and loads any directory.
        backend="cpu",
        variant=variant,
        environment={
            "KERNEL_CI_TEST_USM": str(helper),
            "LD_LIBRARY_PATH": f"{runtime}/lib",
            "OCL_ICD_FILENAMES": f"{runtime}/lib/libintelocl.so",
        },
    )
    assert result.findings == (), result.output
    assert result.counts.passed > 100
    assert not result.skips
