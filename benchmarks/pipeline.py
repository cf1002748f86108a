"""A second pipeline run, of ten kernels: unchanged, and with one of them touched."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.common import KERNEL_CI, Row, command, fastest
from kernel_ci.init import write_kernel
from kernel_ci.plan import host_platform

COUNT = 10


def measure() -> list[Row]:
    """Run the pipeline three times; the first once only, as it takes minutes."""
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        names = [f"kernel{number}" for number in range(COUNT)]
        for name in names:
            write_kernel(name, folder / name, repo_id=f"kernel-ci-bench/{name}")
        only = f"*-cpu-{host_platform()}"
        run = command(*KERNEL_CI, "pipeline", *names, "--only", only, "-o", "out", cwd=folder)
        (first,) = fastest([run], 1)
        (second,) = fastest([run], 2)
        source = next((folder / names[0]).rglob("*.cc"))
        source.write_text(f"{source.read_text()}// touched\n")
        (touched,) = fastest([run], 1)
    return [
        Row(f"pipeline of {COUNT} kernels", first, "s"),
        Row("again, unchanged", second, "s"),
        Row("again, unchanged / first", second / first, "x", 0.05),
        Row(f"again, one of {COUNT} touched / first", touched / first, "x"),
    ]
