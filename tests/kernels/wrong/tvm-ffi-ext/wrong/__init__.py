"""relu with the fault that the environment variable WRONG_KERNEL names."""

from __future__ import annotations

import os
from typing import Any

from ._ops import ops  # type: ignore[import-not-found]

_relu = getattr(ops, os.environ["WRONG_KERNEL"])


def relu(x: Any, out: Any) -> Any:
    """Write relu of x to out."""
    _relu(out, x)
    return out
