"""relu, bit for bit: the kit's cases, and what its authors could not know."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from kernel_ci.testing.kit import DTYPES, Elementwise, bit_patterns


class TestRelu(Elementwise):
    function = "relu"
    dtypes = ("float16", "bfloat16", "float32", "float64")
    # relu returns what it was given, or zero: NaNs keep sign and payload.
    tolerance = "bits"
    refusals: ClassVar = {
        "dtype": (TypeError, "relu: `{name}` has dtype {dtype}; it needs to be float16"),
        "dtypes differ": (
            TypeError,
            "relu: `{name}` has dtype {dtype}; it needs to be that of `x`, {other}",
        ),
        "shapes differ": (
            ValueError,
            "relu: `{name}` has shape {shape}; it needs to be that of `x`, {other}",
        ),
        "strides": (
            ValueError,
            "relu: `{name}` has shape {shape} and strides {strides}; "
            "it needs to be contiguous (row-major): make it contiguous first",
        ),
        "device": (ValueError, "relu: `{name}` is on {device}; this build of the kernel needs it"),
        "devices differ": (
            ValueError,
            "relu: `{name}` is on {device}; it needs to be on the device of `x`, {other}",
        ),
        "read-only": (ValueError, "relu: `{name}` is read-only; it needs to be writable"),
        "null": (ValueError, "relu: `{name}` has shape {shape} and a null data pointer"),
        "overlap": (ValueError, "relu: `out` overlaps `x` in part"),
        "no array": (TypeError, "relu: `{name}` is a {type}; it needs to be an array"),
    }

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.where((x > 0) | np.isnan(x), x, np.zeros_like(x))

    @pytest.mark.kernels_ci
    def test_the_reference(self) -> None:
        one, minus_one, nan, infinity = 0x3F80, 0xBF80, 0xFFC1, 0x7F80
        bits = np.array([one, minus_one, 0x8000, 0, nan, infinity, 0xFF80, 0x8001], np.uint16)
        wanted = [one, 0, 0, 0, nan, infinity, 0, 0]
        assert list(self.expected([bits], DTYPES["bfloat16"])) == wanted
        numbers = np.array([1.5, -1.5, np.inf, -np.inf, -0.0])
        for dtype in self.types:
            result = self.expected([bit_patterns(numbers, dtype)], dtype)
            zeros = np.array([1.5, 0, np.inf, 0, 0])
            np.testing.assert_array_equal(result, bit_patterns(zeros, dtype))

    @pytest.mark.kernels_ci
    def test_nothing_to_make_an_output_of(self) -> None:
        with pytest.raises(TypeError, match="relu: pass `out`: there is no known way to make a"):
            self.kernel.relu(self.array())
        message = "relu: `x` is a <class 'NoneType'>; it needs to be an array"
        with pytest.raises(TypeError, match=message):
            self.kernel.relu(None)

    @pytest.mark.kernels_ci
    def test_the_exported_function_checks_its_arguments(self) -> None:
        relu = self.kernel._ops.ops.relu
        x = self.array()
        for arguments in [(), (x,), (x, x, x), (x, 3), (None, x), ("out", x)]:
            with pytest.raises(TypeError):
                relu(*arguments)
        with pytest.raises(ValueError, match="`out` has shape"):
            relu(self.array(shape=(13,)), x)
        self.check_again()
