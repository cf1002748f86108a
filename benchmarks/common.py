"""Timing, and the rows that benchmarks are shown and written as."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REFERENCE = Path(__file__).resolve().parent.parent / "kernels" / "relu-tvm-ffi"
KERNEL_CI = (sys.executable, "-m", "kernel_ci")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        what: What was measured.
        value: The number.
        unit: Its unit.
        goal: The most that it may be, None where there is no goal.
    """

    what: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or empty without a goal."""
        if self.goal is None:
            return ""
        return "met" if self.value <= self.goal else "missed"


def fastest(runs: Sequence[Callable[[], object]], rounds: int = 3) -> list[float]:
    """Return the fastest of several rounds of each, in seconds; the runs alternate."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for index, run in enumerate(runs):
            clock = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - clock)
    return best


def command(*arguments: str | Path, cwd: Path | None = None) -> Callable[[], None]:
    """Return a call that runs a command without showing what it prints.

    Raises:
        subprocess.CalledProcessError: (the call) The command failed.
    """

    def run() -> None:
        subprocess.run(list(map(str, arguments)), cwd=cwd, capture_output=True, check=True)

    return run


def peak(*arguments: str | Path, cwd: Path | None = None) -> float:
    """Return the most memory that a command held at a time, in MB (Linux counts kB)."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], capture_output=True, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout) / 1000
