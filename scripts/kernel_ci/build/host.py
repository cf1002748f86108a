"""The host engine: CMake and Ninja on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kernel_ci.build.description import describe, export_list
from kernel_ci.errors import BuildError, InfrastructureError
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell
from kernel_ci.toolchains import Compiler, supplied
from kernel_ci.tvm_ffi import Release

PROJECT = Path(__file__).parent / "cmake"

#: Variables by which a shell changes what compilers do.
_SCRUBBED = (
    "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN",
    "HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND",
)  # fmt: skip


def compile_library(
    kernel: Kernel,
    cell: Cell,
    release: Release,
    compiler: Compiler,
    name: str,
    work: Path,
    *,
    jobs: int | None = None,
) -> Path:
    """Compile and link a cell's library.

    Args:
        kernel: The kernel.
        cell: The cell.
        release: tvm-ffi for the cell's platform.
        compiler: What compiles it.
        name: The library's name without suffix.
        work: An empty folder for everything that is not the result.
        jobs: How many compilers run at once; None leaves it to Ninja.

    Returns:
        The library, inside `work`.

    Raises:
        BuildError: The compiler or the linker refused the sources; the message has its output.
        InfrastructureError: CMake could not configure the build with this compiler, or what
            a component depends on could not be downloaded.
    """
    exports = work / "exports"
    exports.write_text(export_list(cell.parsed().os))
    description = work / "description.json"
    headers = {
        key: supplied.includes(component.depends)
        for key, component in kernel.components_of(cell.backend, cell.backend_version).items()
    }
    content = describe(kernel, cell, release, compiler, name, exports, headers)
    description.write_text(json.dumps(content, indent=1))
    build = work / "build"
    environment = {**os.environ, **compiler.environment, "PATH": _path()}
    # What the caller's shell sets for its own builds must not reach a kernel's.
    for variable in _SCRUBBED:
        environment.pop(variable, None)
    configure = ["cmake", "-S", str(PROJECT), "-B", str(build), "-G", "Ninja"]
    entries = {
        "CMAKE_BUILD_TYPE": "Release",
        "KERNEL_CI_DESCRIPTION": str(description),
        **compiler.cmake,
    }
    configure += [f"-D{key}={value}" for key, value in entries.items()]
    done = subprocess.run(configure, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise InfrastructureError(
            f"CMake could not configure the build with {compiler.name} {compiler.version}\n"
            f"{_tail(done.stdout + done.stderr)}",
            where=cell.id,
        )
    command = ["cmake", "--build", str(build)]
    command += ["--parallel", str(jobs)] if jobs else []
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise BuildError(
            f"{compiler.name} {compiler.version} refused the sources\n{_tail(done.stdout)}",
            where=cell.id,
            fix="correct the first error above",
        )
    return build / (name + cell.parsed().library_suffix)


def _path() -> str:
    """Return PATH with this environment's cmake and ninja first.

    Of cmake the program itself: what is beside Python is a script that takes as long to find it
    as a tenth of a small build.
    """
    import cmake  # Itself not quick, and for builds alone.

    first = (cmake.CMAKE_BIN_DIR, str(Path(sys.executable).parent))
    return os.pathsep.join((*first, os.environ.get("PATH", "")))


def _tail(text: str, lines: int = 80) -> str:
    found = text.rstrip().splitlines()
    cut = [f"… {len(found) - lines} lines above"] if len(found) > lines else []
    return "\n".join(cut + found[-lines:])
