"""Cases about numbers: all that a type has, the special ones, and every length."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_ci.testing.kit.cases import SIZES, Dtype
from kernel_ci.testing.kit.operation import Operation


class Values(Operation):
    """What an operation computes."""

    @pytest.mark.kernels_ci
    def test_special_values(self, special: tuple[str, Dtype]) -> None:
        """NaN, signed zeros, infinities, subnormals: at every place of a vector, and after it."""
        kind, dtype = special
        inputs = [self.array(bits, dtype) for bits in self.special_inputs(kind, dtype)]
        self.check(inputs, self.out(dtype, inputs[0].shape))

    @pytest.mark.kernels_ci
    def test_many_values(self, dtype: Dtype) -> None:
        """All numbers of a type with up to 16 bits, a sample of the others."""
        if dtype.bits > 16 or dtype.name == "bool8":
            inputs = self.ins(dtype, (100_003,))
        else:
            every = np.arange(1 << dtype.bits).astype(dtype.pattern)
            # The second input comes in another order, so that pairs differ.
            orders = [np.random.default_rng(seed) for seed in range(len(self.inputs) - 1)]
            inputs = [self.array(every, dtype)]
            inputs += [self.array(order.permutation(every), dtype) for order in orders]
        self.check(inputs, self.out(dtype, inputs[0].shape))

    @pytest.mark.kernels_ci
    def test_sizes(self, dtype: Dtype) -> None:
        """Every number of elements around the sizes of vectors and blocks."""
        for size in SIZES:
            self.check(self.ins(dtype, (size,)), self.out(dtype, (size,)), f"{size} elements")
