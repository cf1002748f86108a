"""The numeric test kit: cases that any kernel's suite can go through; see docs/testing.md."""

from __future__ import annotations

from kernel_ci.testing.kit.arrays import GUARD, Array, LegacyArray, make, row_major
from kernel_ci.testing.kit.cases import DTYPES, Dtype, bit_patterns, numbers
from kernel_ci.testing.kit.devices import Buffer, Device, Host, HostBuffer
from kernel_ci.testing.kit.elementwise import Elementwise
from kernel_ci.testing.kit.operation import Operation
from kernel_ci.testing.plugin import not_covered

__all__ = [
    "DTYPES",
    "GUARD",
    "Array",
    "Buffer",
    "Device",
    "Dtype",
    "Elementwise",
    "Host",
    "HostBuffer",
    "LegacyArray",
    "Operation",
    "bit_patterns",
    "make",
    "not_covered",
    "numbers",
    "row_major",
]
