"""How planning grows with the number of kernels, on the full matrix."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.common import KERNEL_CI, REFERENCE, Row, command, fastest, peak

COUNTS = (1, 10, 100, 1000)


def measure() -> list[Row]:
    """Plan copies of the reference kernel, committed in one repository."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        names = [f"k{number:04}" for number in range(max(COUNTS))]
        for name in names:
            _copy(folder / name)
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
        for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "kernels")):
            subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
        plans: list[tuple[str | Path, ...]] = [
            (*KERNEL_CI, "plan", *names[:count], "-o", Path("out/plan.json")) for count in COUNTS
        ]
        command(*plans[0], cwd=folder)()
        found = fastest([command(*plan, cwd=folder) for plan in plans])
        for count, seconds in zip(COUNTS, found, strict=True):
            rows.append(Row(f"plan {count} kernels", seconds, "s", 2 if count == 1000 else None))
        # Ten times as many kernels may take ten times as long, without the start of Python.
        growth = (found[3] - found[0]) / (found[2] - found[0])
        rows.append(Row("1,000 kernels against 100", growth, "x", 12))
        rows.append(Row("memory for 1,000 kernels", peak(*plans[-1], cwd=folder), "MB", 300))
    return rows


def _copy(target: Path) -> None:
    """Copy the reference kernel under another name."""
    ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache", "build", "out")
    shutil.copytree(REFERENCE, target, ignore=ignore)
    file = target / "build.toml"
    text = file.read_text()
    file.write_text(text.replace("relu-tvm-ffi", target.name))
    package = target / "tvm-ffi-ext"
    (package / "relu_tvm_ffi").rename(package / target.name)
