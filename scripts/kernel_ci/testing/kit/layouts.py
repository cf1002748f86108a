"""Cases about memory: ranks, empty arrays, alignment, strides, and what arguments share."""

from __future__ import annotations

import gc
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from kernel_ci.testing.kit.arrays import GUARD, Array, LegacyArray, exported
from kernel_ci.testing.kit.cases import (
    LARGE,
    LENGTH,
    OFFSETS,
    SIZE_ONE_SHAPE,
    Dtype,
    Shape,
    Strided,
    bit_patterns,
)
from kernel_ci.testing.kit.operation import REFUSED, Operation
from kernel_ci.testing.kit.tolerances import assert_close
from kernel_ci.testing.plugin import not_covered

# How the largest case is split, in elements: the last block begins at 2^31.
_BLOCK = 1 << 22
_BLOCKS = 2**31 // _BLOCK + 1


class Layouts(Operation):
    """Which memory an operation reads and writes."""

    @pytest.mark.kernels_ci
    def test_ranks(self, rank: Shape, dtype: Dtype) -> None:
        """Arrays of no dimension to six."""
        self.check(self.ins(dtype, rank), self.out(dtype, rank))

    @pytest.mark.kernels_ci
    def test_no_elements_then_some(self, empty: Shape, dtype: Dtype) -> None:
        """An empty array leaves no error behind that the next call would meet."""
        self.check(self.ins(dtype, empty), self.out(dtype, empty), "no elements")
        self.check(self.ins(dtype, (33,)), self.out(dtype, (33,)), "after no elements")

    @pytest.mark.kernels_ci
    def test_no_elements_and_no_memory(self, dtype: Dtype) -> None:
        """An empty array may have a null pointer."""
        shape = (0, 4)
        inputs = self.ins(dtype, shape, null_data=True)
        self.check(inputs, self.out(dtype, shape, null_data=True))
        self.check_again()

    @pytest.mark.kernels_ci
    def test_strides_of_an_empty_array(self, dtype: Dtype) -> None:
        """The strides of an empty array say nothing."""
        shape = (4, 0)
        inputs = self.ins(dtype, shape, strides=(7, 9))
        self.check(inputs, self.out(dtype, shape, strides=(-1, 3)))

    @pytest.mark.kernels_ci
    def test_views_at_every_offset(self, shifted: str, dtype: Dtype) -> None:
        """Views that begin 0 to 40 elements after a boundary, with guards around the output."""
        for elements in OFFSETS:
            inputs = [
                self.array(
                    self.sample(dtype, LENGTH, seed),
                    dtype,
                    offset=elements * dtype.bytes if shifted in (name, "all") else 0,
                )
                for seed, name in enumerate(self.inputs)
            ]
            offset = elements * dtype.bytes if shifted in ("out", "all") else 0
            out = self.out(dtype, (LENGTH,), offset=offset)
            self.check(inputs, out, f"`{shifted}` at offset {elements}")

    @pytest.mark.kernels_ci
    def test_addresses_of_any_byte(self, dtype: Dtype) -> None:
        """Addresses that are no multiple of an element's size, as NumPy's fields have them."""
        for offset in range(1, max(2, dtype.bytes)):
            inputs = self.ins(dtype, (LENGTH,), offset=offset)
            out = self.out(dtype, (LENGTH,), offset=dtype.bytes - offset)
            self.check(inputs, out, f"byte offset {offset}")

    @pytest.mark.kernels_ci
    def test_byte_offset(self, argument: str, dtype: Dtype) -> None:
        """DLPack's byte offset: where Metal, and some frameworks, say that a view begins."""
        inputs = [
            self.array(None, dtype, (50,), seed, byte_offset=48 if name == argument else 0)
            for seed, name in enumerate(self.inputs)
        ]
        self.check(inputs, self.out(dtype, (50,), byte_offset=16 if argument == "out" else 0))

    @pytest.mark.kernels_ci
    def test_null_strides(self, dtype: Dtype) -> None:
        """A null pointer for the strides means row-major."""
        inputs = self.ins(dtype, (3, 20), strides=None)
        self.check(inputs, self.out(dtype, (3, 20), strides=None))

    @pytest.mark.kernels_ci
    def test_stride_of_a_size_of_one(self, size_one: Shape, argument: str) -> None:
        """The stride of a dimension of size one says nothing, whatever it is."""
        shape = SIZE_ONE_SHAPE
        odd: dict[str, Any] = {"strides": size_one}
        inputs = [
            self.array(None, None, shape, seed, **(odd if name == argument else {}))
            for seed, name in enumerate(self.inputs)
        ]
        self.check(inputs, self.out(shape=shape, **(odd if argument == "out" else {})))

    @pytest.mark.kernels_ci
    def test_strides(self, layout: Strided, argument: str) -> None:
        """Layouts that are not row-major: computed rightly, or refused."""
        if self.strides == "computed" and layout.shared and argument == "out":
            not_covered("an output whose elements share a place has no right result")
        buffer = self.device.buffer(np.full(512, GUARD, np.uint8))
        bad = Array(
            buffer, layout.shape, self.a_type, layout.strides, start=128, device=self.device.dlpack
        )
        good = self.ins(shape=layout.shape), self.out(shape=layout.shape)
        if self.strides == "computed":
            if argument != "out":
                buffer.write(self.sample(self.a_type, 512 // self.a_type.bytes).view(np.uint8))
            self.check(*self.with_one(argument, bad, *good))
            return
        inputs, out = self.with_one(argument, bad, *good)
        self.check_refused(
            "strides", inputs, out,
            name=argument, shape=list(layout.shape), strides=list(layout.strides),
        )  # fmt: skip

    @pytest.mark.kernels_ci
    def test_dlpack_protocols(self) -> None:
        """Versioned DLPack and the legacy one, in all combinations."""
        for kinds in product((Array, LegacyArray), repeat=len(self.arguments)):
            inputs = [self.array(kind=kind, seed=seed) for seed, kind in enumerate(kinds[:-1])]
            out = self.out(kind=kinds[-1])
            self.check(inputs, out, ", ".join(kind.__name__ for kind in kinds))

    @pytest.mark.kernels_ci
    def test_tensors_of_tvm_ffi(self) -> None:
        """TVM FFI's own tensors (`Tensor`) and objects that it only views (`TensorView`)."""
        for are_tensors in product((True, False), repeat=len(self.arguments)):
            arrays = [*self.ins(), self.out()]
            wanted = self.expected([item.bits for item in arrays[:-1]], self.a_type)
            passed = [
                tvm_ffi.from_dlpack(item) if is_tensor else item
                for item, is_tensor in zip(arrays, are_tensors, strict=True)
            ]
            returned = self.call(passed[:-1], passed[-1])
            assert returned is passed[-1] or not self.returns_out
            assert_close(arrays[-1].bits, wanted, self.a_type, self.tolerance)

    @pytest.mark.kernels_ci
    def test_arguments_are_released(self) -> None:
        """After a call nothing holds on to its arguments."""
        gc.collect()  # of what refused calls left: an error and its traceback hold each other
        before = exported()
        self.check(self.ins(), self.out())
        gc.collect()
        assert exported() == before, "an argument was not released"

    @pytest.mark.kernels_ci
    def test_in_place(self, dtype: Dtype) -> None:
        """The output is one of the inputs, or another description of its memory."""
        if not self.in_place:
            not_covered("the operation does not work in place")
        for position in range(len(self.inputs)):
            inputs = self.ins(dtype, (1001,))
            self.check(inputs, inputs[position], f"`out` is `{self.inputs[position]}`")
            inputs = self.ins(dtype, (1001,))
            same = inputs[position]
            out = Array(same.buffer, same.shape, dtype, start=same.start, device=same.device)
            self.check(inputs, out, f"`out` is the memory of `{self.inputs[position]}`")

    @pytest.mark.kernels_ci
    @pytest.mark.parametrize("order", ["input first", "output first"])
    def test_neighbours(self, order: str, dtype: Dtype) -> None:
        """An input that ends where the output begins shares nothing with it."""
        both = self.array(None, dtype, (2 * LENGTH,))
        halves = [
            Array(both.buffer, (LENGTH,), dtype, start=start, device=both.device)
            for start in (both.start, both.start + LENGTH * dtype.bytes)
        ]
        x, out = halves if order == "input first" else halves[::-1]
        kept = x.bits
        inputs = [x, *self.ins(dtype, (LENGTH,))[1:]]
        self.check(inputs, out)
        assert np.array_equal(x.bits, kept), "the input was changed"

    @pytest.mark.kernels_ci
    @pytest.mark.parametrize("distance", [1, 4, 44, -1, -4, -44])
    def test_partial_overlap(self, distance: int) -> None:
        """An output that shares a part of an input is refused, or computed as if it did not."""
        whole = self.array(shape=(100,))
        x = Array(
            whole.buffer, (12,), whole.dtype, start=whole.start + 128, device=self.device.dlpack
        )
        out = Array(x.buffer, (12,), x.dtype, start=x.start + distance, device=x.device)
        inputs = [x, *self.ins()[1:]]
        if "overlap" in self.refusals:
            self.check_refused("overlap", inputs, out, name="out", other=self.inputs[0])
            return
        wanted, before = self.expected([item.bits for item in inputs], x.dtype), x.buffer.read()
        try:
            self.call(inputs, out)
        except REFUSED:
            assert np.array_equal(x.buffer.read(), before), "refused, but written to"
        else:
            assert_close(out.bits, wanted, x.dtype, self.tolerance)

    @pytest.mark.kernels_ci
    def test_a_read_only_input(self) -> None:
        """Reading needs no right to write."""
        self.check(self.ins(read_only=True), self.out())

    def test_more_than_2_to_the_31_elements(self) -> None:
        """Sizes and indices of 64 bits.

        On the CPU under Linux the blocks in the middle are one piece of memory, mapped again
        and again; elsewhere all the memory is needed, and the case is not covered without.
        """
        dtype = min(self.types, key=lambda each: each.bytes)
        x, out = self._large(dtype)
        # Nearly everywhere a number that is not its own result, and here and there another one.
        values = bit_patterns(np.arange(-3, 4), dtype)
        results = self.expected([values] * len(self.inputs), dtype)
        common = int(np.argmax(results != values))
        rare = int(np.argmax(results != results[common]))

        def block(bits: np.ndarray, index: int) -> np.ndarray:
            start = index * _BLOCK
            content = np.full(min(_BLOCK, LARGE - start), bits[common], dtype.pattern)
            for place in (0, 1, 2**31 - 1, 2**31, LARGE - 1):
                if start <= place < start + content.size:
                    content[place - start] = bits[rare]
            return content

        for index in range(_BLOCKS):
            x.buffer.write(block(values, index).view(np.uint8), index * _BLOCK * dtype.bytes)
        self.call([x] * len(self.inputs), out)
        self.device.check()
        for index in range(_BLOCKS):
            wanted = block(results, index)
            start = index * _BLOCK * dtype.bytes
            got = out.buffer.read(start, start + wanted.nbytes)
            # Most are equal; compared as 64 bits that takes the least time.
            if not np.array_equal(got.view(np.uint64), wanted.view(np.uint64)):
                where = f"from element {index * _BLOCK} on"
                assert_close(got.view(dtype.pattern), wanted, dtype, self.tolerance, where)

    def _large(self, dtype: Dtype) -> tuple[Array, Array]:
        """Return an input and an output of `LARGE` elements, which may be the same memory."""
        size = _BLOCK * dtype.bytes
        own = (0, 2**31 // _BLOCK - 1, _BLOCKS - 1)
        x = self.device.allocate_repeated(size, _BLOCKS, own)
        out = self.device.allocate_repeated(size, _BLOCKS, own)
        if x is None or out is None:
            needed = _BLOCKS * size * (1 if self.in_place else 2) / 2**30 + 1
            free = self.device.free_memory() / 2**30
            if free < needed:
                not_covered(f"needs {needed:.1f} GiB of memory, {free:.1f} are free")
            x = self.device.allocate(_BLOCKS * size)
            out = x if self.in_place else self.device.allocate(_BLOCKS * size)
        arrays = [Array(buffer, (LARGE,), dtype, device=self.device.dlpack) for buffer in (x, out)]
        return arrays[0], arrays[1]
