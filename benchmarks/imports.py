"""How long `kernel-ci --help` takes beyond Python's own start."""

from __future__ import annotations

import sys

from benchmarks.common import KERNEL_CI, Row, command, fastest


def measure() -> list[Row]:
    """Compare it with `python -c pass`."""
    python, ours = fastest(
        [command(sys.executable, "-c", "pass"), command(*KERNEL_CI, "--help")], 10
    )
    return [
        Row("python -c pass", python * 1000, "ms"),
        Row("kernel-ci --help, beyond that", (ours - python) * 1000, "ms", 150),
    ]
