"""A C++ compiler of this machine, named by `--compiler`; it builds for this machine only."""

from __future__ import annotations

import shutil
import subprocess

from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, host_platform
from kernel_ci.toolchains import Compiler

#: C++ compiler -> its C compiler, where it is not just the name without `++`.
_C_COMPILERS = {"c++": "cc", "g++": "gcc", "clang++": "clang"}


def find(cell: Cell, name: str) -> Compiler:
    """Return a C++ compiler of this machine for a CPU cell; see `toolchains.find`."""
    path = shutil.which(name)
    if path is None:
        raise InputError(
            f"no such compiler: {name!r}", where="--compiler", fix="name a C++ compiler on PATH"
        )
    if cell.backend != "cpu" or cell.platform != host_platform():
        raise InputError(
            f"{name} builds CPU variants for {host_platform()} only",
            where=cell.id,
            fix="leave --compiler out for this cell",
        )
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = (done.stdout or done.stderr).strip().splitlines()
    if done.returncode or not version:
        raise InputError(f"{name!r} does not work as a compiler", where="--compiler")
    base = path.rpartition("/")[2]
    stem = next((s for s in ("clang++", "g++", "c++") if base.startswith(s)), None)
    c_compiler = shutil.which(base.replace(stem, _C_COMPILERS[stem], 1)) if stem else None
    return Compiler(
        name=base,
        version=version[0],
        cmake={
            "CMAKE_CXX_COMPILER": path,
            **({"CMAKE_C_COMPILER": c_compiler} if c_compiler else {}),
        },
        environment={},
    )
