"""CUDA's nvcc: the machine's own of exactly a cell's version, else one out of PyPI's wheels.

The host compiler is GCC, and everything is built against a glibc 2.28 (see `sysroot`). A kernel
for the other architecture needs a GCC that is a cross compiler, and CUDA's runtime for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, host_platform
from kernel_ci.toolchains import Compiler, gcc, pypi, sysroot
from kernel_ci.toolchains.archs import PTX
from kernel_ci.toolchains.table import toolkits

#: pip's platform tag for CUDA's wheels for the other architecture.
_WHEEL_PLATFORMS = {"aarch64": "manylinux2014_aarch64", "x86_64": "manylinux2014_x86_64"}


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit that is installed here.

    Attributes:
        nvcc: Path of its nvcc.
        version: Its full version, e.g. `13.0.88`.
        root: Its folder.
        includes: Its include folders.
        libraries: Its folders of libraries for this machine.
    """

    nvcc: Path
    version: str
    root: Path
    includes: tuple[Path, ...]
    libraries: tuple[Path, ...]

    @property
    def release(self) -> str:
        """`<major>.<minor>`."""
        return ".".join(self.version.split(".")[:2])


def find(cell: Cell, host_compiler: str | None = None) -> Compiler:
    """Return nvcc, with its host compiler, for a CUDA cell; see `toolchains.find`."""
    parsed = cell.parsed()
    host = host_platform()
    if cell.backend != "cuda" or parsed.os != "linux" or not host.endswith("-linux"):
        raise InputError(
            f"nvcc builds no {cell.backend} variant for {cell.platform} on {host}",
            where=cell.id,
            fix="build CUDA variants on Linux",
        )
    version = cell.backend_version or ""
    row = toolkits().find_cuda(version)
    chosen = gcc.find(parsed.arch, row.gcc if row else None, host_compiler, cell=cell.id)
    toolkit = find_toolkit(version, cell=cell.id)
    flags = sysroot.flags(parsed.arch)
    includes = [] if cell.platform == host else _device_includes(toolkit)
    return Compiler(
        name="nvcc",
        version=toolkit.version,
        cmake={
            "CMAKE_C_COMPILER": chosen.c,
            "CMAKE_CXX_COMPILER": chosen.cxx,
            # The sysroot has nothing that programs need.
            "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
            "CMAKE_C_FLAGS_INIT": " ".join(flags),
            "CMAKE_CXX_FLAGS_INIT": " ".join(flags),
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": parsed.arch,
        },
        environment={},
        others={"gcc": chosen.version, **sysroot.versions(parsed.arch)},
        device=(
            str(toolkit.nvcc),
            f"-ccbin={chosen.cxx}",
            *(f"-Xcompiler={flag}" for flag in flags),
            *includes,
            # Names of static symbols hold a hash of the file's path, which two machines must
            # not have different.
            "-Xcudafe=--orig_src_path_name=@SOURCE@",
            f"--threads={max(1, min(len(cell.archs), os.cpu_count() or 1))}",
        ),
        # The runtime goes into the library: a kernel must not depend on which of them the
        # framework brings. Then what the runtime needs.
        link=(
            "-static-libstdc++",
            str(_runtime(toolkit, parsed.arch, cell.id)),
            "-lrt",
            "-lpthread",
            "-ldl",
        ),
    )


def architecture_flags(archs: tuple[str, ...]) -> list[str]:
    """Return nvcc's options for a list such as `8.0`, `9.0a`, `12.0+PTX`."""
    options = []
    for arch in archs:
        number = arch.removesuffix(PTX).replace(".", "")
        options.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if arch.endswith(PTX):
            options.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return options


def find_toolkit(version: str, *, cell: str) -> Toolkit:
    """Return a toolkit of exactly this version.

    Args:
        version: `<major>.<minor>`.
        cell: The cell's id, for messages.

    Raises:
        InputError: None is here, and PyPI has none.
        InfrastructureError: It could not be downloaded.
    """
    others = []
    for path in _candidates(version):
        toolkit = _inspect(path)
        if toolkit is None:
            continue
        if toolkit.release == version:
            return toolkit
        others.append(f"{path} is {toolkit.release}")
    row = toolkits().find_cuda(version)
    if row is None or row.version != version or not row.wheels:
        raise InputError(
            f"there is no nvcc of CUDA {version} here"
            + (f" ({'; '.join(dict.fromkeys(others))})" if others else ""),
            where=cell,
            fix=f"install CUDA {version} or build in a container that has it, and name it with"
            " CUDA_HOME; PyPI has no nvcc of this version",
        )
    # In the wheels' layout since CUDA 13.
    nvcc = pypi.install(row.wheels) / "nvidia" / "cu13" / "bin" / "nvcc"
    toolkit = _inspect(nvcc)
    if toolkit is None or toolkit.release != version:
        raise InputError(
            f"the nvcc out of PyPI's wheels does not work, or is not of CUDA {version}: {nvcc}",
            where=cell,
            fix="remove its folder and run again",
        )
    return toolkit


def attached_version() -> str | None:
    """Return `<major>.<minor>` of the nvcc that this machine uses by default, None without."""
    for path in _candidates(None):
        toolkit = _inspect(path)
        if toolkit is not None:
            return toolkit.release
    return None


def _candidates(version: str | None) -> Iterator[Path]:
    """Return where an nvcc may be; with a version, also in that version's own folder."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value) / "bin" / "nvcc"
    if found := shutil.which("nvcc"):
        yield Path(found)
    if version is not None:
        yield Path(f"/usr/local/cuda-{version}/bin/nvcc")
    yield Path("/usr/local/cuda/bin/nvcc")


@lru_cache(maxsize=16)
def _inspect(nvcc: Path) -> Toolkit | None:
    """Ask an nvcc what it is and where its parts are; None if it does not work."""

    def ask(*options: str) -> str:
        done = subprocess.run(
            [str(nvcc), *options], capture_output=True, text=True, check=False, cwd="/"
        )
        return done.stdout + done.stderr if done.returncode == 0 else ""

    if not nvcc.is_file():
        return None
    version = re.search(r"release [0-9.]+, V([0-9]+\.[0-9]+\.[0-9]+)", ask("--version"))
    # The file need not exist; the settings are all that is wanted.
    settings = ask("--dryrun", "-c", "settings.cu")
    top = re.search(r"^#\$ TOP=(.+)$", settings, re.MULTILINE)
    if version is None or top is None:
        return None

    def folders(name: str, option: str) -> tuple[Path, ...]:
        line = re.search(rf"^#\$ {name}=(.*)$", settings, re.MULTILINE)
        found = re.findall(rf'"(?:{option})?(/[^"]+)"', line[1]) if line else []
        return tuple(Path(os.path.normpath(folder)) for folder in found)

    return Toolkit(
        nvcc=nvcc,
        version=version[1],
        root=Path(os.path.normpath(top[1])),
        includes=(*folders("INCLUDES", "-I"), *folders("SYSTEM_INCLUDES", "-isystem")),
        libraries=folders("LIBRARIES", "-L"),
    )


def _device_includes(toolkit: Toolkit) -> list[str]:
    """Return options for the headers of this machine's toolkit, which serve any target.

    With a cross compiler nvcc looks for a folder of that target, which few toolkits have.
    """
    return [f"-I{folder}" for folder in toolkit.includes]


def _runtime(toolkit: Toolkit, arch: str, cell: str) -> Path:
    """Return CUDA's static runtime for an architecture."""
    folders = list(toolkit.libraries)
    if host_platform() != f"{arch}-linux":
        target = "sbsa-linux" if arch == "aarch64" else "x86_64-linux"
        folders = [toolkit.root / "targets" / target / "lib"]
        if not (folders[0] / "libcudart_static.a").is_file():
            row = toolkits().find_cuda(toolkit.release)
            if row is None or not row.wheels:
                raise InputError(
                    f"CUDA {toolkit.release} is here without its runtime for {arch}",
                    where=cell,
                    fix=f"install it ({target}), or build on a {arch} machine",
                )
            wheel = [f"nvidia-cuda-runtime=={toolkit.release}.*"]
            unpacked = pypi.install(wheel, platform=_WHEEL_PLATFORMS[arch])
            folders = [unpacked / "nvidia" / "cu13" / "lib"]
    for folder in folders:
        if (folder / "libcudart_static.a").is_file():
            return folder / "libcudart_static.a"
    raise InputError(
        f"CUDA {toolkit.release} has no libcudart_static.a in {', '.join(map(str, folders))}",
        where=cell,
        fix="install CUDA's static runtime (package cuda-cudart-dev)",
    )
