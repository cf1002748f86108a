"""JAX's arrays beyond the kit's cases: vmap, and what JAX does not allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_ci.testing.kit import not_covered

pytestmark = [pytest.mark.kernels_ci, pytest.mark.needs("jax", "jax_tvm_ffi")]


@pytest.fixture(scope="module")
def jax(kit_device: Any) -> Any:
    import jax

    if kit_device.jax is None:
        not_covered(f"JAX knows no {kit_device.backend} device")
    with jax.default_device(jax.devices(kit_device.jax)[0]):
        yield jax


def same(result: Any, wanted: Any) -> None:
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(
        np.asarray(result).astype(np.float32), np.asarray(wanted).astype(np.float32)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_vmap(kernel: Any, jax: Any, dtype: str) -> None:
    x = jax.random.normal(jax.random.key(0), (4, 5, 6)).astype(dtype)
    for axis in range(3):
        wanted = jax.vmap(jax.nn.relu, in_axes=axis)(x)
        same(jax.vmap(kernel.relu, in_axes=axis)(x), wanted)
        same(jax.jit(jax.vmap(kernel.relu, in_axes=axis))(x), wanted)


def test_jit_with_other_operations(kernel: Any, jax: Any) -> None:
    x = jax.random.normal(jax.random.key(0), (33, 5))
    same(jax.jit(lambda x: kernel.relu(x * 2) - 1)(x), jax.nn.relu(x * 2) - 1)


def test_jax_arrays_are_no_outputs(kernel: Any, jax: Any) -> None:
    with pytest.raises(ValueError, match="relu: `out` is a JAX array, which is immutable"):
        kernel.relu(jax.numpy.ones(7), out=jax.numpy.zeros(7))


def test_an_output_of_another_framework(kernel: Any, jax: Any, kit_device: Any) -> None:
    if not kit_device.numpy:
        not_covered(f"NumPy's arrays are not on {kit_device.backend} devices")
    x = jax.random.normal(jax.random.key(0), (7,))
    out = np.zeros(7, np.float32)
    assert kernel.relu(x, out=out) is out
    np.testing.assert_array_equal(out, np.asarray(jax.nn.relu(x)))
