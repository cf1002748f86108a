"""Where a case's arrays live: this machine's memory, or an accelerator's through PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from kernel_ci.devices import torch_name
from kernel_ci.testing.kit.repeated import repeated
from kernel_ci.testing.plugin import free_memory, not_covered

CPU = (1, 0)
CUDA = (2, 0)

#: What DLPack calls a device, by backend; metal's is an MTLBuffer (dlpack.h, DLDeviceType).
DLPACK_TYPE = {"cpu": 1, "cuda": 2, "metal": 8, "rocm": 10, "xpu": 14}


class Buffer:
    """Bytes on a device.

    Attributes:
        address: What DLPack's data pointer is for the first byte.
        phase: How far the first byte is from a boundary of 64 bytes.
    """

    address: int
    phase: int

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a copy of some bytes, after all that writes them is done."""
        raise NotImplementedError

    def write(self, data: np.ndarray, start: int = 0) -> None:
        """Write bytes, and return when they are there."""
        raise NotImplementedError

    def pointer(self, start: int, byte_offset: int) -> tuple[int, int]:
        """Return DLPack's data pointer and byte offset for data from `start` on.

        Args:
            start: Where the data begins, in bytes.
            byte_offset: How much of `start` to tell as the byte offset, where there is a choice.
        """
        return self.address + start - byte_offset, byte_offset


class Device:
    """A device: makes buffers, and knows what else there is of its kind.

    Attributes:
        backend: The kernel's backend.
        dlpack: DLPack's device type and id.
        torch: The device's name in PyTorch, or None where PyTorch does not know it.
        jax: The platform's name in JAX, or None.
        numpy: Whether NumPy's arrays are on it.
    """

    backend: str
    dlpack: tuple[int, int]
    torch: str | None = None
    jax: str | None = None
    numpy: bool = False

    def allocate(self, size: int) -> Buffer:
        """Return a new buffer of some bytes, which may hold anything."""
        raise NotImplementedError

    def buffer(self, data: np.ndarray) -> Buffer:
        """Return a new buffer with the given bytes."""
        made = self.allocate(data.size)
        made.write(data)
        return made

    def allocate_repeated(self, block: int, count: int, own: Sequence[int]) -> Buffer | None:
        """Return a buffer most of whose blocks are the same memory, None if there is no way.

        Args:
            block: The size of a block in bytes.
            count: How many blocks.
            own: The blocks that have memory of their own.
        """
        return None

    def free_memory(self) -> float:
        """Return how many bytes can be allocated."""
        return free_memory()

    def check(self) -> None:
        """Raise what an earlier call left behind unseen, such as the error of a launch."""

    def count(self) -> int:
        """Return how many devices of this kind there are."""
        return 1

    def at(self, index: int) -> Device:
        """Return another device of this kind."""
        raise NotImplementedError

    def current(self) -> int:
        """Return the index of the device that is current in this thread."""
        return self.dlpack[1]

    def busy_stream(
        self, copies: Sequence[tuple[Buffer, Buffer]], *, tell: bool = True
    ) -> AbstractContextManager[Callable[[], bool]]:
        """Make a stream current that is not the default one and busy for some time.

        Args:
            copies: (from, to): copies that wait in the stream behind what keeps it busy.
            tell: Whether to make it TVM FFI's stream too, not only the framework's.

        Returns:
            A context; entering it gives a function that tells whether the stream is still
            busy, leaving it waits for the stream.
        """
        not_covered(f"the backend {self.backend} has no streams")


class HostBuffer(Buffer):
    """Bytes in this machine's memory, as a NumPy array."""

    def __init__(self, data: np.ndarray):
        self.bytes = data
        self.address = data.ctypes.data
        self.phase = self.address % 64

    def __len__(self) -> int:
        return self.bytes.size

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a copy of some bytes."""
        return self.bytes[start:stop].copy()

    def write(self, data: np.ndarray, start: int = 0) -> None:
        """Write bytes."""
        self.bytes[start : start + data.size] = data


class Host(Device):
    """The CPU."""

    backend = "cpu"
    dlpack = CPU
    torch = "cpu"
    jax = "cpu"
    numpy = True

    def allocate(self, size: int) -> Buffer:
        """Return a new buffer of some bytes."""
        return HostBuffer(np.empty(size, np.uint8))

    def allocate_repeated(self, block: int, count: int, own: Sequence[int]) -> Buffer | None:
        """Return a buffer most of whose blocks are the same memory, None if there is no way."""
        data = repeated(block, count, own)
        return None if data is None else HostBuffer(data)


class TorchBuffer(Buffer):
    """Bytes of an accelerator, as a PyTorch tensor."""

    def __init__(self, tensor: Any, *, opaque: bool):
        self.tensor = tensor
        self.address = tensor.data_ptr()
        # An opaque handle says nothing about alignment, but the memory behind it is aligned.
        self.phase = 0 if opaque else self.address % 64
        self._opaque = opaque

    def __len__(self) -> int:
        return int(self.tensor.numel())

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a copy of some bytes, after all that writes them is done."""
        return np.asarray(self.tensor[start:stop].cpu().numpy())

    def write(self, data: np.ndarray, start: int = 0) -> None:
        """Write bytes, and return when they are there."""
        torch = importlib.import_module("torch")
        self.tensor[start : start + data.size].copy_(torch.from_numpy(data))

    def pointer(self, start: int, byte_offset: int) -> tuple[int, int]:
        """Return DLPack's data pointer and byte offset for data from `start` on."""
        # On Metal the pointer is an MTLBuffer, to which nothing can be added.
        return (self.address, start) if self._opaque else super().pointer(start, byte_offset)


class Torch(Device):
    """An accelerator that PyTorch can use."""

    def __init__(self, backend: str, index: int = 0):
        self.backend = backend
        self.dlpack = (DLPACK_TYPE[backend], index)
        self._kind = torch_name(backend)
        self.torch = f"{self._kind}:{index}"
        self.jax = "gpu" if self._kind == "cuda" else None
        self._torch = importlib.import_module("torch")
        self._module = getattr(self._torch, self._kind)

    def allocate(self, size: int) -> Buffer:
        """Return a new buffer of some bytes."""
        tensor = self._torch.empty(size, dtype=self._torch.uint8, device=self.torch)
        return TorchBuffer(tensor, opaque=self.backend == "metal")

    def free_memory(self) -> float:
        """Return how many bytes can be allocated."""
        if self.backend == "metal":
            return free_memory()
        return float(self._module.mem_get_info()[0])

    def check(self) -> None:
        """Raise what an earlier call left behind unseen, such as the error of a launch."""
        # PyTorch asks for the last error after each launch of its own.
        self._torch.ones(1, device=self.torch).add_(1)
        self._module.synchronize()

    def count(self) -> int:
        """Return how many devices of this kind there are."""
        return int(self._module.device_count())

    def at(self, index: int) -> Device:
        """Return another device of this kind."""
        return Torch(self.backend, index)

    def current(self) -> int:
        """Return the index of the device that is current in this thread."""
        return 0 if self.backend == "metal" else int(self._module.current_device())

    @contextmanager
    def busy_stream(
        self, copies: Sequence[tuple[Buffer, Buffer]], *, tell: bool = True
    ) -> Iterator[Callable[[], bool]]:
        """Make a stream current that is not the default one and busy for some time."""
        from tvm_ffi.stream import use_raw_stream

        if self.backend == "metal":
            not_covered("PyTorch has one stream only on Metal")
        # PyTorch's own streams do not wait for the default stream, nor it for them.
        stream = self._module.Stream(device=self.torch)
        handle = stream.sycl_queue if self.backend == "xpu" else stream.cuda_stream
        matrix = self._torch.ones(4096, 4096, device=self.torch)
        product = self._torch.empty_like(matrix)
        # The first product loads a library, which may wait for the device.
        self._torch.mm(matrix, matrix, out=product)
        self._module.synchronize()
        with self._module.stream(stream):
            for _ in range(50):
                self._torch.mm(matrix, matrix, out=product)
            for source, target in copies:
                target.tensor.copy_(source.tensor)  # type: ignore[attr-defined]
            try:
                if tell:
                    with use_raw_stream(dlpack_device(self.dlpack), handle):
                        yield lambda: not stream.query()
                else:
                    yield lambda: not stream.query()
            finally:
                stream.synchronize()


def dlpack_device(dlpack: tuple[int, int]) -> Any:
    """Return the device of TVM FFI for DLPack's type and id."""
    import tvm_ffi

    return tvm_ffi.device(*dlpack)


def device_of(backend: str) -> Device:
    """Return the device that a backend's cases run on, or say that it is not covered here."""
    if backend == "cpu":
        return Host()
    if backend not in DLPACK_TYPE:
        not_covered(f"the kit knows no device for the backend {backend}")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        not_covered(f"needs torch, with which the kit uses {backend} devices")
    kind = torch_name(backend)
    # A ROCm build of PyTorch calls its devices cuda, too.
    is_rocm = getattr(torch.version, "hip", None) is not None
    module = getattr(torch, kind, None)
    fits = kind != "cuda" or is_rocm == (backend == "rocm")
    if module is None or not module.is_available() or not fits:
        not_covered(f"needs a {backend} device that torch can use")
    return Torch(backend)
