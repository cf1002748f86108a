"""Where a run's results are: one folder that every stage reads and writes.

<folder>/plan.json
<folder>/verdict.json
<folder>/<kernel>/build/<variant>/          the variant directory, as the Hub gets it
<folder>/<kernel>/wheels/<variant>/         its wheel, where cibuildwheel built it
<folder>/<kernel>/receipts/<variant>/<stage>.json
"""

from __future__ import annotations

from pathlib import Path

from kernel_ci.errors import InputError
from kernel_ci.plan import FILE, Cell, Plan

#: Keeps a run's results out of git, and so out of the sources of a kernel around them.
GITIGNORE = "*\n"


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan, and so begin a run in the folder that it is written to.

    Raises:
        InputError: The folder is a planned kernel's own: results there would become sources.
            Or it cannot be written to.
    """
    folder = path.resolve().parent
    for kernel in plan.kernels:
        if Path(kernel.path).resolve() == folder:
            raise InputError(
                f"is the folder of the kernel {kernel.name} itself",
                where=path.parent,
                fix=f"name another folder, e.g. -o out/{FILE}",
            )
    if not folder.exists():
        try:
            folder.mkdir(parents=True)
            (folder / ".gitignore").write_text(GITIGNORE)
        except OSError as error:
            raise InputError(
                f"cannot be made: {error.strerror}", where=folder, fix="name another folder"
            ) from None
    plan.write(path)


def variant_directory(folder: Path, cell: Cell) -> Path:
    """Return the place of a cell's variant directory."""
    return folder / cell.kernel / "build" / cell.variant


def wheel_folder(folder: Path, cell: Cell) -> Path:
    """Return the place of a cell's wheel, which nothing but a build with cibuildwheel leaves."""
    return folder / cell.kernel / "wheels" / cell.variant


def receipt_file(folder: Path, cell: Cell, stage: str) -> Path:
    """Return the place of the receipt that a stage leaves for a cell."""
    return folder / cell.kernel / "receipts" / cell.variant / f"{stage}.json"
