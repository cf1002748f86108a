"""What a build takes beyond the compiler and linker command lines that it runs (CPU)."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.common import REFERENCE, Row, fastest
from kernel_ci import toolchains, tvm_ffi
from kernel_ci.build import build_cell, host, package
from kernel_ci.checkout import open_kernel
from kernel_ci.plan import Selection, host_platform, plan_folders


def measure() -> list[Row]:
    """Build this machine's CPU variant one compiler at a time, and run its lines alone."""
    plan = plan_folders([REFERENCE], Selection(only=(f"*-cpu-{host_platform()}",)))
    (cell,) = plan.cells
    planned = plan.kernel(cell.kernel)
    kernel = open_kernel(planned)
    compiler = toolchains.find(cell)
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        bare = folder / "bare"
        bare.mkdir()
        name = package.variant_id(kernel, cell, planned.source)
        host.compile_library(kernel, cell, release, compiler, name, bare, jobs=1)
        listed = subprocess.run(
            ["ninja", "-C", str(bare / "build"), "-t", "commands"],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line for line in listed.stdout.splitlines() if not line.startswith("ninja:")]
        environment = {**os.environ, **compiler.environment}
        rounds = itertools.count()

        def alone() -> None:
            # In a folder of its own each time, as for zig the same command is done already.
            fresh = folder / f"bare{next(rounds)}"
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

        ours, theirs = fastest([build, alone], 4)
    return [
        Row("compiler and linker alone", theirs, "s"),
        Row("build of the CPU cell", ours, "s"),
        Row("build / compiler and linker", ours / theirs, "x", 1.10),
    ]
