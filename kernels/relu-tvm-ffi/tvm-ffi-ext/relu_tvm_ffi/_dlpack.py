"""Arrays of any framework as tensors of tvm-ffi, read-only ones told apart."""

from __future__ import annotations

import ctypes
from typing import Any

import tvm_ffi

_VERSIONED = b"dltensor_versioned"
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _ManagedTensorVersioned(ctypes.Structure):
    """The start of dlpack.h's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


def tensor(value: Any, name: str, *, is_output: bool) -> tvm_ffi.Tensor:
    """Return a view of an array as a tensor of tvm-ffi; nothing is copied.

    Args:
        value: An object with `__dlpack__`.
        name: The argument's name, for messages.
        is_output: Whether it is going to be written to.

    Raises:
        TypeError: It has no `__dlpack__`.
        ValueError: It is an output and read-only, or its framework does not export it.
    """
    if not hasattr(value, "__dlpack__"):
        raise TypeError(
            f"relu: `{name}` is a {type(value)}; it needs to be an array with `__dlpack__`"
        )
    try:
        capsule = _export(value)
    except BufferError as error:
        # As NumPy does for types and strides that DLPack cannot express.
        raise ValueError(f"relu: `{name}` cannot be exported through DLPack: {error}") from error
    if is_output and _is_read_only(capsule):
        raise ValueError(f"relu: `{name}` is read-only; it needs to be writable")
    return tvm_ffi.from_dlpack(capsule)


def _export(value: Any) -> Any:
    """Return a DLPack capsule, versioned where the framework can: only that has flags."""
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # a framework that knows only the legacy protocol
        return value.__dlpack__()


def _is_read_only(capsule: Any) -> bool:
    if not _is_valid(capsule, _VERSIONED):
        return False
    managed = _ManagedTensorVersioned.from_address(_get_pointer(capsule, _VERSIONED))
    return bool(managed.flags & _READ_ONLY)
