"""ROCm's hipcc, of exactly a cell's version.

Everything is compiled by its clang, with the libstdc++ of a GCC that is here, and built against
a glibc 2.28 (see `sysroot`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, host_platform
from kernel_ci.toolchains import Compiler, sysroot

#: Else hipcc takes an nvcc that it finds for the platform.
_ENVIRONMENT = {"HIP_PLATFORM": "amd"}


@dataclass(frozen=True)
class Toolkit:
    """A ROCm that is installed here.

    Attributes:
        hipcc: Path of its hipcc.
        version: Its HIP version, e.g. `5.2.21153`.
        clang: Path of its clang++.
        library: Its `libamdhip64.so`.
    """

    hipcc: Path
    version: str
    clang: Path
    library: Path

    @property
    def release(self) -> str:
        """`<major>.<minor>`, which is also ROCm's."""
        return ".".join(self.version.split(".")[:2])


def find(cell: Cell) -> Compiler:
    """Return hipcc for a ROCm cell; see `toolchains.find`."""
    if cell.backend != "rocm" or cell.platform != host_platform():
        raise InputError(
            f"hipcc builds no {cell.backend} variant for {cell.platform} on {host_platform()}",
            where=cell.id,
            fix="build ROCm variants on a machine of their own platform",
        )
    toolkit = _find_toolkit(cell.backend_version or "", cell.id)
    # The folder of libraries is of no use to a compilation.
    flags = [*sysroot.flags(cell.parsed().arch), "-Wno-unused-command-line-argument"]
    return Compiler(
        name="hipcc",
        version=toolkit.version,
        cmake={
            "CMAKE_C_COMPILER": str(toolkit.clang.with_name(toolkit.clang.name.replace("++", ""))),
            "CMAKE_CXX_COMPILER": str(toolkit.clang),
            # The sysroot has nothing that programs need.
            "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
            "CMAKE_C_FLAGS_INIT": " ".join(flags),
            "CMAKE_CXX_FLAGS_INIT": " ".join(flags),
        },
        environment=_ENVIRONMENT,
        others={**sysroot.versions(cell.parsed().arch)},
        # By default the id of a compilation unit is a hash of its path, which two machines must
        # not have different.
        device=(str(toolkit.hipcc), "-x", "hip", *flags, "-cuid=@HASH@"),
        link=("-static-libstdc++", str(toolkit.library)),
    )


def architecture_flags(archs: tuple[str, ...]) -> list[str]:
    """Return hipcc's options for a list such as `gfx90a`, `gfx1100`."""
    return [f"--offload-arch={arch}" for arch in archs]


def _find_toolkit(version: str, cell: str) -> Toolkit:
    """Return a ROCm of exactly this version."""
    others = []
    for path in dict.fromkeys(_candidates(version)):
        toolkit = _inspect(path)
        if toolkit is None:
            continue
        if toolkit.release == version:
            return toolkit
        others.append(f"{path} is {toolkit.release}")
    raise InputError(
        f"there is no hipcc of ROCm {version} here" + (f" ({'; '.join(others)})" if others else ""),
        where=cell,
        fix=f"install ROCm {version} or build in a container that has it, and name it with"
        " ROCM_PATH",
    )


def attached_version() -> str | None:
    """Return `<major>.<minor>` of the ROCm that this machine uses by default, None without."""
    for path in _candidates(None):
        toolkit = _inspect(path)
        if toolkit is not None:
            return toolkit.release
    return None


def _candidates(version: str | None) -> Iterator[Path]:
    for variable in ("ROCM_PATH", "HIP_PATH"):
        if value := os.environ.get(variable):
            yield Path(value) / "bin" / "hipcc"
    if found := shutil.which("hipcc"):
        yield Path(found)
    if version is not None:
        yield from sorted(Path("/opt").glob(f"rocm-{version}*/bin/hipcc"))
    yield Path("/opt/rocm/bin/hipcc")


def _inspect(hipcc: Path) -> Toolkit | None:
    """Ask a hipcc what it is and where its parts are; None if it does not work."""

    def ask(program: Path, *options: str) -> str:
        done = subprocess.run(
            [str(program), *options],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **_ENVIRONMENT, "HIPCC_VERBOSE": "1"},
        )
        return done.stdout.strip()

    config = hipcc.with_name("hipconfig")
    if not hipcc.is_file() or not config.is_file():
        return None
    version = re.match(r"[0-9]+\.[0-9]+\.[0-9]+", ask(config, "--version"))
    # Debian's clang++ has its version in the name, which only hipcc knows.
    command = re.search(r'hipcc-cmd: "?([^" ]+)', ask(hipcc, "--version"))
    roots = [Path(ask(config, "--path")), hipcc.resolve().parent.parent]
    places = ("lib", "lib64", "lib/x86_64-linux-gnu")
    libraries = [root / place / "libamdhip64.so" for root in roots for place in places]
    library = next((path for path in libraries if path.is_file()), None)
    if version is None or library is None or command is None:
        return None
    return Toolkit(hipcc=hipcc, version=version[0], clang=Path(command[1]), library=library)
