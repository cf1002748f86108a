"""GCC as the host compiler of CUDA, native or cross."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_ci.errors import InputError
from kernel_ci.plan import host_platform


@dataclass(frozen=True)
class Gcc:
    """A GCC that is installed here.

    Attributes:
        cxx: Path of its C++ compiler.
        c: Path of its C compiler.
        version: Its full version, e.g. `12.2.0`.
    """

    cxx: str
    c: str
    version: str


def find(arch: str, newest: int | None, override: str | None = None, *, cell: str) -> Gcc:
    """Return a GCC for an architecture that is not too new.

    Args:
        arch: `x86_64` or `aarch64`.
        newest: The newest major version that will do; None for any.
        override: The C++ compiler to take (name or path); by default $CUDAHOSTCXX, then `g++`,
            then the newest `g++-<major>` that will do; with the target's prefix where it is not
            this machine's architecture.
        cell: The cell's id, for messages.

    Raises:
        InputError: None is here, the named one is no GCC for the architecture, or is too new.
    """
    limit = "" if newest is None else f" {newest} or older"
    named = override or os.environ.get("CUDAHOSTCXX")
    prefix = "" if host_platform() == f"{arch}-linux" else f"{arch}-linux-gnu-"
    package = f"g++-{arch.replace('_', '-')}-linux-gnu" if prefix else "g++"
    refused = []
    for name in [named] if named else _names(prefix, newest):
        path = shutil.which(name)
        if path is None:
            continue
        version = _version(path, arch)
        if version is None:
            refused.append(f"{name} is no GCC for {arch}")
        elif newest is not None and int(version.split(".")[0]) > newest:
            refused.append(f"{name} is GCC {version}, which is too new for nvcc")
        else:
            c = path[: path.rindex("g++")] + "gcc" + path[path.rindex("g++") + 3 :]
            return Gcc(path, c, version)
    if named and not refused:
        refused = [f"no such compiler: {named!r}"]
    raise InputError(
        "; ".join(refused) or f"there is no GCC for {arch} here",
        where=cell,
        fix=f"install GCC{limit} for {arch} (Debian's package {package}, or {package} with a"
        " version), or name one with --compiler",
    )


def _names(prefix: str, newest: int | None) -> Iterator[str]:
    yield f"{prefix}g++"
    for major in range(newest or 20, 8, -1):
        yield f"{prefix}g++-{major}"


def _version(path: str, arch: str) -> str | None:
    """Return the version of a GCC for an architecture, None for anything else."""

    def ask(option: str) -> str:
        done = subprocess.run([path, option], capture_output=True, text=True, check=False)
        return "" if done.returncode else done.stdout.strip()

    # clang++ can be installed as g++, and answers -dumpfullversion as well.
    if "g++" not in path.rpartition("/")[2] or "Free Software Foundation" not in ask("--version"):
        return None
    version = ask("-dumpfullversion")
    good = ask("-dumpmachine").startswith(f"{arch}-") and re.fullmatch(
        r"[0-9]+(\.[0-9]+)+", version
    )
    return version if good else None
