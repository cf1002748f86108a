"""Ten kernels with one planted fault each, and the case of the kit that catches it.

The faults of accelerators run on a stand-in (tests/kernels/wrong/stand_in.h), and on CUDA where
a device is. A missing architecture is caught by the audit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from kernel_ci import tvm_ffi
from kernel_ci.audit import archs
from kernel_ci.devices import why_not
from kernel_ci.matrix import Matrix
from kernel_ci.plan import host_platform
from kernel_ci.testing.suite import SuiteResult, run_suite
from tests.helpers import HOST_VARIANT, ROOT, kernel_ci

WRONG = ROOT / "tests" / "kernels" / "wrong"

ON_ACCELERATORS = {
    "default_stream": "test_the_stream_of_tvm_ffi",
    "no_guard": "test_a_second_device",
    "zero_size": "test_no_elements_then_some[float32-(0,)]",
}


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The variant with all the faults, built once for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wrong-kernels"
    built = shared / "wrong" / "build" / HOST_VARIANT
    with FileLock(f"{shared}.lock"):
        if not built.exists():
            plan = shared / "plan.json"
            for arguments in (
                ("plan", WRONG, "--only", HOST_VARIANT, "-o", plan),
                ("build", plan, "-o", shared),
            ):
                done = kernel_ci(*arguments)
                assert done.status == 0, done.out + done.err
    return built


def run(variant: Path, fault: str, *, quick: bool = True, backend: str = "cpu") -> SuiteResult:
    return run_suite(
        WRONG / "tests",
        backend=backend,
        variant=variant,
        quick=quick,
        environment={"WRONG_KERNEL": fault},
    )


def caught(result: SuiteResult, case: str) -> bool:
    return any(finding.startswith(f"test_relu.py::TestRelu::{case}") for finding in result.findings)


def test_the_right_kernel(variant: Path) -> None:
    result = run(variant, "none", quick=False)
    assert result.passed, result.output
    assert result.counts.passed > 150
    assert (result.counts.skipped, result.skips) == (0, ())
    assert len(result.not_covered) == result.counts.not_covered
    assert (
        "test_relu.py::TestRelu::test_a_read_only_output: left out by the suite: "
        "TVM FFI's TensorView does not tell"
    ) in result.not_covered
    assert (
        "test_relu.py::TestRelu::test_the_stream_of_tvm_ffi: the backend cpu has no streams"
    ) in result.not_covered


def test_the_right_kernel_on_the_stand_in(variant: Path) -> None:
    result = run(variant, "none_there")
    assert result.passed, result.output
    covered = "\n".join(result.not_covered)
    assert "::test_the_stream_of_tvm_ffi:" not in covered
    assert "::test_a_second_device:" not in covered


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("nan_lost", "test_special_values[NaN-float32]"),
        ("tail", "test_sizes[float16]"),
        ("non_contiguous", "test_strides[x-transposed]"),
        ("wrong_dtype", "test_other_dtypes[int32]"),
        *ON_ACCELERATORS.items(),
    ],
)
def test_caught(variant: Path, fault: str, case: str) -> None:
    assert caught(run(variant, fault), case)


def test_int_sizes(variant: Path) -> None:
    assert caught(run(variant, "int_sizes", quick=False), "test_more_than_2_to_the_31_elements")
    # No other case can tell.
    assert run(variant, "int_sizes").passed


@pytest.mark.skipif(not host_platform().startswith("x86_64"), reason="any address can be loaded")
def test_misaligned_vectors(variant: Path) -> None:
    (finding,) = run(variant, "misaligned").findings
    case = "test_relu.py::TestRelu::test_views_at_every_offset"
    assert finding.startswith(f"the process died by SIGSEGV after {case}[")


@pytest.fixture
def cuda_variant(variant: Path, tmp_path: Path) -> Path:
    """The faults of accelerators, compiled by nvcc: machine code and PTX for 8.0."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("not covered here: needs nvcc")
    on_cuda = tmp_path / "cuda"
    shutil.copytree(variant, on_cuda)
    metadata = json.loads((on_cuda / "metadata.json").read_text())
    metadata["backend"] = {"type": "cuda", "archs": ["8.0+PTX"]}
    (on_cuda / "metadata.json").write_text(json.dumps(metadata))
    source = tmp_path / "relu.cu"
    shutil.copyfile(WRONG / "relu.cc", source)
    release = tvm_ffi.fetch(Matrix.read().tvm_ffi.build, host_platform())
    (library,) = on_cuda.glob("*.so")
    command = [nvcc, "-std=c++17", "-O2", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
    # The PTX is for devices that are newer.
    command += ["-gencode", "arch=compute_80,code=[sm_80,compute_80]", "-DCUDA_KERNEL"]
    command += [f"-I{release.include}", f"-I{release.dlpack_include}"]
    command += [str(source), str(release.library), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr
    return on_cuda


def test_a_missing_architecture(cuda_variant: Path) -> None:
    (library,) = cuda_variant.glob("*.so")
    found = {"cuda": archs.read(library, "cuda")}

    def messages(*listed: str) -> list[str]:
        metadata = {"backend": {"type": "cuda", "archs": [*listed]}}
        return [item.message for item in archs.judge("it", "cuda", metadata, found)]

    assert messages("8.0+PTX") == []
    assert messages("8.0+PTX", "9.0") == ["has no code for sm_90, which metadata.json lists"]


def test_on_cuda(cuda_variant: Path) -> None:
    if (reason := why_not(host_platform(), "cuda")) is not None:
        pytest.skip(f"not covered here, but compiled: {reason}")
    right = run(cuda_variant, "none_there", backend="cuda")
    assert right.passed, right.output
    uncovered = "\n".join(right.not_covered)
    for fault, case in ON_ACCELERATORS.items():
        # A second device may not be there.
        if f"::{case.partition('[')[0]}:" not in uncovered:
            assert caught(run(cuda_variant, fault, backend="cuda"), case), fault
