"""As an author would write it: a kernel's whole suite."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernel_ci.testing.kit import Elementwise


class TestRelu(Elementwise):
    function = "relu"
    dtypes = ("float16", "float32")
    tolerance = "bits"
    makes_output = False
    frameworks = ("numpy", "torch")
    without: ClassVar = {"test_a_read_only_output": "TVM FFI's TensorView does not tell"}

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.where((x > 0) | np.isnan(x), x, np.zeros_like(x))
