"""Stage a cell for cibuildwheel: a folder that holds all that its wheel is built from."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_ci.abi import RuntimeWindow, stamp
from kernel_ci.audit.policy import systems
from kernel_ci.build import host, package
from kernel_ci.build.description import describe, export_list
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell
from kernel_ci.source import Source
from kernel_ci.source import files as source_files
from kernel_ci.toolchains import Compiler, icpx, supplied, xcode
from kernel_ci.tvm_ffi import Release
from kernel_ci.wheel import names
from kernel_ci.wheel.images import PLATFORMS, Images, Toolchain, identifier, images

#: The release that the generated pyproject.toml was tried with; older ones are not known to work.
BACKEND = "scikit-build-core>=1.0"

#: Stands for the stage's folder in the description (see `cmake/CMakeLists.txt`).
_HERE = "@HERE@"


def stage(
    kernel: Kernel,
    cell: Cell,
    source: Source,
    release: Release,
    folder: Path,
    *,
    committed: int | None,
) -> None:
    """Write a folder that cibuildwheel builds a cell's wheel from.

    Nothing in it refers to a place outside, since it is copied into a container.

    Args:
        kernel: The kernel.
        cell: The cell.
        source: The state of its sources.
        release: tvm-ffi for the cell's platform.
        folder: The folder; it must not exist.
        committed: When HEAD was committed (seconds since 1970), None outside git.

    Raises:
        InputError: cibuildwheel cannot build the cell, or a file of the package is refused.
        InfrastructureError: What a component depends on could not be downloaded.
    """
    config = images()
    wanted = config.toolchain_for(cell)
    compiler = compiler_for(cell, wanted)
    shutil.copytree(host.PROJECT, folder)
    for name in source_files(kernel.path, kernel.compiled):
        (folder / "kernel" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel.path / name, folder / "kernel" / name)
    copied = replace(release, path=folder / "release")
    for path in {release.include, release.dlpack_include}:
        there = copied.path / path.relative_to(release.path)
        shutil.copytree(path, there, dirs_exist_ok=True)
    copied.library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(release.library, copied.library)
    shutil.copyfile(stamp.SOURCE, folder / "stamp.cc")
    shutil.copyfile(stamp.SOURCE.with_name("wheel_test.py"), folder / "wheel_test.py")
    exports = folder / "exports"
    exports.write_text(export_list(cell.parsed().os))
    headers: dict[str, list[Path]] = {}
    for key, part in kernel.components_of(cell.backend, cell.backend_version).items():
        for number, path in enumerate(supplied.includes(part.depends)):
            headers.setdefault(key, []).append(folder / "headers" / key / str(number))
            shutil.copytree(path, headers[key][-1])
    identity = package.variant_id(kernel, cell, source)
    moved = Kernel.read(folder / "kernel")
    content = json.dumps(describe(moved, cell, copied, compiler, identity, exports, headers))
    content = content.replace(str(stamp.SOURCE), f"{_HERE}/stamp.cc")
    (folder / "description.json").write_text(content.replace(str(folder), _HERE))
    _package(kernel, identity, release, folder / "src" / kernel.python_name)
    (folder / "pyproject.toml").write_text(
        pyproject(kernel, cell, source, config, wanted, compiler, committed=committed)
    )


def compiler_for(cell: Cell, wanted: Toolchain | None) -> Compiler:
    """Return the compiler of a cell in its container (on macOS: of the runner)."""
    name, version = cell.toolchain, cell.backend_version or ""
    if cell.parsed().os == "darwin":
        minimum = systems().macos_minimum[cell.backend]
        cmake = {"CMAKE_OSX_ARCHITECTURES": "arm64", "CMAKE_OSX_DEPLOYMENT_TARGET": minimum}
        if cell.backend != "metal":
            return Compiler("clang", version, cmake, {})
        cmake["KERNEL_CI_METAL"] = xcode.metal(minimum)
        return Compiler(name, version, cmake, {}, link=xcode.FRAMEWORKS)
    # A kernel must not depend on which libstdc++ there is.
    link: tuple[str, ...] = ("-static-libstdc++",)
    if wanted is None:
        return Compiler("gcc", version, {}, {}, link=link)
    cxx = wanted.compiler or "g++"
    c = {"g++": "gcc", "clang++": "clang", "icpx": "icx"}[cxx.rpartition("/")[2]]
    cmake = {"CMAKE_CXX_COMPILER": cxx, "CMAKE_C_COMPILER": cxx.rpartition("/")[0] + f"/{c}"}
    device: tuple[str, ...] = ()
    if cell.backend == "cuda":
        # As the host engine calls it (see `toolchains.nvcc`).
        device = (str(wanted.device), f"-ccbin={cxx}", "-Xcudafe=--orig_src_path_name=@SOURCE@")
    elif cell.backend == "rocm":
        device = (str(wanted.device), "-x", "hip", "-cuid=@HASH@")
    else:
        cmake["CMAKE_CXX_FLAGS_INIT"] = icpx.flags(cell.archs, cell=cell.id)
        cmake["CMAKE_TRY_COMPILE_TARGET_TYPE"] = "STATIC_LIBRARY"
    return Compiler(name, version, cmake, {}, device=device, link=(*link, *wanted.link))


def pyproject(
    kernel: Kernel,
    cell: Cell,
    source: Source,
    config: Images,
    wanted: Toolchain | None,
    compiler: Compiler,
    *,
    committed: int | None,
) -> str:
    """Return the pyproject.toml of a cell's wheel, cibuildwheel's settings included."""
    system, arch, _ = PLATFORMS[cell.platform]
    tag = names.tag(cell)
    runtime = f"{names.RUNTIME}=={cell.tvm_ffi}"
    settings: dict[str, Any] = {
        "build": identifier(cell),
        "build-frontend": "build",
        "test-requires": [*kernel.python_depends(cell.backend), runtime],
        "test-command": f"python {{project}}/wheel_test.py {kernel.python_name}",
    }
    if system == "linux":
        excluded = " ".join(f"--exclude '{name}'" for name in not_bundled(cell))
        settings |= {
            f"manylinux-{arch}-image": config.image_for(cell.platform),
            "container-engine": "docker; disable_host_mount: true",
            "repair-wheel-command": f"auditwheel repair --plat {tag} --only-plat {excluded}"
            " -w {dest_dir} {wheel}",
        }
    else:
        settings["repair-wheel-command"] = (
            "delocate-wheel --require-archs {delocate_archs} --exclude libtvm_ffi.dylib"
            " -w {dest_dir} -v {wheel}"
        )
        minimum = systems().macos_minimum[cell.backend]
        settings["environment"] = {"MACOSX_DEPLOYMENT_TARGET": minimum}
    if wanted is not None:
        settings["before-all"] = list(wanted.before)
        if cell.backend == "rocm":
            settings["environment"] = {"HIP_PLATFORM": "amd"}
        if wanted.libraries:
            folders = ":".join(wanted.libraries)
            settings["test-environment"] = {"LD_LIBRARY_PATH": folders}
    return _toml(
        {
            "build-system": {
                "requires": [BACKEND],
                "build-backend": "scikit_build_core.build",
            },
            "project": {
                "name": names.distribution(kernel, cell),
                "version": names.version(kernel, source, committed),
                "description": f"The TVM FFI kernel {kernel.name} ({cell.parsed().compute})",
                # What apache-tvm-ffi needs.
                "requires-python": ">=3.9",
                # Replaced when the library is there, and tells what it works with.
                "dependencies": [runtime],
                **({"license": {"text": kernel.general.license}} if kernel.general.license else {}),
            },
            "tool.scikit-build": {
                "minimum-version": "build-system.requires",
                "build-dir": "build/{wheel_tag}",
                "wheel.py-api": "py3",
                "wheel.packages": [f"src/{kernel.python_name}"],
                "wheel.install-dir": kernel.python_name,
                "wheel.license-files": [],
                "install.strip": False,
            },
            "tool.scikit-build.cmake": {
                "build-type": "Release",
                "version": ">=3.26",
            },
            "tool.scikit-build.cmake.define": {
                "KERNEL_CI_DESCRIPTION": "description.json",
                **compiler.cmake,
            },
            "tool.cibuildwheel": settings,
        }
    )


def not_bundled(cell: Cell) -> list[str]:
    """Return patterns of libraries that must not be put into a cell's wheel.

    These are those that a variant may need from where it is loaded: libtvm_ffi, and what comes
    with the backend's driver or framework.
    """
    found = [
        name
        for library in systems().library
        if library.system == cell.parsed().os and library.backend == cell.backend
        for name in library.names
    ]
    return ["libtvm_ffi.so", *found]


def _package(kernel: Kernel, identity: str, release: Release, target: Path) -> None:
    """Write the Python part, with an `_ops.py` that admits what it is tested with only."""
    for name in package.package_files(kernel):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel.package / name, target / name)
    target.mkdir(parents=True, exist_ok=True)
    window = RuntimeWindow(**{"built-with": release.version}, floor=release.version)
    (target / package.OPS).write_text(package.ops_module(kernel.name, identity, window))


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return tables of strings, booleans, lists and small tables as TOML."""
    lines = ["# Generated by kernel-ci."]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        for key, value in table.items():
            # CMake's names need no quotes, and scikit-build-core's dots are part of a key's path.
            if isinstance(value, dict):
                inner = ", ".join(f"{k} = {_text(v)}" for k, v in value.items())
                lines.append(f"{key} = {{ {inner} }}")
            else:
                lines.append(f"{key} = {_text(value)}")
    return "\n".join(lines) + "\n"


def _text(value: str | bool | list[str]) -> str:
    # JSON's strings, arrays and booleans are TOML's as well, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
