"""relu on SYCL's CPU device, through tensors that DLPack calls oneAPI's.

`tests/integration/test_xpu.py` has this suite run in a process that finds SYCL's runtime.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from kernel_ci.testing.kit import DTYPES, Array, Buffer, Device, Elementwise, Host, make

ONEAPI = (14, 0)

_usm = ctypes.CDLL(os.environ["KERNEL_CI_TEST_USM"])
_usm.usm_queue.restype = ctypes.c_void_p
_usm.usm_queue.argtypes = (ctypes.c_int,)
_usm.usm_allocate.restype = ctypes.c_void_p
_usm.usm_allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_usm.usm_free.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
_usm.usm_copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_usm.usm_wait.argtypes = (ctypes.c_void_p,)
_usm.usm_delay.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def new_queue(*, in_order: bool = True) -> int:
    """Return the address of a new queue; all queues of the device share one context."""
    return int(_usm.usm_queue(in_order))


class UsmBuffer(Buffer):
    """Bytes of the device, as USM memory."""

    def __init__(self, queue: int, size: int):
        self.queue = queue
        self.size = size
        self.address = _usm.usm_allocate(queue, max(size, 1))
        assert self.address, f"{size} bytes could not be allocated"
        self.phase = self.address % 64

    def __del__(self) -> None:
        _usm.usm_wait(self.queue)
        _usm.usm_free(self.queue, self.address)

    def __len__(self) -> int:
        return self.size

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        data = np.empty(len(range(*slice(start, stop).indices(self.size))), np.uint8)
        _usm.usm_copy(self.queue, data.ctypes.data, self.address + start, data.size)
        _usm.usm_wait(self.queue)
        return data

    def write(self, data: np.ndarray, start: int = 0) -> None:
        data = np.ascontiguousarray(data)
        _usm.usm_copy(self.queue, self.address + start, data.ctypes.data, data.size)
        _usm.usm_wait(self.queue)


class Usm(Device):
    """SYCL's CPU device."""

    backend = "xpu"
    dlpack = ONEAPI

    def __init__(self) -> None:
        self.queue = new_queue()

    def allocate(self, size: int) -> Buffer:
        return UsmBuffer(self.queue, size)

    def check(self) -> None:
        _usm.usm_wait(self.queue)

    @contextmanager
    def busy_stream(
        self, copies: Sequence[tuple[Buffer, Buffer]], *, tell: bool = True
    ) -> Iterator[Callable[[], bool]]:
        queue = new_queue()
        done = ctypes.c_int(0)
        _usm.usm_delay(queue, 300, ctypes.addressof(done))
        for source, target in copies:
            _usm.usm_copy(queue, target.address, source.address, len(source))
        with use_queue(queue) if tell else nullcontext():
            yield lambda: not done.value
        _usm.usm_wait(queue)


def use_queue(queue: int | None) -> Any:
    """Make a queue the one of TVM FFI's environment."""
    import tvm_ffi

    return tvm_ffi.use_raw_stream(tvm_ffi.device(*ONEAPI), queue or 0)


@pytest.fixture(scope="session")
def kit_device() -> Usm:
    return Usm()


@pytest.fixture(autouse=True)
def _queue(kit_device: Usm) -> Iterator[None]:
    """Tell the device's queue, as a framework would."""
    with use_queue(kit_device.queue):
        yield


class TestRelu(Elementwise):
    function = "relu"
    dtypes = ("float16", "bfloat16", "float32", "float64")
    tolerance = "exact"

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        return np.where((x > 0) | np.isnan(x), x, 0)


def array(device: Any, values: list[float]) -> Array:
    bits = np.array(values, np.float32).view(np.uint32)
    return make(device, bits, DTYPES["float32"])


def test_more_than_the_grid_does_at_once(kernel: Any, kit_device: Usm) -> None:
    x = array(kit_device, [-1.0, 2.0] * 5_000_000)
    out = array(kit_device, [9.0] * 10_000_000)
    kernel.relu(x, out=out)
    np.testing.assert_array_equal(out.bits.view(np.float32), [0.0, 2.0] * 5_000_000)


def test_without_a_queue(kernel: Any, kit_device: Usm) -> None:
    x, out = array(kit_device, [-1.0]), array(kit_device, [7.0])
    with use_queue(None), pytest.raises(RuntimeError, match="does not say on which queue"):
        kernel.relu(x, out=out)
    kernel.relu(x, out=out)


def test_a_queue_out_of_order(kernel: Any, kit_device: Usm) -> None:
    x, out = array(kit_device, [-1.0]), array(kit_device, [7.0])
    with (
        use_queue(new_queue(in_order=False)),
        pytest.raises(ValueError, match="needs to be in order"),
    ):
        kernel.relu(x, out=out)


def test_memory_that_sycl_does_not_know(kernel: Any, kit_device: Usm) -> None:
    class Foreign(Host):
        dlpack = kit_device.dlpack

    good, foreign = array(kit_device, [-1.0]), array(Foreign(), [-1.0])
    with pytest.raises(ValueError, match="relu: `x` is no USM memory"):
        kernel.relu(foreign, out=good)
    with pytest.raises(ValueError, match="relu: `out` is no USM memory"):
        kernel.relu(good, out=foreign)


def test_memory_of_the_cpu(kernel: Any) -> None:
    x = array(Host(), [-1.0])
    with pytest.raises(ValueError, match=r"relu: `x` is on cpu:0; .* needs it on oneapi"):
        kernel.relu(x, out=x)
