"""Cases about what an operation has to refuse: with an error, and without writing."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_ci.testing.kit.arrays import GUARD, Array
from kernel_ci.testing.kit.cases import Dtype, Shape
from kernel_ci.testing.kit.operation import Operation

#: DLPack's device types that kernels are built for, to name one that a kernel is not for.
_DEVICES = {1: "cpu", 2: "cuda"}


class Refusals(Operation):
    """What an operation does not take."""

    @pytest.mark.kernels_ci
    def test_other_dtypes(self, refused_dtype: Dtype) -> None:
        """Types that the operation is not made for, those with lanes included."""
        data = np.full(256, GUARD, np.uint8)
        bad = [
            Array(self.device.buffer(data), (4,), refused_dtype, device=self.device.dlpack)
            for _ in self.arguments
        ]
        self.check_refused("dtype", bad[:-1], bad[-1], name=self.inputs[0], dtype=refused_dtype)

    @pytest.mark.kernels_ci
    def test_differing_dtypes(self, dtypes_that_differ: tuple[Dtype, Dtype], argument: str) -> None:
        """One argument is of another type than the others."""
        first, different = dtypes_that_differ
        data = self.device.buffer(np.full(256, GUARD, np.uint8))
        bad = Array(data, (12,), different, device=self.device.dlpack)
        inputs, out = self.with_one(argument, bad, self.ins(first), self.out(first))
        if argument == self.inputs[0] and different not in self.types:
            self.check_refused("dtype", inputs, out, name=argument, dtype=different)
            return
        name, dtype, other = self._culprit(argument, different, first)
        self.check_refused("dtypes differ", inputs, out, name=name, dtype=dtype, other=other)

    @pytest.mark.kernels_ci
    def test_differing_shapes(self, shapes_that_differ: tuple[Shape, Shape], argument: str) -> None:
        """One argument is of another shape than the others."""
        first, different = shapes_that_differ
        bad = self.out(shape=different) if argument == "out" else self.array(shape=different)
        inputs, out = self.with_one(argument, bad, self.ins(shape=first), self.out(shape=first))
        name, shape, other = self._culprit(argument, list(different), list(first))
        self.check_refused("shapes differ", inputs, out, name=name, shape=shape, other=other)

    @pytest.mark.kernels_ci
    @pytest.mark.parametrize("elements", [12, 0])
    def test_other_devices(self, argument: str, elements: int) -> None:
        """One argument is on a device that the kernel is not built for."""
        own, index = self.device.dlpack
        shape = (elements,)
        foreign = 1 if own != 1 else 2
        for label, name in (
            ((foreign, 0), f"{_DEVICES[foreign]}:0"),
            ((77, 3), "DLPack device type 77:3"),
        ):
            bad = self.array(shape=shape, device=label)
            inputs, out = self.with_one(argument, bad, self.ins(shape=shape), self.out(shape=shape))
            self.check_refused("device", inputs, out, name=argument, device=name)
        # The same kind of device, but not the same one as the others.
        bad = self.array(shape=shape, device=(own, index + 1))
        inputs, out = self.with_one(argument, bad, self.ins(shape=shape), self.out(shape=shape))
        prefix = _DEVICES.get(own, self.device.backend)
        name, device, other = self._culprit(argument, f"{prefix}:{index + 1}", f"{prefix}:{index}")
        self.check_refused("devices differ", inputs, out, name=name, device=device, other=other)

    @pytest.mark.kernels_ci
    def test_a_read_only_output(self) -> None:
        """Memory that must not be written to, as DLPack's flag says."""
        self.check_refused("read-only", self.ins(), self.out(read_only=True), name="out")

    @pytest.mark.kernels_ci
    def test_null_pointers(self, argument: str) -> None:
        """Elements, but no memory for them."""
        bad = self.array(null_data=True)
        inputs, out = self.with_one(argument, bad, self.ins(), self.out())
        self.check_refused("null", inputs, out, name=argument, shape=list(bad.shape))

    @pytest.mark.kernels_ci
    @pytest.mark.parametrize("value", [3, 1.5, "x", [1.0, 2.0], np.float32(1)], ids=repr)
    def test_no_arrays(self, value: object, argument: str) -> None:
        """Python's numbers, text and lists."""
        inputs, out = self.with_one(argument, value, self.ins(), self.out())
        with self.refused("no array", name=argument, type=type(value)):
            self.call(inputs, out)
        self.check_again()

    def _culprit(self, argument: str, bad: object, good: object) -> tuple[str, object, object]:
        """Return which argument a message names, what it is, and what it should have been.

        The first input decides. Where it is the different one, the next argument is named.
        """
        if argument == self.inputs[0]:
            return self.arguments[1], good, bad
        return argument, bad, good
