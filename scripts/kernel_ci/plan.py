"""The plan: kernels x matrix -> the cells that must exist, and why the others do not.

`plan.json` is the only list of what must exist; nothing downstream adds or drops a cell.
"""

from __future__ import annotations

import os
import platform
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from kernel_ci import __version__, devices, source
from kernel_ci.bench.settings import BenchSettings
from kernel_ci.documents import Document, Model, canonical_digest
from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel, numbers
from kernel_ci.matrix import Entry, Evidence, Matrix, Toolchain
from kernel_ci.runners import RunnerMap, matches
from kernel_ci.source import Source
from kernel_ci.toolchains import table
from kernel_ci.variant import Variant

FILE = "plan.json"

#: (platform, backend) -> why this machine cannot run such variants, or None.
WhyNot = Callable[[str, str], str | None]

_NOTHING_LEFT = "widen --only or narrow --skip; what a kernel excludes, its build.toml decides"


class PlannedKernel(Model):
    """A kernel of the plan.

    Attributes:
        name: The kernel's name.
        path: Its folder, relative to where the plan was made, or absolute if outside.
        version: Its major version.
        license: Its license, verbatim.
        repo_id: The Hub repository, or None where the author names none.
        branch: The branch a release goes to.
        source: The state of its sources; a build from other sources is refused.
        bench: What its author asks of the benchmarks.
    """

    name: str
    path: str
    version: int
    license: str
    repo_id: str | None
    branch: str
    source: Source
    bench: BenchSettings = Field(default_factory=BenchSettings)


class Cell(Model):
    """One variant of one kernel, with everything that building and proving it needs.

    Attributes:
        id: `<kernel>/<variant>`.
        kernel: The kernel's name.
        variant: The variant's name.
        backend: Its backend.
        backend_version: `<major>.<minor>` of the toolkit, or None.
        platform: `<arch>-<os>`.
        tvm_ffi: The release of apache-tvm-ffi to build with.
        toolchain: Which compiler builds it.
        archs: GPU architectures to build for; empty for CPU.
        component_archs: Those of each section of build.toml that is for it, by its name.
        notices: What this toolkit cannot do of what the kernel asks for.
        build_runner: Labels of the runner that builds it.
        test_runner: Labels of the runner that tests it.
        evidence: `tested`, or `build-only` where that was declared.
        reason: Who declared `build-only`, and why.
    """

    id: str
    kernel: str
    variant: str
    backend: str
    backend_version: str | None
    platform: str
    tvm_ffi: str
    toolchain: Toolchain
    archs: tuple[str, ...]
    component_archs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    notices: tuple[str, ...] = ()
    build_runner: tuple[str, ...]
    test_runner: tuple[str, ...]
    evidence: Evidence
    reason: str | None

    def parsed(self) -> Variant:
        """Return the variant that the name stands for."""
        return Variant.parse(self.variant)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that must leave a receipt for this cell."""
        return ("build", "audit") if self.evidence == "build-only" else ("build", "audit", "test")


class Excluded(Model):
    """A variant of the matrix that the plan leaves out.

    Attributes:
        id: `<kernel>/<variant>`.
        by: Who decided: the `kernel` (its build.toml), the `caller` (--only, --skip), or
            this `machine`, which could not prove it.
        reason: Why, as a sentence without a final period.
    """

    id: str
    by: Literal["kernel", "caller", "machine"]
    reason: str


class Plan(Document):
    """What must be built and proved.

    Attributes:
        id: Digest of the plan's content. As `run` is part of it, no two runs share one.
        run: The run that made the plan; a receipt of another run is no evidence.
        kernel_ci: The release of kernel-ci that made it.
        allowed_skips: Globs of tests whose skipping the caller has declared.
        kernels: The kernels.
        cells: The cells, sorted by id.
        excluded: Every other variant of the matrix, with the reason.
    """

    kind: Literal["kernel-ci plan"] = "kernel-ci plan"
    format: Literal[1] = 1
    id: str
    run: str
    kernel_ci: str
    allowed_skips: tuple[str, ...] = ()
    kernels: tuple[PlannedKernel, ...]
    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]

    def kernel(self, name: str) -> PlannedKernel:
        """Return a kernel of the plan by its name."""
        return next(kernel for kernel in self.kernels if kernel.name == name)

    def select(self, ids: Sequence[str]) -> tuple[Cell, ...]:
        """Return the cells with these ids, or all for none.

        Raises:
            InputError: An id is not in the plan.
        """
        if not ids:
            return self.cells
        known = {cell.id: cell for cell in self.cells}
        for name in ids:
            if name not in known:
                raise InputError(
                    f"no cell {name!r} in the plan",
                    where="--cell",
                    fix=f"use one of: {', '.join(known)}",
                )
        return tuple(known[name] for name in dict.fromkeys(ids))

    @property
    def partial(self) -> bool:
        """Whether a variant is missing that the kernels' authors and the matrix want."""
        return any(excluded.by != "kernel" for excluded in self.excluded)

    def computed_id(self) -> str:
        """Return the id that the plan's content should have."""
        return canonical_digest(self.model_dump(mode="json", exclude={"id"}))


@dataclass(frozen=True)
class Selection:
    """What the caller asks for; patterns are globs, see `runners.matches`.

    Attributes:
        only: Take these alone; empty takes all.
        skip: Leave these out.
        build_only: Do not ask for a test of these.
        allowed_skips: Accept that these tests (`file::test`) are skipped.
        provable_here: Leave out what this machine cannot test, unless it is `build_only`.
        backends: Take the variants of these backends alone; empty takes all.
        tier: `full`, or `quick` for the variants that the matrix marks as such.
        runners: Where cells run, in place of what the matrix says.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    build_only: tuple[str, ...] = ()
    allowed_skips: tuple[str, ...] = ()
    provable_here: bool = False
    backends: tuple[str, ...] = ()
    tier: Literal["quick", "full"] = "full"
    runners: RunnerMap = field(default_factory=RunnerMap)


def run_id() -> str:
    """Return this run's id: GitHub's run and attempt, or a random one at a desk."""
    if run := os.environ.get("GITHUB_RUN_ID"):
        return f"github-{run}-{os.environ.get('GITHUB_RUN_ATTEMPT') or '1'}"
    return f"local-{uuid.uuid4().hex[:12]}"


def host_platform() -> str:
    """Return this machine as `<arch>-<os>`, in the words of variant names."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return f"{arch}-{platform.system().lower()}"


def plan_folders(
    folders: Sequence[Path], selection: Selection, *, matrix: Path | None = None
) -> Plan:
    """Read kernels and plan them for this run; notices go to standard error.

    Args:
        folders: The kernels' folders.
        selection: What the caller asks for.
        matrix: Another support matrix than kernel-ci's.

    Raises:
        InputError: See `make_plan`, or a kernel or the matrix cannot be read.
    """
    return plan_matrix(folders, selection, Matrix.read(matrix))


def plan_matrix(folders: Sequence[Path], selection: Selection, rows: Matrix) -> Plan:
    """Do as `plan_folders`, with a matrix that is at hand."""
    kernels = []
    for folder in folders:
        kernel = Kernel.read(folder)
        for notice in kernel.notices:
            print(f"notice: {folder}: {notice}", file=sys.stderr)
        kernels.append(kernel)
    sources = source.inspect_all([(kernel.path, kernel.compiled) for kernel in kernels])
    here = Path.cwd().resolve()
    found = []
    for kernel, state in zip(kernels, sources, strict=True):
        inside = kernel.path.is_relative_to(here)
        shown = kernel.path.relative_to(here).as_posix() if inside else str(kernel.path)
        found.append((kernel, state, shown))
    plan = make_plan(found, rows, selection, run=run_id(), why_not=devices.why_not)
    for cell in plan.cells:
        for notice in cell.notices:
            print(f"notice: {cell.id}: {notice}", file=sys.stderr)
    return plan


def make_plan(
    kernels: Sequence[tuple[Kernel, Source, str]],
    matrix: Matrix,
    selection: Selection,
    *,
    run: str,
    why_not: WhyNot = devices.why_not,
) -> Plan:
    """Cross kernels with the matrix.

    Args:
        kernels: Each kernel with the state of its sources and its path for the plan.
        matrix: The support matrix.
        selection: What the caller asks for.
        run: The run's id.
        why_not: Tells why this machine cannot run a platform's variants of a backend, or
            None where it can; only asked for `selection.provable_here`.

    Raises:
        InputError: No kernels, two of one name or for one branch, a pattern that matches
            nothing, or nothing is left.
    """
    if not kernels:
        raise InputError("no kernel was named", fix="name a folder with a build.toml")
    _check_distinct([kernel for kernel, _, _ in kernels])
    variants = matrix.variants()
    every = [
        (kernel, entry, variant) for kernel, _, _ in kernels for entry, variant in variants.items()
    ]
    for option, patterns in (
        ("--only", selection.only),
        ("--skip", selection.skip),
        ("--build-only", selection.build_only),
        ("--runners", selection.runners.patterns),
    ):
        for pattern in patterns:
            if not any(matches(pattern, k.name, str(v)) for k, _, v in every):
                raise InputError(
                    f"{pattern!r} matches no variant",
                    where=option,
                    fix="see `kernel-ci plan --explain` for the names; `*` matches any part",
                )
    cells: list[Cell] = []
    excluded: list[Excluded] = []
    for kernel, entry, variant in every:
        found = _place(kernel, entry, variant, matrix, selection, why_not)
        (cells if isinstance(found, Cell) else excluded).append(found)  # type: ignore[arg-type]
    if not cells:
        reasons = "\n".join(f"  {item.id}: {item.reason}" for item in excluded)
        raise InputError(f"no variant is left to build\n{reasons}", fix=_NOTHING_LEFT)
    plan = Plan(
        id="",
        run=run,
        kernel_ci=__version__,
        allowed_skips=tuple(sorted(set(selection.allowed_skips))),
        kernels=tuple(
            sorted(
                (_planned(kernel, source, path) for kernel, source, path in kernels),
                key=lambda kernel: kernel.name,
            )
        ),
        cells=tuple(sorted(cells, key=lambda cell: cell.id)),
        excluded=tuple(sorted(excluded, key=lambda item: item.id)),
    )
    return plan.model_copy(update={"id": plan.computed_id()})


def read_plan(path: Path) -> Plan:
    """Read a plan, and check that nobody has edited it.

    Raises:
        InputError: The file is missing, is not a plan, or its id is not that of its content.
    """
    plan = Plan.read(path)
    if plan.id != plan.computed_id():
        raise InputError(
            "was changed after it was made: its id is not that of its content",
            where=path,
            fix="make it again with `kernel-ci plan`",
        )
    return plan


def _planned(kernel: Kernel, source: Source, path: str) -> PlannedKernel:
    return PlannedKernel(
        name=kernel.name,
        path=path,
        version=kernel.general.version,
        license=kernel.general.license,
        repo_id=kernel.general.hub.repo_id,
        branch=kernel.branch,
        source=source,
        bench=kernel.bench,
    )


def _check_distinct(kernels: Sequence[Kernel]) -> None:
    """Refuse kernels that would overwrite each other's cells or each other's release."""
    names: set[str] = set()
    branches: dict[tuple[str, str], str] = {}
    for kernel in kernels:
        if kernel.name in names:
            raise InputError(
                f"two kernels are called {kernel.name!r}", fix="rename one, or plan one only"
            )
        names.add(kernel.name)
        if kernel.general.hub.repo_id is None:
            continue
        branch = (kernel.general.hub.repo_id, kernel.branch)
        if branch in branches:
            raise InputError(
                f"{branches[branch]!r} and {kernel.name!r} both go to {' '.join(branch)}",
                fix="give one another general.hub.repo-id, or plan one only",
            )
        branches[branch] = kernel.name


def _place(
    kernel: Kernel,
    entry: Entry,
    variant: Variant,
    matrix: Matrix,
    selection: Selection,
    why_not: WhyNot,
) -> Cell | Excluded:
    """Return the cell of a kernel's variant, or why there is none."""
    shown = str(variant)
    name = f"{kernel.name}/{shown}"
    if (reason := _kernel_excludes(kernel, variant)) is not None:
        return Excluded(id=name, by="kernel", reason=reason)
    if selection.only and not any(matches(p, kernel.name, shown) for p in selection.only):
        return Excluded(id=name, by="caller", reason="no --only pattern matches it")
    for pattern in selection.skip:
        if matches(pattern, kernel.name, shown):
            return Excluded(id=name, by="caller", reason=f"--skip {pattern}")
    if selection.backends and variant.backend not in selection.backends:
        return Excluded(id=name, by="caller", reason="no --backend names it")
    if selection.tier == "quick" and not entry.quick:
        return Excluded(id=name, by="caller", reason="not part of --tier quick")
    evidence, reason = entry.evidence, entry.reason
    placed = selection.runners.place(kernel.name, shown)
    if placed.build_only is not None:
        evidence, reason = "build-only", f"declared by the caller: {placed.build_only}"
    for pattern in selection.build_only:
        if matches(pattern, kernel.name, shown):
            evidence, reason = "build-only", f"declared by the caller: --build-only {pattern}"
    if selection.provable_here and evidence == "tested":
        cannot = why_not(entry.platform, entry.backend)
        if cannot is not None:
            return Excluded(
                id=name,
                by="machine",
                reason=f"{cannot}; --build-only '{shown}' builds it without a test",
            )
    build_runner = placed.build or entry.build_runner
    table.check_dependencies(kernel, variant, cell=name)
    table.check_runner(variant, build_runner, cell=name)
    archs = table.resolve(kernel, variant, matrix.default_archs(variant), cell=name)
    return Cell(
        id=name,
        kernel=kernel.name,
        variant=shown,
        backend=variant.backend,
        backend_version=variant.backend_version,
        platform=variant.platform,
        tvm_ffi=matrix.tvm_ffi.build,
        toolchain=entry.toolchain,
        archs=archs.union,
        component_archs=archs.components,
        notices=archs.notices,
        build_runner=build_runner,
        test_runner=placed.test or entry.test_runner,
        evidence=evidence,
        reason=reason,
    )


def _kernel_excludes(kernel: Kernel, variant: Variant) -> str | None:
    if variant.backend not in kernel.backends:
        return f"build.toml does not list the backend {variant.backend}"
    if variant.backend == "cuda" and variant.backend_version is not None:
        cuda = kernel.general.cuda
        if cuda.minver and numbers(variant.backend_version) < numbers(cuda.minver):
            return f"build.toml: general.cuda.minver is {cuda.minver}"
        if cuda.maxver and numbers(variant.backend_version) > numbers(cuda.maxver):
            return f"build.toml: general.cuda.maxver is {cuda.maxver}"
        if not kernel.components_of("cuda", variant.backend_version):
            return f"build.toml: cuda-minver leaves no section for CUDA {variant.backend_version}"
    return None
