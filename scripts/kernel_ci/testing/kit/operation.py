"""What a suite declares about an operation, and how one call of it is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import permutations, product
from types import ModuleType
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pytest

from kernel_ci.testing.kit.arrays import GUARD, Array, make
from kernel_ci.testing.kit.cases import (
    DIFFERING,
    DTYPES,
    EMPTY,
    RANKS,
    SIZE_ONE_STRIDES,
    STRIDED,
    Dtype,
    Shape,
    bit_patterns,
    numbers,
    special_kinds,
    special_values,
)
from kernel_ci.testing.kit.devices import Device
from kernel_ci.testing.kit.tolerances import TOLERANCES, assert_close
from kernel_ci.testing.plugin import NOT_COVERED, not_covered

#: What an operation has to refuse.
Refusal = Literal[
    "dtype", "dtypes differ", "shapes differ", "strides", "device", "devices differ",
    "read-only", "null", "overlap", "no array",
]  # fmt: skip

#: What a refusal may be raised as where a suite says no more. Frameworks raise a BufferError for
#: arrays that they do not export.
REFUSED = (TypeError, ValueError, BufferError)

# Without it pytest would skip a case that has no values, and give no reason.
_NO_VALUE = pytest.param(
    None, marks=pytest.mark.skip(f"{NOT_COVERED}no type of this operation is concerned")
)


class Operation:
    """Declares an elementwise operation; `Elementwise` adds the cases.

    Attributes:
        function: The name of the kernel's Python function.
        inputs: The names of its inputs. The output is called `out`.
        dtypes: The types it takes, by the names in `cases.toml`; all arguments have one type.
            All others have to be refused.
        tolerance: A table of `tolerances.toml`.
        strides: Whether layouts that are not row-major are "refused" or "computed".
        in_place: Whether an input may be the output as well.
        returns_out: Whether the function returns its output; else it returns None.
        makes_output: Whether the function makes a new array where it is given no output.
        refusals: For each kind of refusal the error's type and what its message begins with;
            placeholders are `{name}` (of the argument), `{dtype}`, `{shape}`, `{strides}`,
            `{device}`, `{type}`, and `{other}`, which it should have been.
            For kinds that are not named one of `REFUSED` with any message will do.
        without: Names of cases that do not hold for this operation, and why. They are reported
            as not covered, with that reason.
    """

    function: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    dtypes: ClassVar[tuple[str, ...]]
    tolerance: ClassVar[str]
    strides: ClassVar[Literal["refused", "computed"]] = "refused"
    in_place: ClassVar[bool] = True
    returns_out: ClassVar[bool] = True
    makes_output: ClassVar[bool] = True
    refusals: ClassVar[Mapping[Refusal, tuple[type[Exception], str]]] = {}
    without: ClassVar[Mapping[str, str]] = {}

    kernel: ModuleType
    device: Device

    # --- What a suite may say in another way ---------------------------------------

    #: A method that takes flat NumPy arrays of numbers, one an input, and returns the right
    #: result. bfloat16 comes as float32; the result may be of a wider type, and is rounded.
    reference: Callable[..., np.ndarray]

    def call(self, inputs: Sequence[Any], out: Any = None) -> Any:
        """Call the kernel.

        Args:
            inputs: The inputs, of whatever framework.
            out: The output; None where the function has to make one.
        """
        function = getattr(self.kernel, self.function)
        return function(*inputs) if out is None else function(*inputs, out=out)

    def sample(self, dtype: Dtype, count: int, seed: int = 0) -> np.ndarray:
        """Return bits to compute with: by default random ones, so all kinds of numbers."""
        data = np.random.default_rng(seed).bytes(count * dtype.bytes)
        bits = np.frombuffer(data, dtype.pattern)
        return bits & dtype.pattern.type(1) if dtype.name == "bool8" else bits.copy()

    # --- For cases, the kit's and a suite's own ------------------------------------

    @pytest.fixture(autouse=True)
    def _prepared(
        self, request: pytest.FixtureRequest, kernel: ModuleType, kit_device: Device
    ) -> None:
        why = self.without.get(request.function.__name__)
        if why is not None:
            not_covered(f"left out by the suite: {why}")
        self.kernel = kernel
        self.device = kit_device

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of all arguments."""
        return (*self.inputs, "out")

    @property
    def types(self) -> tuple[Dtype, ...]:
        """The types that the operation takes."""
        return tuple(DTYPES[name] for name in self.dtypes)

    @property
    def a_type(self) -> Dtype:
        """One type, for cases where the type does not matter."""
        return DTYPES["float32" if "float32" in self.dtypes else self.dtypes[0]]

    def array(
        self, bits: np.ndarray | None = None, dtype: Dtype | None = None,
        shape: Shape | None = None, seed: int = 0, **others: Any,
    ) -> Array:  # fmt: skip
        """Return an array on the device, contiguous and with guard bytes all around.

        Args:
            bits: The elements' bits; by default those of `sample`.
            dtype: By default `a_type`.
            shape: By default that of `bits`, or one-dimensional with 12 elements.
            seed: For `sample`.
            others: As for `arrays.make`.
        """
        dtype = self.a_type if dtype is None else dtype
        if bits is None:
            shape = (12,) if shape is None else shape
            bits = self.sample(dtype, math.prod(shape), seed)
        return make(self.device, bits, dtype, shape, **others)

    def ins(self, dtype: Dtype | None = None, shape: Shape = (12,), **others: Any) -> list[Array]:
        """Return an array for each input; see `array`."""
        return [
            self.array(None, dtype, shape, seed=seed, **others) for seed in range(len(self.inputs))
        ]

    def out(self, dtype: Dtype | None = None, shape: Shape = (12,), **others: Any) -> Array:
        """Return an output, filled with guard bytes through and through; see `array`."""
        dtype = self.a_type if dtype is None else dtype
        guard = np.full(math.prod(shape) * dtype.bytes, GUARD, np.uint8).view(dtype.pattern)
        return make(self.device, guard, dtype, shape, **others)

    def expected(self, inputs: Sequence[np.ndarray], dtype: Dtype) -> np.ndarray:
        """Return the bits of the right result for the bits of inputs."""
        with np.errstate(all="ignore"):
            values = self.reference(*(numbers(bits, dtype) for bits in inputs))
        return bit_patterns(np.asarray(values), dtype)

    def check(self, inputs: Sequence[Array], out: Array, where: str = "") -> None:
        """Call, and check every byte: the result, the inputs, and all around the output.

        Args:
            inputs: The inputs.
            out: The output, which may be one of the inputs.
            where: What the case is about, for the message.
        """
        wanted = self.expected([item.bits for item in inputs], out.dtype)
        before = [item.buffer.read() for item in inputs]
        around = out.outside()
        returned = self.call(inputs, out)
        self.device.check()
        at = f"{where}: " if where else ""
        if self.returns_out:
            assert returned is out, f"{at}{self.function} did not return its output"
        assert_close(out.bits, wanted, out.dtype, self.tolerance, where)
        assert np.array_equal(out.outside(), around), f"{at}bytes around the output were changed"
        for name, item, old in zip(self.inputs, inputs, before, strict=True):
            if item.buffer is not out.buffer:
                assert np.array_equal(item.buffer.read(), old), f"{at}`{name}` was changed"

    def check_again(self) -> None:
        """Check that the kernel still works after what came before."""
        self.check(self.ins(shape=(33,)), self.out(shape=(33,)), "afterwards")

    def refused(self, *kinds: Refusal, **fields: Any) -> AbstractContextManager[Any]:
        """Return the context that expects a refusal.

        Args:
            kinds: Which refusals will do.
            fields: What the message may speak of.
        """
        errors: list[type[Exception]] = []
        messages = []
        for kind in kinds:
            if kind not in self.refusals:
                return pytest.raises(REFUSED)
            error, message = self.refusals[kind]
            errors.append(error)
            messages.append(re.escape(message.format(**fields)))
        return pytest.raises(tuple(errors), match="|".join(messages))

    def check_refused(
        self, kind: Refusal, inputs: Sequence[Any], out: Array, **fields: Any
    ) -> None:
        """Check that a call is refused, writes nothing, and leaves the kernel working."""
        before = out.buffer.read()
        with self.refused(kind, **fields):
            self.call(inputs, out)
        assert np.array_equal(out.buffer.read(), before), "the output was written to"
        self.check_again()

    def with_one(self, name: str, bad: Any, inputs: Sequence[Any], out: Any) -> tuple[Any, Any]:
        """Return the inputs and the output, with one of them replaced."""
        named = zip(self.inputs, inputs, strict=True)
        replaced = [bad if name == own else item for own, item in named]
        return replaced, (bad if name == "out" else out)

    # --- Parameters of cases -------------------------------------------------------

    def parameters(self) -> dict[str, list[Any]]:
        """Return the values of the arguments that cases can have, by their names."""
        taken = {*self.dtypes}
        others = [dtype for dtype in DTYPES.values() if dtype.name not in taken]
        differing = [*permutations(self.types, 2)] or [(self.a_type, other) for other in others]
        return {
            "dtype": [*self.types],
            "refused_dtype": others,
            "dtypes_that_differ": [
                pytest.param(pair, id=f"{pair[0]}-{pair[1]}") for pair in differing
            ],
            "argument": [*self.arguments],
            "shifted": [*self.arguments, "all"],
            "rank": [pytest.param(shape, id=f"rank {len(shape)}") for shape in RANKS],
            "empty": [*EMPTY],
            "size_one": [*SIZE_ONE_STRIDES],
            "layout": [pytest.param(item, id=item.id) for item in STRIDED],
            "shapes_that_differ": [*DIFFERING],
            "special": [
                pytest.param((kind, dtype), id=f"{kind}-{dtype}")
                for dtype in self.types
                for kind in special_kinds(dtype)
            ],
        }

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each case its values; a suite's own cases may ask for them, too."""
        self._check_declaration()
        for name, values in self.parameters().items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values or [_NO_VALUE], ids=str)

    def _check_declaration(self) -> None:
        """Raise a UsageError for a declaration that makes no sense."""
        name = type(self).__name__
        for needed in ("function", "dtypes", "tolerance", "reference"):
            if not getattr(self, needed, None):
                raise pytest.UsageError(f"{name}: say what its `{needed}` is")
        for dtype in self.dtypes:
            if dtype not in DTYPES or not DTYPES[dtype].has_numbers:
                known = ", ".join(it.name for it in DTYPES.values() if it.has_numbers)
                raise pytest.UsageError(f"{name}.dtypes: {dtype!r} is none of {known}")
        if self.tolerance not in TOLERANCES:
            known = ", ".join(TOLERANCES)
            raise pytest.UsageError(f"{name}.tolerance: {self.tolerance!r} is none of {known}")
        for kind in self.refusals:
            if kind not in get_args(Refusal):
                known = ", ".join(get_args(Refusal))
                raise pytest.UsageError(f"{name}.refusals: {kind!r} is none of {known}")
        for case in self.without:
            if not hasattr(self, case):
                raise pytest.UsageError(f"{name}.without: there is no case {case!r}")

    def special_inputs(self, kind: str, dtype: Dtype) -> list[np.ndarray]:
        """Return the bits of inputs with each number of a kind at each place of a vector.

        With several inputs, each number of the kind meets each special number of all kinds in
        every other one.
        """
        of_kind = special_values(kind, dtype)
        if len(self.inputs) == 1:
            rows: list[tuple[int, ...]] = [(bits,) for bits in of_kind]
        else:
            all_kinds = [b for other in special_kinds(dtype) for b in special_values(other, dtype)]
            rows = [
                row
                for position in range(len(self.inputs))
                for row in product(
                    *(of_kind if i == position else all_kinds for i in range(len(self.inputs)))
                )
            ]
        # An odd length, so that repeating it moves everything on by one.
        if len(rows) % 2 == 0:
            rows = [*rows, rows[0]]
        columns = np.array(rows, np.uint64).astype(dtype.pattern)
        return [np.tile(columns[:, i], 65) for i in range(len(self.inputs))]
