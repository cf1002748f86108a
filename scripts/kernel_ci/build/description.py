"""The description of a build that the CMake project reads (see `cmake/CMakeLists.txt`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_ci.abi import stamp
from kernel_ci.kernel import (
    COMPILED_SUFFIXES,
    HEADER_SUFFIXES,
    Component,
    CudaComponent,
    Kernel,
    RocmComponent,
    TvmFfi,
)
from kernel_ci.plan import Cell
from kernel_ci.toolchains import Compiler, hipcc, nvcc
from kernel_ci.tvm_ffi import Release

#: Everything a library exports: the functions that tvm-ffi's loader looks up (`__tvm_ffi_*`)
#: and the build stamp.
EXPORTED = ("__tvm_ffi_*", "kernel_ci_*")


#: Sources that a GPU's compiler takes.
_DEVICE_SUFFIXES = (".cu", ".hip")


def describe(
    kernel: Kernel,
    cell: Cell,
    release: Release,
    compiler: Compiler,
    name: str,
    exports: Path,
    headers: dict[str, list[Path]] | None = None,
) -> dict[str, Any]:
    """Return the description of a cell's build, ready to be written as JSON.

    Args:
        kernel: The kernel.
        cell: The cell.
        release: tvm-ffi for the cell's platform.
        compiler: What compiles it.
        name: The library's name, which is the variant's id.
        exports: The file with the list of exported symbols.
        headers: The include folders of what components depend on, by the section's name.
    """
    includes = [release.include, release.dlpack_include]
    definitions = [f"{cell.backend.upper()}_KERNEL", f"TVM_FFI_EXTENSION_NAME={name}"]

    def unit(unit_name: str, part: TvmFfi | Component, *, section: str = "") -> dict[str, Any]:
        system = (headers or {}).get(section, [])
        sources = [str(kernel.path / n) for n in part.src if Path(n).suffix in COMPILED_SUFFIXES]
        own = [kernel.path / folder for folder in part.include]
        device = []
        if any(source.endswith(_DEVICE_SUFFIXES) for source in sources):
            device = [
                *compiler.device,
                *(f"-D{definition}" for definition in definitions),
                *(f"-I{folder}" for folder in own),
                *(part for folder in [*system, *includes] for part in ("-isystem", str(folder))),
                *_device_flags(kernel, cell, part, section, [*system, *includes]),
            ]
        return {
            "name": unit_name,
            "sources": [source for source in sources if not source.endswith(_DEVICE_SUFFIXES)],
            "device_sources": [source for source in sources if source.endswith(_DEVICE_SUFFIXES)],
            "includes": [str(folder) for folder in own],
            "system_includes": [str(folder) for folder in system],
            "flags": {"CXX": [*part.cxx_flags, *getattr(part, "sycl_flags", [])]},
            "device": device,
        }

    components = kernel.components_of(cell.backend, cell.backend_version)
    stamped = TvmFfi(src=[str(stamp.SOURCE)])
    units = [
        unit("stamp", stamped),
        unit("tvm_ffi", kernel.tvm_ffi),
        *(unit(f"kernel_{key}", part, section=key) for key, part in components.items()),
    ]
    of_stamp = stamp.definitions(release.version, ruled_out(kernel, cell))
    return {
        "name": name,
        "root": str(kernel.path),
        "includes": [str(folder) for folder in includes],
        "link": [str(release.library), *compiler.link],
        "definitions": [*definitions, *(f"{key}={value}" for key, value in of_stamp.items())],
        "exports": str(exports),
        "units": units,
    }


def _device_flags(
    kernel: Kernel,
    cell: Cell,
    component: TvmFfi | Component,
    section: str,
    system: Sequence[Path],
) -> list[str]:
    """Return a section's options for the GPU's compiler, its own ones last."""
    archs = cell.component_archs[section]
    # As CMake and its project set them for C++.
    host = ["-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    host.append(f"-ffile-prefix-map={kernel.path}=.")
    host += [f"-ffile-prefix-map={folder}=include" for folder in system]
    common = ["-std=c++17", "-O3", "-DNDEBUG"]
    if isinstance(component, CudaComponent):
        # clang makes no unique symbols. nvcc splits what it hands on at commas.
        host.append("-fno-gnu-unique")
        escaped = [f"-Xcompiler={flag}".replace(",", r"\,") for flag in host]
        return [*common, *escaped, *nvcc.architecture_flags(archs), *component.cuda_flags]
    assert isinstance(component, RocmComponent)
    return [*common, *host, *hipcc.architecture_flags(archs), *component.hip_flags]


def ruled_out(kernel: Kernel, cell: Cell) -> tuple[str, ...]:
    """Return the ABI risks that the kernel's own sources cannot run into.

    Every source and header in the kernel's folder is searched, whether this cell compiles
    it or not. What a dependency's headers do is not known, so it rules nothing out.
    """
    if any(
        component.depends
        for component in kernel.components_of(cell.backend, cell.backend_version).values()
    ):
        return ()
    suffixes = HEADER_SUFFIXES | COMPILED_SUFFIXES.keys()
    return stamp.ruled_out(
        path.read_text(errors="replace")
        for path in sorted(kernel.path.rglob("*"))
        if path.suffix in suffixes and path.is_file()
    )


def export_list(os: str) -> str:
    """Return the linker's list of exported symbols: a version script, or Mach-O's form."""
    if os == "darwin":
        return "".join(f"_{name}\n" for name in EXPORTED)
    return f"{{ global: {'; '.join(EXPORTED)}; local: *; }};\n"
