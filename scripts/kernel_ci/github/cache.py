"""Compiler caches: where they are, and the key that says what is in one.

A cache is only taken for the same toolkit, compiler, architectures and exact release of
tvm-ffi; with any of them left out, objects that no longer fit would be reused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_ci import __version__, toolchains
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, Plan, host_platform

#: Programs that keep objects, in the order of preference, and the variable of their folder.
_PROGRAMS = {"sccache": "SCCACHE_DIR", "ccache": "CCACHE_DIR"}
_LANGUAGES = ("C", "CXX", "CUDA")


@dataclass(frozen=True)
class Cache:
    """A compiler cache.

    Attributes:
        prefix: What must be the same for it to be of use.
        key: The prefix, and the sources that it was filled from.
        paths: The folders to keep.
    """

    prefix: str
    key: str
    paths: tuple[str, ...]


def describe(plan: Plan, cell: Cell) -> Cache:
    """Return the cache of a cell on this machine."""
    try:
        found = toolchains.find(cell)
        compiler = f"{found.name} {found.version}"
    except InputError:
        # The build will say what is missing; until then there is nothing to keep.
        compiler = "none"
    prefix = key_prefix(cell, compiler, host_platform())
    source = plan.kernel(cell.kernel).source.digest.removeprefix("sha256:")[:16]
    return Cache(prefix, f"{prefix}{source}", folders(os.environ))


def key_prefix(cell: Cell, compiler: str, host: str) -> str:
    """Return the part of a key that all usable caches of a cell share."""
    parts = {
        "kernel-ci": __version__,
        "toolkit": f"{cell.toolchain} {cell.backend_version or ''}",
        "compiler": compiler,
        "archs": " ".join(cell.archs),
        "tvm-ffi": cell.tvm_ffi,
        "host": host,
        "target": cell.platform,
    }
    text = "\n".join(f"{name}: {value}" for name, value in parts.items())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    # The parts that people look for, in the open; all of them in the digest.
    return f"kernel-ci-{cell.variant}-tvm-ffi-{cell.tvm_ffi}-{digest}-"


def folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of all compiler caches that this machine uses."""
    base = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")) / ".cache")
    found = [environ.get("ZIG_GLOBAL_CACHE_DIR") or str(base / "zig")]
    for program, variable in _PROGRAMS.items():
        found.append(environ.get(variable) or str(base / program))
    return tuple(found)


def launchers(toolchain: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make CMake compile through an object cache, if one is here.

    CMake reads `CMAKE_<LANG>_COMPILER_LAUNCHER` from the environment (since 3.17), and our
    project puts that of CUDA before all compilers of GPU code. zig keeps objects itself, and
    takes no launcher: its compiler is a sub-command.
    """
    path = environ.get("PATH")
    program = next((name for name in _PROGRAMS if shutil.which(name, path=path)), None)
    if program is None or toolchain == "zig":
        return {}
    found = {f"CMAKE_{language}_COMPILER_LAUNCHER": program for language in _LANGUAGES}
    if program == "ccache":
        # Each build runs in a new folder, whose path is in no object; ccache would look at it,
        # because it takes nvcc's -gencode for an option of debugging, -g.
        found["CCACHE_NOHASHDIR"] = "1"
    return {name: value for name, value in found.items() if name not in environ}
