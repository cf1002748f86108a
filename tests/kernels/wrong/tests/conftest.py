"""The device that the faults of accelerators run on: the stand-in, where it is not a real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kernel_ci.testing.kit import Buffer, Device, Host, HostBuffer
from kernel_ci.testing.kit.devices import device_of, dlpack_device

_ON_ACCELERATORS = ("none_there", "default_stream", "no_guard", "zero_size")


class StandIn(Device):
    """Two devices in this machine's memory; see stand_in.h."""

    backend = "stand-in"

    def __init__(self, ops: Any, index: int = 0):
        self.ops = ops
        self.dlpack = (12, index)

    def allocate(self, size: int) -> Buffer:
        data = np.empty(size, np.uint8)
        self.ops.stand_in_register(data.ctypes.data, size, self.dlpack[1])
        return HostBuffer(data)

    def check(self) -> None:
        error = self.ops.stand_in_take_error()
        assert not error, f"a launch failed: {error}"

    def count(self) -> int:
        return 2

    def at(self, index: int) -> Device:
        return StandIn(self.ops, index)

    def current(self) -> int:
        return int(self.ops.stand_in_current())

    @contextmanager
    def busy_stream(
        self, copies: Sequence[tuple[Buffer, Buffer]], *, tell: bool = True
    ) -> Iterator[Callable[[], bool]]:
        from tvm_ffi.stream import use_raw_stream

        with use_raw_stream(dlpack_device(self.dlpack), self.ops.stand_in_busy_stream()):
            for source, target in copies:
                self.ops.stand_in_copy_later(source.address, target.address, len(source))
            try:
                yield lambda: True
            finally:
                self.ops.stand_in_finish()


@pytest.fixture(scope="session")
def kit_device(kernel: ModuleType) -> Device:
    backend = os.environ["KERNEL_CI_BACKEND"]
    if backend == "cpu" and os.environ["WRONG_KERNEL"] in _ON_ACCELERATORS:
        return StandIn(kernel._ops.ops)
    return Host() if backend == "cpu" else device_of(backend)
