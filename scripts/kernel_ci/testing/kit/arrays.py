"""Arrays that speak DLPack, of any type, layout and device that DLPack can express.

NumPy has no bfloat16, no lanes, no null strides and no byte offset, and frameworks export only
what they have. So the kit describes its arrays itself.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_ci.testing.kit.cases import Dtype, Shape
from kernel_ci.testing.kit.devices import Buffer, Device

#: What the bytes around and, before the call, in an output are filled with.
GUARD = 0xA5

#: How many guard bytes there are at least, before and after the elements.
_GUARDED = 64


class _Tensor(ctypes.Structure):
    """dlpack.h's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """dlpack.h's DLManagedTensor: the legacy protocol."""

    _fields_ = (("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    """dlpack.h's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))

# What consumers hold, by the address of its managed tensor, until they call the deleter.
_exported: dict[int, Any] = {}


def _forget(address: int) -> None:
    del _exported[address]


_delete = _Deleter(_forget)


def exported() -> int:
    """Return how many exported tensors their consumers have not released yet."""
    return len(_exported)


@dataclass
class Array:
    """A described piece of memory that speaks DLPack, versioned.

    Attributes:
        buffer: The bytes.
        shape: In elements.
        dtype: What the elements are.
        strides: In elements; None is a null pointer, which means row-major.
        start: Where in the buffer the first element is, in bytes.
        byte_offset: How much of `start` is told through DLPack's field of that name, not in
            the data pointer.
        device: DLPack's device type and id, which may be a lie about the buffer.
        read_only: Whether the flag is set.
        null_data: Whether the data pointer is null.
    """

    buffer: Buffer
    shape: Shape
    dtype: Dtype
    strides: Shape | None = None
    start: int = 0
    byte_offset: int = 0
    device: tuple[int, int] = (1, 0)
    read_only: bool = False
    null_data: bool = False

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None, **_: Any
    ) -> Any:
        return self._legacy() if max_version is None else self._versioned()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def places(self) -> np.ndarray:
        """Return where in the buffer each byte of each element is: one row an element."""
        strides = row_major(self.shape) if self.strides is None else self.strides
        places = np.array(self.start)
        for size, stride in zip(self.shape, strides, strict=True):
            places = places[..., None] + np.arange(size) * stride * self.dtype.bytes
        return np.asarray(places.reshape(-1, 1) + np.arange(self.dtype.bytes))

    @property
    def bits(self) -> np.ndarray:
        """A copy of the elements' bits, flat and row-major."""
        return np.ascontiguousarray(self.buffer.read()[self.places()]).view(self.dtype.pattern)[
            :, 0
        ]

    def outside(self) -> np.ndarray:
        """Return a copy of the bytes that belong to no element."""
        return np.delete(self.buffer.read(), self.places().reshape(-1))

    def _tensor(self, keep: list[Any]) -> _Tensor:
        def int64s(values: Sequence[int] | None) -> Any:
            if values is None:
                return None
            array = (ctypes.c_int64 * len(values))(*values)
            keep.append(array)
            return ctypes.cast(array, ctypes.POINTER(ctypes.c_int64))

        keep.append(self.buffer)
        data, byte_offset = self.buffer.pointer(self.start, self.byte_offset)
        return _Tensor(
            None if self.null_data else data,
            *self.device,
            len(self.shape),
            self.dtype.code,
            self.dtype.bits,
            self.dtype.lanes,
            int64s(self.shape),
            int64s(self.strides),
            byte_offset,
        )

    def _legacy(self) -> Any:
        keep: list[Any] = []
        return _capsule(_Managed(self._tensor(keep), None, _delete), keep, b"dltensor")

    def _versioned(self) -> Any:
        keep: list[Any] = []
        managed = _ManagedVersioned(1, 0, None, _delete, int(self.read_only), self._tensor(keep))
        return _capsule(managed, keep, b"dltensor_versioned")


class LegacyArray(Array):
    """An array of a framework that knows nothing of DLPack 1.0."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        return self._legacy()


def _capsule(managed: ctypes.Structure, keep: list[Any], name: bytes) -> Any:
    address = ctypes.addressof(managed)
    # The name has to outlive the capsule too.
    _exported[address] = (managed, keep, name)
    return _new_capsule(address, name, None)


def row_major(shape: Sequence[int]) -> Shape:
    """Return the strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def make(
    device: Device,
    /,
    bits: np.ndarray,
    dtype: Dtype,
    shape: Shape | None = None,
    *,
    offset: int = 0,
    kind: type[Array] = Array,
    **others: Any,
) -> Array:
    """Return a contiguous array of the given bits, with guard bytes all around.

    Args:
        device: Where.
        bits: The elements' bits, flat.
        dtype: What they stand for.
        shape: By default one-dimensional.
        offset: The distance of the first element from a 64-byte boundary, in bytes.
        kind: `Array` or `LegacyArray`.
        others: Further attributes of `Array`.
    """
    content = np.ascontiguousarray(bits).view(np.uint8)
    buffer = device.allocate(_GUARDED + 64 + offset + content.size + _GUARDED)
    start = _GUARDED + -buffer.phase % 64 + offset
    whole = np.full(len(buffer), GUARD, np.uint8)
    whole[start : start + content.size] = content
    buffer.write(whole)
    shape = (bits.size,) if shape is None else shape
    fields = {"strides": row_major(shape), "device": device.dlpack, **others}
    return kind(buffer, shape, dtype, start=start, **fields)
