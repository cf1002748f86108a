"""zig's clang, from its wheel: builds for any Linux (glibc 2.28) and for macOS.

It brings libc headers, libc++ and a linker for every target, so a machine with nothing but
Python builds manylinux_2_28 libraries for both architectures, and macOS ones for the CPU.
The first build for a target compiles zig's own libc++ and takes about a minute.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from importlib.metadata import version as installed_version
from pathlib import Path

from kernel_ci import cache
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell
from kernel_ci.toolchains import Compiler

#: Platform -> zig's target and what CMake must be told about it. macOS 15.0 is the minimum
#: that upstream's CPU kernels have.
TARGETS: dict[str, tuple[str, dict[str, str]]] = {
    "x86_64-linux": (
        "x86_64-linux-gnu.2.28",
        {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "x86_64"},
    ),
    "aarch64-linux": (
        "aarch64-linux-gnu.2.28",
        {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64"},
    ),
    "aarch64-darwin": (
        "aarch64-macos.15.0",
        {"CMAKE_SYSTEM_NAME": "Darwin", "CMAKE_SYSTEM_PROCESSOR": "arm64"},
    ),
}

#: What CMake would find out of zig, for C and C++, with test builds, which take as long as a
#: small kernel does. The version it needs besides, and asks the compiler for, is clang's.
_KNOWN = {
    "COMPILER_ID_RUN": "1",
    "COMPILER_ID": "Clang",
    "COMPILER_FRONTEND_VARIANT": "GNU",
    "STANDARD_COMPUTED_DEFAULT": "17",
    "EXTENSIONS_COMPUTED_DEFAULT": "ON",
    "COMPILER_WORKS": "ON",
    "ABI_COMPILED": "ON",
}


def find(cell: Cell) -> Compiler:
    """Return zig's compiler for a CPU cell; see `toolchains.find`."""
    if cell.backend != "cpu" or cell.platform not in TARGETS:
        raise InputError(
            f"zig builds no {cell.backend} variant for {cell.platform}",
            where=cell.id,
            fix=f"it builds CPU variants for: {', '.join(TARGETS)}",
        )
    target, system = TARGETS[cell.platform]
    flags = f"-target {target}"
    return Compiler(
        name="zig",
        version=version(),
        cmake={
            "CMAKE_C_COMPILER": f"{executable()};cc",
            "CMAKE_CXX_COMPILER": f"{executable()};c++",
            "CMAKE_C_FLAGS_INIT": flags,
            "CMAKE_CXX_FLAGS_INIT": flags,
            **system,
            **known(system["CMAKE_SYSTEM_NAME"]),
        },
        environment={},
    )


def known(system: str) -> dict[str, str]:
    """Return the CMake entries that spare it its test builds.

    Args:
        system: CMake's name of the target's system, `Linux` or `Darwin`.
    """
    answers = {**_KNOWN, "PLATFORM_ID": system, "COMPILER_VERSION": _clang_version()}
    return {
        f"CMAKE_{language}_{name}": answer
        for language in ("C", "CXX")
        for name, answer in answers.items()
    }


def executable() -> Path:
    """Return zig, in a place that is the same for all environments of this user.

    zig keeps what it has compiled of its libc++ by its own path; with one path an
    environment need not spend a minute a target on what another has done already.

    Raises:
        InputError: zig is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise InputError("zig is not installed", fix="pip install ziglang, or pass --compiler c++")
    installed = Path(spec.origin).parent
    kept = cache.root() / "zig" / installed_version("ziglang")
    with cache.lock(kept):
        if not kept.is_dir():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                shutil.copytree(installed, Path(scratch) / "zig", copy_function=_link)
                (Path(scratch) / "zig").rename(kept)
    return kept / ("zig.exe" if (kept / "zig.exe").exists() else "zig")


def _link(source: str, target: str) -> None:
    """Link a file into the cache, or copy it where that is on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@lru_cache(maxsize=1)
def version() -> str:
    """Return zig's version."""
    done = subprocess.run([executable(), "version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@lru_cache(maxsize=1)
def _clang_version() -> str:
    """Return the version of the clang in zig, such as `22.1.8`."""
    command = (executable(), "c++", "--version")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"clang version (\d+(?:\.\d+)*)", done.stdout)
    if found is None:
        raise InputError(
            f"zig {version()} does not tell the version of its clang: {done.stdout!r}",
            fix="install the version of ziglang that constraints.txt of kernel-ci names",
        )
    return found[1]
