"""Cases with the arrays of NumPy, PyTorch and JAX, where they are installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from kernel_ci.testing.kit.cases import DTYPES, EMPTY, OFFSETS, RANKS, Dtype, Shape
from kernel_ci.testing.kit.devices import Device
from kernel_ci.testing.kit.operation import Operation
from kernel_ci.testing.kit.tolerances import assert_close
from kernel_ci.testing.plugin import not_covered

#: Types whose names differ from those of `cases.toml`.
_NAMES = {"bool8": "bool"}


class Framework:
    """One framework, with its arrays on a device.

    Attributes:
        name: Its name.
        needs: The modules it takes.
        dtypes: The types of `cases.toml` that it has and the kit makes arrays of.
        mutable: Whether its arrays can be written to, and so be outputs.
        copies_views: Whether it makes views contiguous before a kernel gets them.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[tuple[str, ...]]
    mutable: ClassVar[bool] = True
    copies_views: ClassVar[bool] = False

    def __init__(self, device: Device):
        missing = [name for name in self.needs if find_spec(name) is None]
        if missing:
            not_covered(f"needs {', '.join(missing)}")
        self.device = device

    def active(self, dtype: Dtype) -> Any:
        """Return the context in which arrays of a type are used."""
        return nullcontext()

    def new(self, bits: np.ndarray, dtype: Dtype, shape: Shape) -> Any:
        """Return a new array with the given bits."""
        raise NotImplementedError

    def bits(self, array: Any, dtype: Dtype) -> np.ndarray:
        """Return the bits of an array, flat and row-major."""
        raise NotImplementedError

    def is_like(self, result: Any, array: Any) -> bool:
        """Return whether a result is of the framework, and of the type and shape of an array."""
        return (type(result), result.dtype, tuple(result.shape)) == (
            type(array),
            array.dtype,
            tuple(array.shape),
        )

    def views(self, array: Any) -> dict[str, Any]:
        """Return views of a matrix that are not row-major."""
        return {"transposed": array.T, "columns": array[:, :2], "every other": array[1:, ::2]}


class NumPy(Framework):
    """NumPy."""

    name = "numpy"
    needs = ("numpy",)
    dtypes = tuple(dtype.name for dtype in DTYPES.values() if dtype.numpy)

    def __init__(self, device: Device):
        super().__init__(device)
        if not device.numpy:
            not_covered(f"NumPy's arrays are not on {device.backend} devices")

    def new(self, bits: np.ndarray, dtype: Dtype, shape: Shape) -> Any:
        """Return a new array with the given bits."""
        return bits.view(dtype.numpy).reshape(shape).copy()

    def bits(self, array: Any, dtype: Dtype) -> np.ndarray:
        """Return the bits of an array, flat and row-major."""
        return np.asarray(np.ascontiguousarray(array).reshape(-1).view(dtype.pattern))

    def views(self, array: Any) -> dict[str, Any]:
        """Return views of a matrix that are not row-major."""
        others = {"reversed": array[::-1], "broadcast": np.broadcast_to(array[:1], array.shape)}
        return super().views(array) | others


class PyTorch(Framework):
    """PyTorch."""

    name = "torch"
    needs = ("torch",)
    dtypes = (
        "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
        "bool8", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    )  # fmt: skip

    def __init__(self, device: Device):
        super().__init__(device)
        if device.torch is None:
            not_covered(f"PyTorch knows no {device.backend} device")
        self.torch = importlib.import_module("torch")

    def _dtype(self, dtype: Dtype) -> Any:
        return getattr(self.torch, _NAMES.get(dtype.name, dtype.name))

    def new(self, bits: np.ndarray, dtype: Dtype, shape: Shape) -> Any:
        """Return a new tensor with the given bits."""
        if bits.size == 0:
            return self.torch.empty(shape, dtype=self._dtype(dtype), device=self.device.torch)
        data = self.torch.from_numpy(bits.view(np.uint8).copy())
        return data.view(self._dtype(dtype)).reshape(shape).to(self.device.torch)

    def bits(self, array: Any, dtype: Dtype) -> np.ndarray:
        """Return the bits of a tensor, flat and row-major."""
        flat = array.detach().cpu().contiguous().reshape(-1)
        return np.asarray(flat.view(self.torch.uint8).numpy()).view(dtype.pattern)

    def views(self, array: Any) -> dict[str, Any]:
        """Return views of a matrix that are not row-major."""
        return super().views(array) | {"broadcast": array[:1].expand(array.shape)}

    def of(self, arrays: list[Any]) -> list[Any]:
        """Return the kit's arrays as tensors on the same memory."""
        return [
            array.buffer.tensor[array.start : array.start + array.dtype.bytes * array.shape[0]]
            .view(self._dtype(array.dtype))
            for array in arrays
        ]  # fmt: skip


class Jax(Framework):
    """JAX, through jax-tvm-ffi."""

    name = "jax"
    needs = ("jax", "jax_tvm_ffi")
    dtypes = (
        "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool8",
    )  # fmt: skip
    mutable = False
    copies_views = True

    def __init__(self, device: Device):
        super().__init__(device)
        if device.jax is None:
            not_covered(f"JAX knows no {device.backend} device")
        self.jax = importlib.import_module("jax")
        try:
            self._on = self.jax.devices(device.jax)[device.dlpack[1]]
        except (RuntimeError, IndexError):
            not_covered(f"needs a {device.backend} device that JAX can use")

    @contextmanager
    def active(self, dtype: Dtype) -> Iterator[None]:
        """Return the context in which arrays of a type are used."""
        # 64 bits are off by default; releases before 0.8 have the switch elsewhere.
        wide = getattr(self.jax, "enable_x64", None)
        if not callable(wide):
            wide = importlib.import_module("jax.experimental").enable_x64
        with (
            wide(dtype.bits >= 64),
            self.jax.default_device(self._on),
        ):
            yield

    def new(self, bits: np.ndarray, dtype: Dtype, shape: Shape) -> Any:
        """Return a new array with the given bits."""
        numpy = self.jax.numpy
        target = numpy.dtype(_NAMES.get(dtype.name, dtype.name))
        return numpy.asarray(bits.view(np.uint8).view(target).reshape(shape))

    def bits(self, array: Any, dtype: Dtype) -> np.ndarray:
        """Return the bits of an array, flat and row-major."""
        return np.ascontiguousarray(np.asarray(array)).reshape(-1).view(dtype.pattern)


FRAMEWORKS: dict[str, type[Framework]] = {each.name: each for each in (NumPy, PyTorch, Jax)}


class Frameworks(Operation):
    """An operation on the arrays of frameworks.

    Attributes:
        frameworks: Whose arrays the kernel's function takes.
    """

    frameworks: ClassVar[tuple[str, ...]] = ("numpy", "torch", "jax")

    def parameters(self) -> dict[str, list[Any]]:
        """Return the values of the arguments that cases can have, by their names."""

        def pairs(dtypes: tuple[Dtype, ...], mutable: bool = False) -> list[Any]:
            return [
                pytest.param((framework, dtype), id=f"{name}-{dtype}")
                for name in self.frameworks
                for framework in [FRAMEWORKS[name]]
                for dtype in dtypes
                if dtype.name in framework.dtypes and framework.mutable >= mutable
            ]

        others = tuple(dtype for dtype in DTYPES.values() if dtype.name not in self.dtypes)
        return super().parameters() | {
            "on": pairs(self.types),
            "onto": pairs(self.types, mutable=True),
            "refused_on": pairs(others),
        }

    @pytest.mark.kernels_ci
    def test_new_arrays(self, on: tuple[type[Framework], Dtype]) -> None:
        """Without an output the result is a new array of the same framework."""
        self._check_makes_output()
        framework, dtype = on[0](self.device), on[1]
        for shape in (*RANKS, *EMPTY, (64, 65)):
            bits = self._bits(dtype, shape)
            with framework.active(dtype):
                inputs = [framework.new(item, dtype, shape) for item in bits]
                result = self.call(inputs)
                assert framework.is_like(result, inputs[0]), f"{shape}: got {result!r}"
                self._check_bits(framework, result, bits, dtype, f"shape {shape}")
                for item, old in zip(inputs, bits, strict=True):
                    assert np.array_equal(framework.bits(item, dtype), old), "an input was changed"

    @pytest.mark.kernels_ci
    def test_outputs(self, onto: tuple[type[Framework], Dtype]) -> None:
        """The result goes into an array of the framework, or in place of an input."""
        framework, dtype = onto[0](self.device), onto[1]
        bits = self._bits(dtype, (100,))
        inputs = [framework.new(item, dtype, (100,)) for item in bits]
        outs = [framework.new(np.zeros_like(bits[0]), dtype, (100,))]
        for out in outs + (inputs[:1] if self.in_place else []):
            returned = self.call(inputs, out)
            assert returned is out or not self.returns_out
            self._check_bits(framework, out, bits, dtype)

    @pytest.mark.kernels_ci
    def test_framework_views(self, onto: tuple[type[Framework], Dtype]) -> None:
        """Slices that begin 0 to 40 elements into an array."""
        framework, dtype = onto[0](self.device), onto[1]
        length = OFFSETS[-1] + 41
        bits = self._bits(dtype, (length,))
        inputs = [framework.new(item, dtype, (length,)) for item in bits]
        guard = self.sample(dtype, length, seed=99)
        for start in OFFSETS:
            out = framework.new(guard, dtype, (length,))
            self.call([item[start:] for item in inputs], out[start:])
            where = f"from element {start} on"
            self._check_bits(framework, out[start:], [b[start:] for b in bits], dtype, where)
            before = framework.bits(out[:start], dtype)
            assert np.array_equal(before, guard[:start]), f"{where}: elements before were changed"

    @pytest.mark.kernels_ci
    def test_framework_layouts(self, on: tuple[type[Framework], Dtype]) -> None:
        """Transposed, sliced and broadcast views: computed rightly, or refused."""
        framework, dtype = on[0](self.device), on[1]
        if not framework.mutable:
            self._check_makes_output()
        arguments = self.arguments if framework.mutable else self.inputs
        with framework.active(dtype):
            matrix = framework.new(self.sample(dtype, 48), dtype, (6, 8))
            for (name, view), argument in product(framework.views(matrix).items(), arguments):
                bits = framework.bits(view, dtype)
                good = [framework.new(bits, dtype, tuple(view.shape)) for _ in self.arguments]
                inputs, out = self.with_one(argument, view, good[:-1], good[-1])
                if self.strides == "computed" or framework.copies_views:
                    if name == "broadcast" and argument == "out":
                        continue
                    returned = self.call(inputs, out if framework.mutable else None)
                    result = out if framework.mutable else returned
                    where = f"`{argument}` is {name}"
                    self._check_bits(framework, result, [bits] * len(inputs), dtype, where)
                    continue
                fields = {"name": argument, "shape": list(view.shape), "strides": _strides(view)}
                # A broadcast array of NumPy is read-only as well.
                with self.refused("strides", "read-only", **fields):
                    self.call(inputs, out)
                assert np.array_equal(framework.bits(view, dtype), bits), "it was written to"

    @pytest.mark.kernels_ci
    def test_framework_dtypes(self, refused_on: tuple[type[Framework], Dtype]) -> None:
        """Types of the framework that the operation is not made for."""
        framework, dtype = refused_on[0](self.device), refused_on[1]
        data = np.zeros(3 * dtype.bytes, np.uint8)
        with framework.active(dtype):
            arrays = [framework.new(data, dtype, (3,)) for _ in self.arguments]
            fields = {"name": self.inputs[0], "dtype": dtype.name}
            if framework.mutable:
                with self.refused("dtype", **fields):
                    self.call(arrays[:-1], arrays[-1])
                return
            self._check_makes_output()
            # JAX wraps the error in one of its own.
            _, message = self.refusals.get("dtype", (Exception, ""))
            with pytest.raises(Exception, match=re.escape(message.format(**fields)) or None):
                np.asarray(self.call(arrays[:-1]))
        self.check_again()

    @pytest.mark.kernels_ci
    def test_jit(self, dtype: Dtype) -> None:
        """Under JAX's jit, between other operations."""
        if "jax" not in self.frameworks:
            not_covered("the operation takes no arrays of JAX")
        if dtype.name not in Jax.dtypes:
            not_covered(f"JAX has no {dtype}")
        self._check_makes_output()
        framework, shape = Jax(self.device), (33, 5)
        bits = self._bits(dtype, shape)
        with framework.active(dtype):
            inputs = [framework.new(item, dtype, shape) for item in bits]
            # Turned around, which changes no number: so there is an operation before and after.
            flip = framework.jax.numpy.flip
            jitted = framework.jax.jit(lambda *each: flip(self.call([flip(it) for it in each])))
            self._check_bits(framework, jitted(*inputs), bits, dtype)

    def _check_makes_output(self) -> None:
        if not self.makes_output:
            not_covered("the operation makes no arrays of its own")

    def _bits(self, dtype: Dtype, shape: Shape) -> list[np.ndarray]:
        count = int(np.prod(shape, dtype=np.int64))
        return [self.sample(dtype, count, seed) for seed in range(len(self.inputs))]

    def _check_bits(
        self, framework: Framework, result: Any, bits: list[np.ndarray], dtype: Dtype,
        where: str = "",
    ) -> None:  # fmt: skip
        got = framework.bits(result, dtype)
        assert_close(got, self.expected(bits, dtype), dtype, self.tolerance, where)


def _strides(view: Any) -> list[int]:
    """Return the strides of an array of NumPy or PyTorch, in elements."""
    if isinstance(view, np.ndarray):
        return [stride // view.itemsize for stride in view.strides]
    return list(view.stride())
