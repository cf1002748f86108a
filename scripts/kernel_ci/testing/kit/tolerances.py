"""Comparing results with the reference, under a table of `tolerances.toml`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_ci.testing.kit.cases import Dtype, load, numbers

TOLERANCES: dict[str, dict[str, Any]] = load("tolerances.toml")


def wrong(got: np.ndarray, wanted: np.ndarray, dtype: Dtype, tolerance: str) -> np.ndarray:
    """Tell for each element whether it is wrong.

    Args:
        got: The result's bits.
        wanted: The reference's bits.
        dtype: What both stand for.
        tolerance: The name of a table.
    """
    table = TOLERANCES[tolerance]
    if table["how"] == "bits" or not dtype.fraction:
        return np.asarray(got != wanted)
    got_numbers, wanted_numbers = numbers(got, dtype), numbers(wanted, dtype)
    both_nan = np.isnan(got_numbers) & np.isnan(wanted_numbers)
    either_nan = np.isnan(got_numbers) | np.isnan(wanted_numbers)
    if table["how"] == "ulp":
        far = _distance(got, wanted, dtype) > table[dtype.name]
        if table.get("zero_signs"):
            far |= (got_numbers == 0) & (got != wanted)
    else:
        limits = table[dtype.name]
        with np.errstate(all="ignore"):
            a, b = got_numbers.astype(np.float64), wanted_numbers.astype(np.float64)
            # Equal ones first: the difference of two infinities is a NaN.
            far = ~((a == b) | (np.abs(a - b) <= limits["atol"] + limits["rtol"] * np.abs(b)))
            far |= np.isinf(a) != np.isinf(b)
    return np.asarray(np.where(either_nan, ~both_nan, far))


def _distance(a: np.ndarray, b: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Return how many numbers of the type lie between two, plus one; infinity is the last."""

    def ordered(bits: np.ndarray) -> np.ndarray:
        magnitude = (bits & dtype.pattern.type(dtype.sign - 1)).astype(np.int64)
        is_negative = bits >> dtype.pattern.type(dtype.bits - 1) == 1
        return np.asarray(np.where(is_negative, -magnitude, magnitude))

    first, second = ordered(a), ordered(b)
    # As unsigned numbers the difference cannot overflow.
    high, low = np.maximum(first, second), np.minimum(first, second)
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64))


def assert_close(
    got: np.ndarray, wanted: np.ndarray, dtype: Dtype, tolerance: str, where: str = ""
) -> None:
    """Raise an AssertionError that shows the first wrong elements.

    Args:
        got: The result's bits, flat.
        wanted: The reference's bits, flat.
        dtype: What both stand for.
        tolerance: The name of a table.
        where: What the case is about, for the message.
    """
    assert got.shape == wanted.shape, f"{got.size} elements, not {wanted.size}"
    places = np.flatnonzero(wrong(got, wanted, dtype, tolerance))
    if places.size == 0:
        return
    shown = "; ".join(
        f"element {place} is {_shown(got[place], dtype)}, not {_shown(wanted[place], dtype)}"
        for place in places[:3]
    )
    at = f"{where}: " if where else ""
    raise AssertionError(
        f"{at}{places.size} of {got.size} {dtype} elements are wrong"
        f" (tolerance `{tolerance}`): {shown}"
    )


def _shown(bits: np.unsignedinteger, dtype: Dtype) -> str:
    return f"{numbers(bits.reshape(1), dtype)[0]} (0x{int(bits):0{dtype.bits // 4}x})"
