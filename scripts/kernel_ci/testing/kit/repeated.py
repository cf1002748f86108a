"""Large arrays in little memory: one piece of it, mapped many times in a row (Linux)."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence

import numpy as np

# From Linux's <sys/mman.h>; Python's mmap module cannot map to a given address.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value


def repeated(block: int, count: int, own: Sequence[int]) -> np.ndarray | None:
    """Return an array of bytes most of whose blocks are the same memory.

    What is written to one of these is there in all of them. The addresses are never given
    back: a test process makes a few such arrays, and each takes a few blocks of memory.

    Args:
        block: The size of a block in bytes, a multiple of the page size.
        count: How many blocks.
        own: The blocks that have memory of their own.

    Returns:
        The array, or None where this system cannot do it.
    """
    if not sys.platform.startswith("linux") or sys.maxsize < block * count:
        return None
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    access = mmap.PROT_READ | mmap.PROT_WRITE
    free = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    address = library.mmap(None, block * count, access, free, -1, 0)
    if address == _MAP_FAILED:
        return None
    memory = os.memfd_create("kernel-ci")
    try:
        os.ftruncate(memory, block * (1 + len(own)))
        shared = mmap.MAP_SHARED | _MAP_FIXED
        for index in range(count):
            source = block * (1 + own.index(index)) if index in own else 0
            place = address + block * index
            if library.mmap(place, block, access, shared, memory, source) == _MAP_FAILED:
                return None
    finally:
        os.close(memory)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (block * count)).from_address(address))
