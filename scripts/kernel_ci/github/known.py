"""What kernel-ci knows of GitHub: the content of `data/github.toml`, see the comments there."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@lru_cache(maxsize=1)
def known() -> dict[str, Any]:
    """Return the tables of the file."""
    return tomllib.loads((files("kernel_ci") / "data" / "github.toml").read_text(encoding="utf-8"))
