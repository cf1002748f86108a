"""Incremental runs: what a former run in the same folder proved and nothing has changed.

A cell is taken over where its key is the former run's, its evidence is complete, and its
variant directory still has the digest that the evidence is about. Its receipts then belong to
the new run and say which run they came from.

Only `kernel-ci pipeline` does this, with what it left itself: a digest can be made by anyone who
can write to the folder, so it tells what changed, not whom to trust. Workflows start from an
empty folder, and publishing to a Hub that others read refuses such receipts.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from kernel_ci.build import package
from kernel_ci.documents import canonical_digest
from kernel_ci.errors import InputError
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt, installed, this_machine
from kernel_ci.source import digest_of
from kernel_ci.toolchains import Compiler

#: Packages that have a part in a build, besides the compiler and tvm-ffi.
_BUILD_PACKAGES = ("cmake", "ninja")

_PACKAGE = Path(__file__).parent


def key(plan: Plan, cell: Cell, compiler: Compiler) -> str:
    """Return the digest of everything that decides what a cell becomes and what is said of it.

    That is the kernel's folder with its headers, flags and tests; the cell; the compiler with
    its version, options and the state of its file; tvm-ffi; kernel-ci's own code; the packages
    that build and test it; and the machine. Headers of the system are not: those that a compiler
    brings change with its version.
    """
    planned = plan.kernel(cell.kernel)
    return canonical_digest(
        {
            "kernel": planned.model_dump(mode="json"),
            "cell": cell.model_dump(mode="json"),
            "allowed_skips": plan.allowed_skips,
            "compiler": asdict(compiler),
            "compiler_files": _files_of(compiler),
            "kernel_ci": _own_code(),
            "packages": {**{name: version(name) for name in _BUILD_PACKAGES}, **installed()},
            "machine": this_machine().model_dump(mode="json"),
        }
    )


def find(plan: Plan, folder: Path, keys: Mapping[str, str]) -> dict[str, list[Receipt]]:
    """Return the receipts of the cells that a former run in the folder proved as they are now.

    Args:
        plan: The new plan.
        folder: The run's folder, with what the former run left.
        keys: The key of each cell by its id.
    """
    found = {}
    for cell in plan.cells:
        try:
            receipts = [Receipt.read(receipt_file(folder, cell, name)) for name in cell.stages]
            digest = package.digest(variant_directory(folder, cell))
        except (InputError, OSError, ValueError):
            continue  # Not there, or damaged: it is made again.
        if all(
            (receipt.key, receipt.cell, receipt.stage, receipt.digest, receipt.outcome)
            == (keys[cell.id], cell.id, stage, digest, "passed")
            for receipt, stage in zip(receipts, cell.stages, strict=True)
        ):
            found[cell.id] = receipts
    return found


def take_over(plan: Plan, receipts: list[Receipt]) -> list[Receipt]:
    """Return a former run's receipts as those of a new plan; they name the run that did it."""
    return [
        receipt.model_copy(
            update={"plan": plan.id, "run": plan.run, "reused": receipt.reused or receipt.run}
        )
        for receipt in receipts
    ]


@contextmanager
def kept(plan: Plan, folder: Path, cells: Mapping[str, object]) -> Iterator[None]:
    """Keep the variant directories of cells while the rest of a run's folder is removed."""
    if not cells:
        yield
        return
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        moved = []
        for number, cell in enumerate(cell for cell in plan.cells if cell.id in cells):
            directory = variant_directory(folder, cell)
            moved.append((directory, shutil.move(directory, Path(work, str(number)))))
        try:
            yield
        finally:
            for directory, aside in moved:
                directory.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(aside, directory)


def _files_of(compiler: Compiler) -> dict[str, tuple[int, int]]:
    """Return size and time of change of the files that a compiler's options name.

    A compiler that was replaced in its place may give the same version.
    """
    values = (*compiler.cmake.values(), *compiler.device, *compiler.link)
    paths = {Path(value) for value in values if value.startswith("/")}
    found = {path: path.stat() for path in paths if path.is_file()}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


@cache
def _own_code() -> str:
    """Return the digest of kernel-ci's code and data."""
    names = [
        path.relative_to(_PACKAGE).as_posix()
        for path in _PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    return digest_of(_PACKAGE, names)
