"""NumPy's arrays beyond the kit's cases, and loading without any framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernel_ci.testing.kit import not_covered

pytestmark = pytest.mark.kernels_ci


@pytest.fixture(autouse=True)
def on_the_cpu(kit_device: Any) -> None:
    if not kit_device.numpy:
        not_covered(f"NumPy's arrays are not on {kit_device.backend} devices")


def test_subclasses_become_arrays(kernel: Any) -> None:
    class Subclass(np.ndarray):
        pass

    x = np.array([-1, 1], np.float32)
    result = kernel.relu(x.view(Subclass))
    assert type(result) is np.ndarray
    assert list(result) == [0, 1]
    assert not np.shares_memory(result, x)


@pytest.mark.parametrize(
    ("dtype", "neg_inf"), [("i2", -1 << 10), ("i4", -1 << 23), ("i8", -1 << 52)]
)
def test_large_arrays_at_any_alignment(kernel: Any, dtype: str, neg_inf: int) -> None:
    # From 16 MiB on the CPU writes past its caches, in vectors; the ends are done singly.
    bits = np.dtype(dtype)
    numel = (16 << 20) // bits.itemsize + 5
    # Every kind of number is among random bits, NaNs included.
    source = np.frombuffer(np.random.default_rng(1).bytes((numel + 8) * bits.itemsize), bits)
    memory = np.empty(numel + 16, bits)
    number = f"f{bits.itemsize}"
    for x_offset, out_offset in ((0, 0), (1, 0), (0, 1), (3, 7)):
        x = source[x_offset : x_offset + numel]
        memory[:] = 7
        out = memory[out_offset : out_offset + numel]
        kernel.relu(x.view(number), out=out.view(number))
        assert np.array_equal(out, np.where(x > neg_inf, x, 0))
        assert (memory[:out_offset] == 7).all()
        assert (memory[out_offset + numel :] == 7).all()


def test_a_read_only_input(kernel: Any) -> None:
    x = np.array([-1, 1], np.float32)
    x.setflags(write=False)
    assert list(kernel.relu(x)) == [0, 1]


def test_a_read_only_output(kernel: Any) -> None:
    x, out = np.ones(2, np.float32), np.full(2, 7, np.float32)
    kernel.relu(x, out=x)  # From the second call on, arrays go a shorter way.
    out.setflags(write=False)
    # NumPy before 2.1 refuses to export it; later ones say that it is read-only.
    with pytest.raises(ValueError, match=r"relu: `out` .*(read-only|readonly)"):
        kernel.relu(x, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", [np.dtype("f4").newbyteorder(), "O", "U3", "M8[s]"], ids=str)
def test_what_numpy_does_not_export(kernel: Any, dtype: Any) -> None:
    x = np.zeros(3, dtype)
    for out in (None, x, x):  # The last one goes a shorter way.
        with pytest.raises(ValueError, match="relu: `x` cannot be exported through DLPack: "):
            kernel.relu(x, out=out)


def test_tensors_of_tvm_ffi_need_an_output(kernel: Any) -> None:
    import tvm_ffi

    with pytest.raises(TypeError, match="relu: pass `out`"):
        kernel.relu(tvm_ffi.from_dlpack(np.zeros(3, np.float32)))


def test_loading_needs_no_framework(kernel: Any) -> None:
    # In a process where none can be imported (tvm-ffi by itself imports torch where it can).
    program = """
import sys
from pathlib import Path
sys.modules.update({"torch": None, "jax": None, "numpy": None})
import kernels
kernel = kernels.get_local_kernel(Path(sys.argv[1]))
print(kernel.relu.__name__, kernel.has_torch, kernel.has_jax, hasattr(kernel, "layers"))
"""
    command = [sys.executable, "-B", "-c", program, str(Path(kernel.__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("relu False False False\n", 0), done.stderr


def test_what_the_module_offers(kernel: Any) -> None:
    assert kernel.__all__ == ["layers", "relu"]
    with pytest.raises(AttributeError, match="has no attribute 'relu6'"):
        kernel.relu6  # noqa: B018
