"""relu(x, out): takes the arguments of each framework to the kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tvm_ffi

from . import _dlpack
from ._ops import ops

_run = ops.relu

# What `_remember` has seen of NumPy and PyTorch.
_ndarray: type | None = None
_Tensor: type | None = None
_increment_version: Callable[[Any], None]


def relu(x: Any, out: Any = None) -> Any:
    """Return x where it is positive or NaN, and +0 elsewhere.

    NaNs keep all their bits; -0.0 becomes +0.0. Nothing is copied on the way.

    Args:
        x: An array of float16, bfloat16, float32 or float64, of any shape: a NumPy, PyTorch
            or JAX array, a `tvm_ffi.Tensor`, or another object with `__dlpack__`. It has to
            be contiguous (row-major), and on the device that this variant was built for.
        out: Where the result goes: the shape, dtype and device of `x`, contiguous and
            writable. It may be `x` itself, but not overlap it otherwise. By default a new
            array of the framework of `x`.

    Returns:
        `out`, or the new array.

    Raises:
        TypeError: A dtype that is not supported or differs, no array at all, or no `out` for
            an `x` whose framework has no known way to make one.
        ValueError: A shape, device, layout or overlap as above, or a read-only `out`.
        RuntimeError: A PyTorch argument that would need a backward pass, which there is none
            of; JAX without jax-tvm-ffi.
    """
    # First the short way for plain arrays of the two most common classes: with few elements, most
    # of the time of a call goes to Python.
    kind = type(x)
    if kind is type(out):
        if kind is _ndarray:
            if out.flags.writeable:
                try:
                    _run(out, x)
                    return out
                except BufferError:  # not to be exported: what _dlpack says of it helps more
                    pass
        # What may need more than to be handed on: see _torch_argument.
        elif kind is _Tensor and not (
            x.requires_grad or out.requires_grad or x.is_neg() or out.is_neg() or x.is_mps
        ):
            _run(out, x)
            _increment_version(out)
            return out
        _remember(kind)
    if out is None and _is_instance(x, "jax", "Array"):
        from . import _jax

        return _jax.relu(x)
    if out is None:
        out = _empty_like(x)
    x_argument = _argument(x, "x", is_output=False)
    out_argument = _argument(out, "out", is_output=True)
    _run(out_argument, x_argument)
    if _is_instance(out, "torch", "Tensor"):
        # Lets autograd find out that a tensor it saved was overwritten.
        sys.modules["torch"].autograd.graph.increment_version(out)
    return out


def _remember(kind: type) -> None:
    """Take note of a class that `relu` has a short way for.

    Not when this module is imported, as the frameworks may be imported after it, or never.
    """
    global _ndarray, _Tensor, _increment_version
    if kind is getattr(sys.modules.get("numpy"), "ndarray", None):
        _ndarray = kind
    elif kind is getattr(sys.modules.get("torch"), "Tensor", None):
        _Tensor = kind
        _increment_version = sys.modules["torch"].autograd.graph.increment_version


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a framework's class, without importing the framework for it."""
    framework = sys.modules.get(module)
    return framework is not None and isinstance(value, getattr(framework, name, ()))


def _empty_like(x: Any) -> Any:
    """Return a new array of the framework, shape, dtype, layout and device of `x`."""
    if _is_instance(x, "torch", "Tensor"):
        return sys.modules["torch"].empty_like(x)
    if _is_instance(x, "numpy", "ndarray"):
        return sys.modules["numpy"].empty_like(x, subok=False)
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__().empty_like(x)
    if hasattr(x, "__dlpack__"):
        raise TypeError(f"relu: pass `out`: there is no known way to make a new {type(x)}")
    raise TypeError(f"relu: `x` is a {type(x)}; it needs to be an array with `__dlpack__`")


def _argument(value: Any, name: str, *, is_output: bool) -> Any:
    """Return what to hand to the kernel for an argument, or raise (see `relu`)."""
    if isinstance(value, tvm_ffi.Tensor):
        return value
    if _is_instance(value, "torch", "Tensor"):
        return _torch_argument(value, name, is_output=is_output)
    if is_output and _is_instance(value, "jax", "Array"):
        raise ValueError("relu: `out` is a JAX array, which is immutable; use the result instead")
    return _dlpack.tensor(value, name, is_output=is_output)


def _torch_argument(value: Any, name: str, *, is_output: bool) -> Any:
    """Return a PyTorch tensor that the kernel can take: tvm-ffi converts it, stream included."""
    torch = sys.modules["torch"]
    if value.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"relu: `{name}` requires grad, and this kernel has no backward pass; "
            "use torch.no_grad(), or pass it detached"
        )
    if value.is_neg():
        # The memory holds the negated numbers, and DLPack has no way to say so.
        raise ValueError(f"relu: `{name}` is a negated view; pass it through resolve_neg() first")
    if value.is_mps:
        # On this way PyTorch tells the offset of a view, but not its command queue, so what it
        # has queued must be done first (apache/tvm-ffi#578).
        torch.mps.synchronize()
        return _dlpack.tensor(value, name, is_output=is_output)
    return value
