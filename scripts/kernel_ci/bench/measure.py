"""Timing one build, or two in turn, in worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kernel_ci.bench.compare import compare, pair_ratios
from kernel_ci.bench.document import Workload
from kernel_ci.errors import InputError, Rejected

#: Pairs of fresh processes. See `compare` for why there are several, and why ten.
ROUNDS = 10
#: A B B A blocks of a workload in one round.
BLOCKS = 11
#: Calls of one timing take at least this long, so that neither the clock nor the way from
#: one process to the other matters.
SECONDS = 0.004
_MOST_CALLS = 1_000_000
#: After which a worker that does not answer is given up.
_PATIENCE = 300.0


@dataclass(frozen=True)
class Build:
    """A build to time.

    Attributes:
        name: What messages call it.
        directory: Its variant directory.
    """

    name: str
    directory: Path


class Worker:
    """A process of `kernel_ci.bench.worker`; use it as a context manager."""

    def __init__(self, build: Build, benchmarks: Path, backend: str):
        self._build = build
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {k: v for k, v in os.environ.items() if k != "LOCAL_KERNELS"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kernel_ci.bench.worker", *map(str, (
                build.directory.resolve(), benchmarks.resolve(), backend))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"},
        )  # fmt: skip

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, do: str, **values: object) -> Any:
        """Send a request and return the answer (see `answer`)."""
        self.send(do, **values)
        return self.answer()

    def send(self, do: str, **values: object) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        # Of a process that is gone, `answer` tells why.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the request that was sent.

        Raises:
            Rejected: The benchmark or the kernel is at fault.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(_PATIENCE, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise self._fault(
                f"the process ended with status {self._process.wait()}"
                f" (it is given {_PATIENCE:.0f} s an answer){': ' if last else ''}{''.join(last)}"
            )
        reply = json.loads(line)
        if "error" in reply:
            raise self._fault(reply["error"])
        return reply["ok"]

    def _fault(self, what: str) -> Rejected:
        return Rejected(
            f"nothing was measured: {what}",
            where=self._build.name,
            fix="mend the benchmark or the kernel; what is wrong has no speed",
        )


def measure(
    build: Build,
    against: Build | None,
    benchmarks: Path,
    backend: str,
    *,
    rounds: int = ROUNDS,
) -> tuple[Workload, ...]:
    """Time a build's workloads, in turn with those of another build where one is named.

    Args:
        build: The build.
        against: The one to compare it with, or None.
        benchmarks: The folder with `benchmark*.py`; both builds run the same scripts.
        backend: The backend of both.
        rounds: How many times to begin anew with fresh processes.

    Raises:
        InputError: There is no benchmark.
        Rejected: A benchmark raised, or a build computes something else than it verifies.
    """
    if not any(benchmarks.glob("benchmark*.py")):
        raise InputError(
            "there is no benchmark*.py",
            where=benchmarks,
            fix="write one with a class derived from kernels.benchmark.Benchmark",
        )
    builds = [build] if against is None else [against, build]
    times: dict[str, list[list[float]]] = {}
    ratios: dict[str, list[list[float]]] = {}
    verified: dict[str, bool] = {}
    calls: dict[str, int] = {}
    for number in range(rounds):
        with ExitStack() as stack:
            # Which one is first to take memory changes from round to round.
            order = builds if number % 2 == 0 else builds[::-1]
            started = {
                it.name: stack.enter_context(Worker(it, benchmarks, backend)) for it in order
            }
            workers = [started[it.name] for it in builds]
            # Imports take the most time of a round, so both do them at once.
            for worker in workers:
                worker.send("load")
            names = [worker.answer() for worker in workers][-1]
            if not names:
                raise InputError(
                    "there is no benchmark_* method",
                    where=benchmarks,
                    fix="derive a class from kernels.benchmark.Benchmark with such methods",
                )
            for name in names:
                checked = [worker.ask("prepare", name=name) for worker in workers]
                verified[name] = all(checked)
                if name not in calls:
                    calls[name] = _calibrate(workers[-1])
                count = calls[name]
                for worker in workers:
                    worker.ask("time", calls=count)
                found = times.setdefault(name, [[] for _ in builds])
                pairs: list[float] = []
                for _ in range(BLOCKS):
                    # A B B A, where B is this build.
                    first, last = workers[0], workers[-1]
                    a1, b1, b2, a2 = (
                        worker.ask("time", calls=count) for worker in (first, last, last, first)
                    )
                    found[0] += [a1, a2]
                    found[-1] += [b1, b2]
                    pairs += pair_ratios(a1, b1, b2, a2)
                ratios.setdefault(name, []).append(pairs)
    return tuple(
        Workload(
            name=name,
            verified=verified[name],
            calls=calls[name],
            seconds=median(times[name][-1]),
            against_seconds=median(times[name][0]) if against is not None else None,
            ratio=compare(ratios[name]) if against is not None else None,
        )
        for name in calls
    )


def _calibrate(worker: Worker) -> int:
    """Return how many calls take `SECONDS`."""
    calls = 1
    while calls < _MOST_CALLS:
        seconds = worker.ask("time", calls=calls)
        if seconds * calls >= SECONDS:
            break
        calls = min(_MOST_CALLS, max(2 * calls, int(SECONDS / max(seconds, 1e-9)) + 1))
    return calls
