"""Intel's SYCL compiler, icpx, of exactly a cell's oneAPI version.

It makes ahead-of-time code for the GPUs that a cell lists, and SPIR-V for all others. Its host
part is clang with the libstdc++ of a GCC that is here, against a glibc 2.28 (see `sysroot`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import tomli

from kernel_ci.documents import Model
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, host_platform
from kernel_ci.toolchains import Compiler, sysroot

#: What is not ahead-of-time code but SPIR-V.
SPIRV = "spir64"

_ROOT = "/opt/intel/oneapi"


class Sycl(Model):
    """The content of `data/sycl.toml`; see the comments there."""

    format: Literal[1]
    compile: tuple[str, ...]
    devices: tuple[str, ...]
    ocloc: tuple[str, ...]


@lru_cache(maxsize=1)
def settings() -> Sycl:
    """Return the flags and the devices that are known."""
    text = (files("kernel_ci") / "data" / "sycl.toml").read_text(encoding="utf-8")
    return Sycl.model_validate(tomli.loads(text))


def find(cell: Cell) -> Compiler:
    """Return icpx for an XPU cell; see `toolchains.find`."""
    if cell.backend != "xpu" or cell.platform != host_platform():
        raise InputError(
            f"icpx builds no {cell.backend} variant for {cell.platform} on {host_platform()}",
            where=cell.id,
            fix="build XPU variants on a machine of their own platform",
        )
    version = cell.backend_version or ""
    options = flags(cell.archs, cell=cell.id)
    icpx = _program("icpx", "compiler", version)
    if icpx is None:
        raise InputError("there is no icpx here", where=cell.id, fix=_get(version))
    found = _version(icpx)
    if found is None or not found.startswith(f"{version}."):
        raise InputError(
            f"{icpx} is {f'of oneAPI {found}' if found else 'no icpx that works'};"
            f" the variant needs {version}",
            where=cell.id,
            fix=_get(version),
        )
    if cell.archs != (SPIRV,) and _program("ocloc", "ocloc", version) is None:
        raise InputError("there is no ocloc here", where=cell.id, fix=_get(version))
    host = " ".join(sysroot.flags(cell.parsed().arch))
    return Compiler(
        name="icpx",
        version=found,
        cmake={
            "CMAKE_C_COMPILER": str(icpx.removesuffix("icpx") + "icx"),
            "CMAKE_CXX_COMPILER": icpx,
            "CMAKE_C_FLAGS_INIT": host,
            # CMake passes them when it links, too: that is where the devices' code is made.
            "CMAKE_CXX_FLAGS_INIT": f"{host} {options}",
            # Its checks of the compiler need no devices' code.
            "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        },
        environment={},
        others=sysroot.versions(cell.parsed().arch),
        # libstdc++ needs what glibc 2.28 has in a library of its own.
        link=("-static-libstdc++", "-Wl,--no-as-needed,-lpthread,--as-needed"),
    )


def flags(archs: tuple[str, ...], *, cell: str) -> str:
    """Return icpx's options for a list such as `pvc`, `spir64`, ready for a shell.

    Args:
        archs: Devices by the names of `data/sycl.toml`, and `spir64` for SPIR-V.
        cell: The cell's id, for messages.

    Raises:
        InputError: A device is unknown, or nothing is listed.
    """
    known = (*settings().devices, SPIRV)
    if unknown := [arch for arch in archs if arch not in known]:
        raise InputError(
            f"no XPU device is called {unknown[0]!r}",
            where=cell,
            fix=f"use some of: {', '.join(known)}",
        )
    devices = [arch for arch in archs if arch != SPIRV]
    targets = [*(["spir64_gen"] if devices else []), *([SPIRV] if SPIRV in archs else [])]
    if not targets:
        raise InputError(
            "no XPU device is listed", where=cell, fix=f"add one of {', '.join(known)}"
        )
    options = [*settings().compile, f"-fsycl-targets={','.join(targets)}"]
    if devices:
        backend = f"-device {','.join(devices)} -options '{' '.join(settings().ocloc)}'"
        options.append(f'-Xsycl-target-backend=spir64_gen "{backend}"')
        # It only has a meaning when linking.
        options.append("-Wno-unused-command-line-argument")
    return " ".join(options)


def attached_version() -> str | None:
    """Return `<major>.<minor>` of the icpx that this machine uses by default, None without."""
    icpx = _program("icpx", "compiler", "latest")
    found = _version(icpx) if icpx is not None else None
    return found.rpartition(".")[0] if found is not None else None


def _program(name: str, component: str, version: str) -> str | None:
    """Return the path of one of oneAPI's programs, on PATH or below ONEAPI_ROOT."""
    root = os.environ.get("ONEAPI_ROOT", _ROOT)
    folders = [f"{root}/{component}/{release}/bin" for release in (version, "latest")]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def _get(version: str) -> str:
    return (
        f"install Intel's oneAPI DPC++ compiler {version} and ocloc, then run"
        f" `source {_ROOT}/setvars.sh`; or build on a runner that has them"
    )


def _version(icpx: str) -> str | None:
    """Return icpx's version, e.g. `2025.3.1`, None for anything else."""
    done = subprocess.run([icpx, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"oneAPI DPC\+\+/C\+\+ Compiler ([0-9]+\.[0-9]+\.[0-9]+)", done.stdout)
    return found[1] if found and done.returncode == 0 else None
