"""The cases as data: `cases.toml`, read and typed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Not tomli alone: the kit also runs where little is installed (testing.emulator).
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Dtype:
    """A data type as DLPack describes it.

    Attributes:
        name: The name in `cases.toml`.
        code: DLPack's type code.
        bits: The width of one lane, in bits.
        lanes: How many lanes an element has.
        fraction: The number of fraction bits of a binary floating-point type; 0 for others.
        numpy: The NumPy type that holds the same numbers, or "".
    """

    name: str
    code: int
    bits: int
    lanes: int = 1
    fraction: int = 0
    numpy: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """The size of an element; 0 for less than a byte."""
        return self.bits * self.lanes // 8

    @property
    def pattern(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned integer that holds the bits of an element."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def has_numbers(self) -> bool:
        """Whether the kit can compute with it: not with complex numbers, lanes and 8-bit floats."""
        return self.fraction > 0 or self.numpy.startswith(("int", "uint", "bool"))

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        """The bits of infinity; the largest finite number is one less, NaNs are more."""
        return self.sign - self.normal

    @property
    def normal(self) -> int:
        """The bits of the smallest normal number; subnormals are less."""
        return 1 << self.fraction


def numbers(bits: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Return the numbers that bit patterns stand for; every bfloat16 is a float32."""
    if dtype.numpy:
        return bits.view(dtype.numpy)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bit_patterns(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Return the bits of numbers, rounded to a type (to nearest, ties to even)."""
    if dtype.numpy:
        # Overflow to infinity is what rounding means; NumPy would warn of it.
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(values, dtype=dtype.numpy).view(dtype.pattern)
    with np.errstate(all="ignore"):
        wide = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    # Rounding would carry a NaN's payload into its exponent and sign.
    is_nan = (wide & 0x7FFFFFFF) > 0x7F800000
    kept = (wide >> 16) | ((wide & 0xFFFF != 0) << 6)
    return np.where(is_nan, kept, rounded).astype(np.uint16)


@dataclass(frozen=True)
class Strided:
    """A layout that is not row-major.

    Attributes:
        id: What it is called in the name of a test.
        shape: In elements.
        strides: In elements.
        shared: Whether several elements have one place, so that it cannot be an output.
    """

    id: str
    shape: Shape
    strides: Shape
    shared: bool = False


def load(name: str) -> dict[str, Any]:
    """Return what a TOML file of the kit holds."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


_DATA = load("cases.toml")


def _shapes(lists: list[list[int]]) -> tuple[Shape, ...]:
    return tuple(tuple(item) for item in lists)


OFFSETS = range(_DATA["offsets"]["first"], _DATA["offsets"]["last"] + 1)
LENGTH: int = _DATA["length"]
SIZES: tuple[int, ...] = tuple(_DATA["sizes"])
LARGE: int = _DATA["large"]
RANKS = _shapes(_DATA["ranks"])
EMPTY = _shapes(_DATA["empty"])
SIZE_ONE_SHAPE: Shape = tuple(_DATA["size_one"]["shape"])
SIZE_ONE_STRIDES = _shapes(_DATA["size_one"]["strides"])
STRIDED = tuple(
    Strided(item["id"], tuple(item["shape"]), tuple(item["strides"]), item.get("shared", False))
    for item in _DATA["strided"]
)
DIFFERING: tuple[tuple[Shape, Shape], ...] = tuple(
    (tuple(item["first"]), tuple(item["other"])) for item in _DATA["differing"]
)
DTYPES = {name: Dtype(name, **fields) for name, fields in _DATA["dtypes"].items()}


def special_values(kind: str, dtype: Dtype) -> list[int]:
    """Return the bits of a kind of numbers that kernels get wrong, of either sign.

    Args:
        kind: One of `special_kinds(dtype)`.
        dtype: A supported type.
    """
    if not dtype.fraction:
        return [0, 1, dtype.sign - 1, dtype.sign, 2 * dtype.sign - 1]
    quiet = dtype.normal >> 1
    positive = {
        # Signalling and quiet, with and without a payload.
        "NaN": [dtype.infinity | it for it in (1, quiet, quiet | 5, dtype.normal - 1)],
        "zero": [0],
        "infinity": [dtype.infinity - 1, dtype.infinity],
        "subnormal": [1, dtype.normal - 1, dtype.normal],
    }[kind]
    return positive + [dtype.sign | bits for bits in positive]


def special_kinds(dtype: Dtype) -> tuple[str, ...]:
    """Return the kinds of `special_values` that a type has."""
    if dtype.name == "bool8":
        return ()
    return ("NaN", "zero", "infinity", "subnormal") if dtype.fraction else ("limits",)
