"""Cases about accelerators: the framework's stream, and devices other than the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernel_ci.testing.kit.arrays import Array, make
from kernel_ci.testing.kit.devices import Device
from kernel_ci.testing.kit.frameworks import PyTorch
from kernel_ci.testing.kit.operation import Operation
from kernel_ci.testing.kit.tolerances import assert_close
from kernel_ci.testing.plugin import not_covered

_SHAPE = (100_003,)


class Accelerators(Operation):
    """Where and when an operation runs."""

    @pytest.mark.kernels_ci
    def test_the_stream_of_tvm_ffi(self) -> None:
        """The kernel waits for what the stream in TVM FFI's environment has to do before it."""
        self._check_stream(lambda arrays: arrays, tell=True)

    @pytest.mark.kernels_ci
    def test_the_stream_of_torch(self) -> None:
        """The kernel waits for what PyTorch's current stream has to do before it."""
        if self.device.torch is None:
            not_covered(f"PyTorch knows no {self.device.backend} device")
        self._check_stream(PyTorch(self.device).of, tell=False)

    @pytest.mark.kernels_ci
    def test_a_second_device(self) -> None:
        """Memory of a device that is not the current one, which stays the current one."""
        other = self._second()
        inputs = [
            make(other, self.sample(self.a_type, 1001, seed), self.a_type)
            for seed in range(len(self.inputs))
        ]
        out = make(other, np.zeros(1001, self.a_type.pattern), self.a_type)
        before = self.device.current()
        self.check(inputs, out)
        other.check()
        assert self.device.current() == before, "the kernel changed the current device"
        self.check_again()

    @pytest.mark.kernels_ci
    def test_a_second_device_of_torch(self) -> None:
        """The same with PyTorch's tensors."""
        other = self._second()
        if other.torch is None:
            not_covered(f"PyTorch knows no {other.backend} device")
        framework = PyTorch(other)
        bits = [self.sample(self.a_type, 1001, seed) for seed in range(len(self.inputs))]
        inputs = [framework.new(item, self.a_type, (1001,)) for item in bits]
        out = framework.new(np.zeros(1001, self.a_type.pattern), self.a_type, (1001,))
        before = self.device.current()
        self.call(inputs, out)
        assert self.device.current() == before, "the kernel changed the current device"
        wanted = self.expected(bits, self.a_type)
        assert_close(framework.bits(out, self.a_type), wanted, self.a_type, self.tolerance)

    def _second(self) -> Device:
        if (count := self.device.count()) < 2:
            not_covered(f"needs a second {self.device.backend} device, there is {count}")
        return self.device.at(1)

    def _check_stream(self, passed: Callable[[list[Array]], list[Any]], *, tell: bool) -> None:
        """Call while the stream is busy, and numbers to compute with are still to come.

        Args:
            passed: Turns arrays into what the kernel gets.
            tell: Whether to set TVM FFI's stream; else the arguments have to tell it.
        """
        dtype = self.a_type
        inputs = self.ins(dtype, _SHAPE)
        out = self.out(dtype, _SHAPE)
        late = [self.sample(dtype, _SHAPE[0], 100 + seed) for seed in range(len(inputs))]
        copies = []
        for item, bits in zip(inputs, late, strict=True):
            source = self.device.buffer(item.buffer.read())
            source.write(bits.view(np.uint8), item.start)
            copies.append((source, item.buffer))
        with self.device.busy_stream(copies, tell=tell) as is_busy:
            if not is_busy():
                not_covered("the stream was no longer busy when the kernel was to be called")
            *sources, target = passed([*inputs, out])
            self.call(sources, target)
        self.device.check()
        assert_close(
            out.bits, self.expected(late, dtype), dtype, self.tolerance, "on a busy stream"
        )
