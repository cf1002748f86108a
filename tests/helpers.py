"""Helpers that tests import: the command, and where a shared run's results are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kernel_ci.plan import host_platform

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "kernels" / "relu-tvm-ffi"

#: The CPU variant of this machine: the one that can be built and tested here.
HOST_VARIANT = f"tvm-ffi01-cpu-{host_platform()}"


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    out: str
    err: str


def kernel_ci(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> Done:
    """Run the kernel-ci command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel_ci", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def commit(folder: Path) -> None:
    """Make a folder a git repository with all its files committed."""
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)


def committed(folder: Path) -> Path:
    """Return a copy of the reference kernel, committed in a repository of its own.

    What is built from sources with changes says so, and the copy has none whatever the
    state of the checkout is.
    """
    copy = folder / REFERENCE.name
    shutil.copytree(REFERENCE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    commit(copy)
    return copy


@dataclass(frozen=True)
class Run:
    """A pipeline's results.

    Attributes:
        folder: The run's folder.
        hub: The local Hub's folder that it published to.
        output: What it printed.
    """

    folder: Path
    hub: Path
    output: str
