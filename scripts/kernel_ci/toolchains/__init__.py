"""Toolchains: what compiles a cell. One module each.

A toolchain says whether it is on this machine, and gives CMake what it needs to use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernel_ci.errors import InputError

if TYPE_CHECKING:
    from kernel_ci.plan import Cell


@dataclass(frozen=True)
class Compiler:
    """A compiler that is ready to be used for one cell.

    Attributes:
        name: What the receipt calls it, e.g. `zig`.
        version: Its version.
        cmake: CMake cache entries that select it and its target.
        environment: Environment variables that it needs.
        others: Versions of further tools that it uses, by name.
        device: The command that compiles `.cu` and `.hip` files, without architectures and
            a kernel's own flags; in it `@SOURCE@` stands for a file's path inside the
            kernel's folder, and `@HASH@` for a hash of that. Empty where there are none.
        link: What a library is linked with besides tvm-ffi: files and options.
    """

    name: str
    version: str
    cmake: dict[str, str]
    environment: dict[str, str]
    others: dict[str, str] = field(default_factory=dict)
    device: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


def find(cell: Cell, override: str | None = None) -> Compiler:
    """Return the compiler for a cell.

    Args:
        cell: The cell that is to be built.
        override: A C++ compiler (name or path) to use in place of the default one; for CUDA
            that is the host compiler.

    Raises:
        InputError: There is no such compiler here, or it cannot build the cell.
    """
    from kernel_ci.toolchains import hipcc, icpx, native, nvcc, xcode, zig

    if cell.toolchain == "nvcc":
        return nvcc.find(cell, override)
    if cell.toolchain == "hipcc" and override is None:
        return hipcc.find(cell)
    if override is not None:
        return native.find(cell, override)
    if cell.toolchain == "icpx":
        return icpx.find(cell)
    if cell.toolchain == "xcode":
        return xcode.find(cell)
    if cell.toolchain == "zig":
        return zig.find(cell)
    raise InputError(
        f"the toolchain {cell.toolchain} cannot be used by the host engine",
        where=cell.id,
        fix=f"leave the cell out with --skip '{cell.variant}'",
    )
