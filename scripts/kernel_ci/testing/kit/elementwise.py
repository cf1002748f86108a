"""The suite of an elementwise operation."""

from __future__ import annotations

from kernel_ci.testing.kit.accelerators import Accelerators
from kernel_ci.testing.kit.frameworks import Frameworks
from kernel_ci.testing.kit.layouts import Layouts
from kernel_ci.testing.kit.refusals import Refusals
from kernel_ci.testing.kit.values import Values


class Elementwise(Accelerators, Frameworks, Refusals, Layouts, Values):
    """All cases for an operation whose arguments have one shape, one type and one device.

    A suite derives from it, says what the operation is, and is done (see `Operation` for all
    that can be said):

        class TestAdd(Elementwise):
            function = "add"
            inputs = ("x", "y")
            dtypes = ("float16", "bfloat16", "float32")
            tolerance = "exact"

            def reference(self, x, y):
                return x + y

    Its own cases are further methods. They can ask for the same parameters, such as `dtype`,
    and use the same helpers: `array`, `ins`, `out`, `check`, `check_refused`.
    """
