"""How a static audit grows with size, and against `auditwheel show` and kernel-abi-check.

auditwheel takes wheels alone, so it gets the library in one, not compressed. The libraries are
the reference kernel's with a section of random bytes added, so their tables are the same; in
practice it is GPU code that makes a library large.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.common import KERNEL_CI, REFERENCE, Row, command, fastest, peak
from kernel_ci.plan import host_platform

SIZES = (1, 10, 100, 1000)
_CHECK = """
import sys, kernel_abi_check
library = kernel_abi_check.ObjectFile(sys.argv[1])
library.check_manylinux("manylinux_2_28")
library.check_python_abi("3.9")
"""


def measure() -> list[Row]:
    """Audit each library three times, alternating with the others' commands."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as work:
        folder = Path(work)
        library = _build(folder)
        for size in SIZES:
            padded = _pad(library, folder / f"library{size}.so", size)
            wheel = _pack(padded, folder / "library-1-cp39-abi3-linux_x86_64.whl")
            runs = [
                command(*KERNEL_CI, "audit", padded),
                command(sys.executable, "-c", _CHECK, padded),
                command(sys.executable, "-m", "auditwheel", "show", wheel),
            ]
            ours, check, show = fastest(runs, 3 if size < 1000 else 2)
            rows += [
                Row(f"audit {size} MB", ours, "s"),
                Row(f"audit {size} MB / kernel_abi_check", ours / check, "x", 1),
                Row(f"audit {size} MB / auditwheel show", ours / show, "x", 1),
                Row(f"memory, audit {size} MB", peak(*KERNEL_CI, "audit", padded), "MB"),
            ]
            padded.unlink()
    return rows


def _build(folder: Path) -> Path:
    """Return the library of the reference kernel's CPU variant for this machine."""
    variant = f"*-cpu-{host_platform()}"
    plan = folder / "out" / "plan.json"
    command(*KERNEL_CI, "plan", REFERENCE, "--only", variant, "-o", plan)()
    command(*KERNEL_CI, "build", plan)()
    return next(plan.parent.rglob("*.so"))


def _pad(library: Path, target: Path, size: int) -> Path:
    """Copy a library with a section of so many MB of random bytes added."""
    padding = target.with_suffix(".padding")
    block = os.urandom(1_000_000)
    with padding.open("wb") as file:
        for _ in range(size):
            file.write(block)
    section = ("--add-section", f".padding={padding}")
    subprocess.run(["objcopy", *section, str(library), str(target)], check=True)
    padding.unlink()
    return target


def _pack(library: Path, target: Path) -> Path:
    """Put a library into a wheel."""
    with zipfile.ZipFile(target, "w") as wheel:
        wheel.write(library, "library/library.abi3.so")
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: library\nVersion: 1\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp39-abi3-linux_x86_64\n"),
            ("RECORD", "library/library.abi3.so,,\n"),
        ):
            wheel.writestr(f"library-1.dist-info/{name}", text)
    return target
