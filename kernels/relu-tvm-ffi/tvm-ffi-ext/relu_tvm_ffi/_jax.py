"""relu as a target of JAX's foreign function interface."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from ._ops import has_jax, jax_ffi_call, jax_register_ffi_target, ops


@functools.cache
def _register() -> None:
    """Make the kernel known to JAX, on the platform that this variant was built for."""
    if not has_jax:
        raise RuntimeError("relu: JAX arrays need the package jax-tvm-ffi, which is not installed")
    metadata = json.loads((Path(__file__).parent / "metadata.json").read_text(encoding="utf-8"))
    platform = "cpu" if metadata["backend"]["type"] == "cpu" else "gpu"
    jax_register_ffi_target("relu", ops.relu, arg_spec=["rets", "args"], platform=platform)


def relu(x: Any) -> Any:
    """Return relu of a JAX array, or of a tracer of one (under `jit`, `vmap`)."""
    import jax

    _register()
    # Elementwise: a batch of arrays is one larger array.
    call = jax_ffi_call("relu", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")
    return call(x)
