"""Trying again what failed for no fault of the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kernel_ci.errors import InfrastructureError
from kernel_ci.github.actions import annotate

T = TypeVar("T")

#: Tries in all, and the seconds before the second one; they double from try to try.
TRIES = 3
FIRST_PAUSE = 5.0


def retry(call: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what a call returns; try again where the infrastructure failed.

    Any other error, a refused build or a failing test above all, is the call's result.

    Raises:
        InfrastructureError: Every try failed.
    """
    pause = FIRST_PAUSE
    for number in range(1, TRIES):
        try:
            return call()
        except InfrastructureError as error:
            annotate("warning", f"try {number} of {TRIES} failed: {error}", title="kernel-ci")
            sleep(pause)
            pause *= 2
    return call()
