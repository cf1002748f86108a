"""relu for NumPy, PyTorch, JAX and everything else that speaks DLPack."""

from __future__ import annotations

import importlib
from types import ModuleType

from ._ops import has_jax as has_jax
from ._ops import has_torch as has_torch
from ._relu import relu

__all__ = ["layers", "relu"]


def __getattr__(name: str) -> ModuleType:
    # The layers need torch, and nothing else here does: it is imported at the first use.
    if name != "layers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not has_torch:
        raise AttributeError("the layers of relu-tvm-ffi need torch, which is not installed")
    return importlib.import_module(f"{__name__}.layers")
