"""What a build takes beyond the compiler and linker command lines that it runs."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.common import REFERENCE, Row, fastest
from kernel_ci import toolchains, tvm_ffi
from kernel_ci.build import build_cell, host, package
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, Plan, Selection, host_platform, plan_folders

#: Variant, the goal for build / command lines, and how often each is run.
CELLS = (("cpu", 1.10, 4), ("cu130", 1.05, 3))


def measure() -> list[Row]:
    """Build variants for this platform one compiler at a time, and run their lines alone."""
    rows = []
    for name, goal, rounds in CELLS:
        plan = plan_folders([REFERENCE], Selection(only=(f"*-{name}-{host_platform()}",)))
        (cell,) = plan.cells
        try:
            rows += _compare(plan, cell, name, goal, rounds)
        except InputError as error:
            Console().print(f"{cell.id} was left out: {error}", markup=False, highlight=False)
    return rows


def _compare(plan: Plan, cell: Cell, name: str, goal: float, rounds: int) -> list[Row]:
    planned = plan.kernel(cell.kernel)
    kernel = open_kernel(planned)
    compiler = toolchains.find(cell)
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    environment = {**os.environ, **compiler.environment}
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        bare = folder / "bare"
        bare.mkdir()
        identity = package.variant_id(kernel, cell, planned.source)
        host.compile_library(kernel, cell, release, compiler, identity, bare, jobs=1)
        listed = subprocess.run(
            ["ninja", "-C", str(bare / "build"), "-t", "commands"],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line for line in listed.stdout.splitlines() if not line.startswith("ninja:")]
        number = itertools.count()

        def alone() -> None:
            # In a folder of its own each time, as for zig the same command is done already.
            fresh = folder / f"bare{next(number)}"
            shutil.copytree(bare, fresh)
            for line in lines:
                subprocess.run(
                    line.replace(str(bare), str(fresh)),
                    shell=True,
                    cwd=fresh / "build",
                    env=environment,
                    capture_output=True,
                    check=True,
                )

        def build() -> None:
            receipt = build_cell(plan, cell, folder / "out", jobs=1)
            assert receipt.outcome == "passed", receipt.findings

        ours, theirs = fastest([build, alone], rounds)
    return [
        Row(f"{name}: compiler and linker alone", theirs, "s"),
        Row(f"{name}: build", ours, "s"),
        Row(f"{name}: build / compiler and linker", ours / theirs, "x", goal),
    ]
