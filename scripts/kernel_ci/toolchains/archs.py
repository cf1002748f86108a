"""Lists of GPU architectures, as build.toml writes them: `8.0`, `9.0+PTX`, `gfx90a`."""

from __future__ import annotations

from collections.abc import Iterable

PTX = "+PTX"


def merge(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the architectures of several lists; `9.0+PTX` stands for `9.0` too."""
    found = dict.fromkeys(arch for archs in lists for arch in archs)
    return tuple(arch for arch in found if arch + PTX not in found)
