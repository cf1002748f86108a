"""Where downloaded and unpacked things are kept between runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def root() -> Path:
    """Return the cache folder: `KERNEL_CI_CACHE`, or the platform's user cache."""
    if configured := os.environ.get("KERNEL_CI_CACHE"):
        return Path(configured).expanduser().resolve()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernel-ci"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "kernel-ci"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernel-ci"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, so that parallel runs fill the cache once."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        yield
