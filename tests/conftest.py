"""What several tests share: one real run of the reference kernel, and a tiny kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from tests.helpers import HOST_VARIANT, Run, committed, kernel_ci


@pytest.fixture(scope="session")
def reference_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One pipeline of the reference kernel, shared by all workers; copy it to change it."""
    base = tmp_path_factory.getbasetemp()
    # With xdist every worker has a folder of its own inside the run's.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reference-run"
    with FileLock(f"{shared}.lock"):
        output = shared / "output"
        if not output.exists():
            done = kernel_ci(
                "pipeline", committed(shared / "source"), "--only", HOST_VARIANT,
                "-o", shared / "run", "--hub", shared / "hub",
            )  # fmt: skip
            assert done.status == 0, done.out + done.err
            output.write_text(done.out)
    return Run(shared / "run", shared / "hub", output.read_text())


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where `tests.probes` keeps compiled libraries, for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "forge"


BINDING = """
#include <tvm/ffi/tvm_ffi.h>
void negate(tvm::ffi::TensorView out, tvm::ffi::TensorView x);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(negate, negate);
"""

SOURCE = """
#include <tvm/ffi/tvm_ffi.h>
void negate(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  if (out.ndim() != 1 || x.ndim() != 1 || out.size(0) != x.size(0)) {
    TVM_FFI_THROW(ValueError) << "out and x must be vectors of one length";
  }
  for (int64_t i = 0; i < x.size(0); ++i) {
    static_cast<float*>(out.data_ptr())[i] = -static_cast<const float*>(x.data_ptr())[i];
  }
}
"""

PACKAGE = """
from ._ops import ops


def negate(x, out):
    ops.negate(out, x)
    return out


__all__ = ["negate"]
"""

SUITE = """
import numpy as np


def test_negate(kernel):
    x = np.arange(5, dtype=np.float32)
    assert (kernel.negate(x, np.empty_like(x)) == -x).all()
"""

BUILD_TOML = """
[general]
name = "negate"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "kernel-ci-tests/negate"

[tvm-ffi]
src = ["binding.cc"]

[kernel.negate]
backend = "cpu"
depends = []
src = ["negate.cc"]
"""


def write_tiny(root: Path, changes: Mapping[str, str], name: str = "negate") -> Path:
    """Write the tiny kernel to a folder and return that.

    Args:
        root: The folder.
        changes: Further files, or other content of its own ones, by path.
        name: The kernel's name; its function is `negate` in any case.
    """
    files = {
        "build.toml": BUILD_TOML.replace("negate", name).replace(f"{name}.cc", "negate.cc"),
        "binding.cc": BINDING,
        "negate.cc": SOURCE,
        f"tvm-ffi-ext/{name}/__init__.py": PACKAGE,
        "tests/test_negate.py": SUITE,
    }
    for file, content in {**files, **changes}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(content)
    return root


@pytest.fixture
def tiny_kernel(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small kernel and returns its folder.

    Keyword arguments replace the content of single files: `suite`, `source`, `package`,
    `build_toml`.
    """

    def write(
        suite: str = SUITE,
        source: str = SOURCE,
        package: str = PACKAGE,
        build_toml: str = BUILD_TOML,
    ) -> Path:
        changes = {
            "build.toml": build_toml,
            "negate.cc": source,
            "tvm-ffi-ext/negate/__init__.py": package,
            "tests/test_negate.py": suite,
        }
        return write_tiny(tmp_path / "negate", changes)

    return write
