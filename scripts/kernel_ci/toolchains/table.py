"""What GPU toolkits know and take (`data/toolchains.toml`), and what follows for a plan.

Pure: no toolkit needs to be here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, Protocol

import tomli
from pydantic import Field

from kernel_ci.documents import Model
from kernel_ci.errors import InputError
from kernel_ci.kernel import Component, CudaComponent, Kernel, RocmComponent, numbers
from kernel_ci.toolchains.archs import PTX, merge
from kernel_ci.variant import Variant

_NAMES = {"cuda": "CUDA", "rocm": "ROCm"}


class _Dated(Protocol):
    @property
    def version(self) -> str: ...


class CudaToolkit(Model):
    """A CUDA release; see the comments in `data/toolchains.toml`."""

    version: str
    archs: tuple[str, ...]
    gcc: int
    wheels: tuple[str, ...] = ()


class RocmToolkit(Model):
    """A ROCm release; see the comments in `data/toolchains.toml`."""

    version: str
    archs: tuple[str, ...]


class Headers(Model):
    """Headers that a wheel holds; see the comments in `data/toolchains.toml`."""

    name: str
    wheel: str
    include: tuple[str, ...]


class Runner(Model):
    """What is installed on GitHub's runners."""

    gcc: dict[str, tuple[int, ...]]


class Toolkits(Model):
    """The content of `data/toolchains.toml`."""

    format: Literal[1]
    cuda: tuple[CudaToolkit, ...] = Field(min_length=1)
    rocm: tuple[RocmToolkit, ...] = Field(min_length=1)
    headers: tuple[Headers, ...]
    runner: Runner

    def find_cuda(self, version: str) -> CudaToolkit | None:
        """Return what holds for a CUDA version; None for one older than all that are known."""
        return self.cuda[_index(self.cuda, version)] if _index(self.cuda, version) >= 0 else None

    def archs(self, backend: str, version: str) -> tuple[str, ...] | None:
        """Return the architectures that a toolkit knows; None where that is not known."""
        rows: Sequence[CudaToolkit | RocmToolkit] = self.cuda if backend == "cuda" else self.rocm
        index = _index(rows, version)
        return rows[index].archs if index >= 0 else None

    def versions_with(self, backend: str, arch: str) -> list[str]:
        """Return the toolkits (as the table lists them) that know an architecture."""
        rows: Sequence[CudaToolkit | RocmToolkit] = self.cuda if backend == "cuda" else self.rocm
        return [row.version for row in rows if arch in row.archs]


@lru_cache(maxsize=1)
def toolkits() -> Toolkits:
    """Return the table."""
    text = (files("kernel_ci") / "data" / "toolchains.toml").read_text(encoding="utf-8")
    return Toolkits.model_validate(tomli.loads(text))


def _index(rows: Sequence[_Dated], version: str) -> int:
    """Return the last row that is not newer than a version, -1 for none."""
    return sum(numbers(row.version) <= numbers(version) for row in rows) - 1


@dataclass(frozen=True)
class Archs:
    """The GPU architectures that a variant is built for.

    Attributes:
        union: Those of all its components, without doubles.
        components: Those of each component, by the name of its section.
        notices: What a component lists and this toolkit cannot do, with the fix.
    """

    union: tuple[str, ...]
    components: dict[str, tuple[str, ...]]
    notices: tuple[str, ...]


def resolve(kernel: Kernel, variant: Variant, default: tuple[str, ...], *, cell: str) -> Archs:
    """Return what a variant's components are built for.

    A kernel has one list for all versions of a toolkit, so what this version does not know
    (yet, or no more) is left out, with a notice.

    Args:
        kernel: The kernel.
        variant: The variant.
        default: The architectures of a component that lists none.
        cell: The cell's id, for messages.

    Raises:
        InputError: No toolkit knows an architecture, or this one knows none of a component's.
    """
    own = kernel.components_of(variant.backend, variant.backend_version)
    if variant.backend not in _NAMES:
        return Archs(default, dict.fromkeys(own, default) if default else {}, ())
    components: dict[str, tuple[str, ...]] = {}
    notices: list[str] = []
    for name, component in own.items():
        listed = _listed(component)
        components[name] = default
        if listed is not None:
            components[name], left_out = _known(listed, variant, f"kernel.{name}", cell)
            notices += left_out
    return Archs(merge(components.values()), components, tuple(notices))


def _listed(component: Component) -> tuple[str, ...] | None:
    found = None
    if isinstance(component, CudaComponent):
        found = component.cuda_capabilities
    elif isinstance(component, RocmComponent):
        found = component.rocm_archs
    return None if found is None else tuple(found)


def _known(
    listed: tuple[str, ...], variant: Variant, section: str, cell: str
) -> tuple[tuple[str, ...], list[str]]:
    """Return which of a component's architectures this toolkit knows, and notices on the others."""
    backend, version = variant.backend, variant.backend_version or ""
    key = f"{section}.{'cuda-capabilities' if backend == 'cuda' else 'rocm-archs'}"
    toolkit = f"{_NAMES[backend]} {version}"
    known = toolkits().archs(backend, version)
    if known is None:
        return listed, []
    kept, notices = [], []
    for arch in listed:
        if arch.removesuffix(PTX) in known:
            kept.append(arch)
            continue
        able = toolkits().versions_with(backend, arch.removesuffix(PTX))
        if not able:
            raise InputError(
                f"{key}: no {_NAMES[backend]} toolkit knows {arch!r}",
                where=cell,
                fix=f"use some of: {', '.join(known)}",
            )
        newer = numbers(able[0]) > numbers(version)
        since = f"needs {_NAMES[backend]} {able[0]} or newer" if newer else "is no longer supported"
        notices.append(f"{key}: {toolkit} does not know {arch!r}, which {since}: left out here")
    for arch in kept:
        number = arch.removesuffix(PTX)
        if f"{number}f" in {other.removesuffix(PTX) for other in kept}:
            raise InputError(
                f"{key}: nvcc does not build for {number} and {number}f together",
                where=cell,
                fix=f"keep {number}f, which is for {number} and the newer ones of its family",
            )
    if not kept:
        narrow = (
            "general.cuda.minver or maxver, or cuda-minver in the section"
            if backend == "cuda"
            else f"--skip '{variant}'"
        )
        raise InputError(
            f"{key}: {toolkit} knows none of {', '.join(listed)}",
            where=cell,
            fix=f"add one of: {', '.join(known)}; or leave this toolkit out with {narrow}",
        )
    return tuple(kept), notices


def check_dependencies(kernel: Kernel, variant: Variant, *, cell: str) -> None:
    """Refuse a component that needs headers which nothing here can supply.

    Raises:
        InputError: A component's `depends` names something that is not in the table.
    """
    supplied = [headers.name for headers in toolkits().headers]
    for name, component in kernel.components_of(variant.backend, variant.backend_version).items():
        for dependency in component.depends:
            if dependency not in supplied:
                raise InputError(
                    f"kernel.{name}.depends: nothing supplies {dependency!r} to a tvm-ffi kernel"
                    + ("; it must load without torch" if dependency == "torch" else ""),
                    where=cell,
                    fix="copy the headers that it needs into the kernel's folder, name them in the"
                    " section's `include`, and remove it from `depends`;"
                    f" supplied are: {', '.join(supplied)}",
                )


def check_runner(variant: Variant, labels: Sequence[str], *, cell: str) -> None:
    """Refuse a runner on which every host compiler is too new for the toolkit.

    Args:
        variant: The variant.
        labels: The labels of the runner that builds it; unknown ones are not judged.
        cell: The cell's id, for messages.

    Raises:
        InputError: The runner has no GCC that nvcc takes.
    """
    if variant.backend != "cuda" or variant.backend_version is None:
        return
    toolkit = toolkits().find_cuda(variant.backend_version)
    for label in labels:
        installed = toolkits().runner.gcc.get(label)
        if toolkit is not None and installed and min(installed) > toolkit.gcc:
            raise InputError(
                f"build-runner: {label} has GCC {min(installed)} and newer, and CUDA"
                f" {variant.backend_version} takes GCC {toolkit.gcc} at most",
                where=cell,
                fix="name an older runner in the matrix or the runner map",
            )
