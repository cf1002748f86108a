"""The audit stage: the receipt tells under which releases of tvm-ffi a variant worked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_ci import abi
from kernel_ci.audit.variant import audit
from kernel_ci.receipts import Receipt
from tests.helpers import HOST_VARIANT, Run, committed, kernel_ci

#: Passes under the release that is installed, and fails under an older one.
SUITE = """
import numpy as np
import pytest
import tvm_ffi

pytestmark = pytest.mark.kernels_ci


def test_negate(kernel):
    x = np.arange(5, dtype=np.float32)
    assert (kernel.negate(x, np.empty_like(x)) == -x).all()


def test_release():
    assert not tvm_ffi.__version__.startswith("0.1.0")
"""


def receipt(folder: Path, kernel: str, variant: str) -> Receipt:
    return Receipt.read(folder / kernel / "receipts" / variant / "audit.json")


def test_reference_kernel_is_verified_at_the_edges(reference_run: Run) -> None:
    found = receipt(reference_run.folder, "relu-tvm-ffi", HOST_VARIANT)
    directory = reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT
    stated = audit(directory).variants[0].stated
    assert stated is not None
    assert found.outcome == "passed"
    assert found.findings == ()
    assert found.runtimes == abi.epoch_runtimes(stated)
    assert (found.runtimes[0], stated.floor) == ("0.1.0", "0.1.0")


def test_failure_under_the_floor(tiny_kernel: Callable[..., Path], tmp_path: Path) -> None:
    kernel, plan = tiny_kernel(suite=SUITE), tmp_path / "run" / "plan.json"
    assert kernel_ci("plan", kernel, "--only", HOST_VARIANT, "-o", plan).status == 0
    done = kernel_ci("build", plan)
    assert done.status == 0, done.out + done.err
    done = kernel_ci("audit", plan.parent, "--plan", plan, "--runtimes", "floor,0.1.9")
    assert done.status == 1
    found = receipt(plan.parent, "negate", HOST_VARIANT)
    assert found.outcome == "failed"
    assert found.runtimes == ("0.1.9",)
    (finding,) = found.findings
    assert finding.startswith(f"runtime: {HOST_VARIANT}: fails under tvm-ffi 0.1.0: test_negate")
    # Not being run is no failure, and is told.
    done = kernel_ci("audit", plan.parent, "--plan", plan, "--runtimes", "none")
    assert done.status == 0, done.out
    found = receipt(plan.parent, "negate", HOST_VARIANT)
    assert (found.outcome, found.runtimes) == ("passed", ())
    assert found.findings == ("runtimes: not run under any tvm-ffi: nobody asked for it",)


def test_what_cannot_run_here_is_told(tmp_path: Path) -> None:
    arm = "tvm-ffi01-cpu-aarch64-linux"
    other = arm if arm != HOST_VARIANT else "tvm-ffi01-cpu-x86_64-linux"
    plan = tmp_path / "run" / "plan.json"
    done = kernel_ci("plan", committed(tmp_path), "--only", other, "-o", plan)
    assert done.status == 0, done.err
    assert kernel_ci("build", plan).status == 0
    assert kernel_ci("audit", plan.parent, "--plan", plan).status == 0
    found = receipt(plan.parent, "relu-tvm-ffi", other)
    assert found.runtimes == ()
    (finding,) = found.findings
    assert "not run under any tvm-ffi: this machine is" in finding
