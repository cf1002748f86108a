"""What this machine can run."""

from __future__ import annotations

import sys
from pathlib import Path

#: Backend -> the device files (a glob) of which it needs one (Linux).
_DEVICE = {"cuda": "/dev/nvidiactl", "rocm": "/dev/kfd", "xpu": "/dev/dri/renderD*"}

#: Backend -> what PyTorch calls its devices, where that is not the backend's name.
_TORCH = {"rocm": "cuda", "metal": "mps"}


def torch_name(backend: str) -> str:
    """Return what PyTorch calls the devices of a backend."""
    return _TORCH.get(backend, backend)


def why_not(platform: str, backend: str | None) -> str | None:
    """Return why this machine cannot run a library, None if it can.

    Args:
        platform: What the library is for, `<arch>-<os>`.
        backend: Its backend; None if nothing tells, which is taken for the CPU.
    """
    from kernel_ci.plan import host_platform

    if platform != host_platform():
        return f"this machine is {host_platform()}, not {platform}"
    if backend == "metal" and sys.platform != "darwin":
        return "there is no Metal here"
    if backend in _DEVICE and not any(Path("/").glob(_DEVICE[backend].lstrip("/"))):
        return f"there is no {backend} device here ({_DEVICE[backend]})"
    return None
