"""What a release takes, in seconds and bytes sent: first, unchanged, and one variant changed.

The reference kernel's three CPU variants go to a local Hub on this machine, so the seconds are
those of kernel-ci and not of a network; the bytes are the same anywhere.
"""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from rich.console import Console

from benchmarks.common import KERNEL_CI, REFERENCE, Row, command
from kernel_ci.plan import host_platform, read_plan
from kernel_ci.publish import Options, publish
from kernel_ci.publish.report import Meter
from kernel_ci.publish.target import connect
from kernel_ci.toolchains import zig


class Counter(Meter):
    """Counts what is sent."""

    total = 0

    def sent(self, count: int) -> None:
        """Take note of bytes that were sent."""
        Counter.total += count
        super().sent(count)


def measure() -> list[Row]:
    """Publish three times: a run, the same again, and one with other bytes in one variant."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        run = _prove(folder / "run")
        other = folder / "c++"
        target, _ = zig.TARGETS[host_platform()]
        other.write_text(
            f'#!/bin/sh\nexec {zig.executable()} c++ -target {target} -fstack-protector-all "$@"\n'
        )
        other.chmod(0o755)
        changed = _prove(folder / "changed", "--compiler", other)
        for what, released in (("first", run), ("unchanged", run), ("one changed", changed)):
            Counter.total = 0
            clock = time.perf_counter()
            with connect(str(folder / "hub")) as hub, patch("kernel_ci.publish.Meter", Counter):
                console = Console(file=io.StringIO())
                publish(released, hub, options=Options(replace=True), console=console)
            rows += [
                Row(f"release, {what}", time.perf_counter() - clock, "s"),
                Row(f"sent, {what}", Counter.total / 1e6, "MB"),
            ]
    return rows


def _prove(folder: Path, *compiler: str | Path) -> Path:
    """Build and prove the CPU variants; the compiler is for this machine's own."""
    plan = folder / "plan.json"
    command(
        *KERNEL_CI, "plan", REFERENCE, "--only", "*-cpu-*", "-o", plan,
        "--build-only", "*",
    )()  # fmt: skip
    for cell in read_plan(plan).cells:
        own = compiler if cell.platform == host_platform() else ()
        command(*KERNEL_CI, "build", plan, "--cell", cell.id, "-o", folder, *own)()
    command(*KERNEL_CI, "audit", folder, "--plan", plan, "--runtimes", "none")()
    command(*KERNEL_CI, "gate", plan, folder)()
    return folder
