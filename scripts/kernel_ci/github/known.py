"""What kernel-ci knows of GitHub: the content of `data/github.toml`, see the comments there."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import tomli


@lru_cache(maxsize=1)
def known() -> dict[str, Any]:
    """Return the tables of the file."""
    return tomli.loads((files("kernel_ci") / "data" / "github.toml").read_text(encoding="utf-8"))
