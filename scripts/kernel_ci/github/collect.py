"""Bringing together what the jobs of a run have left, and nothing else.

Each job uploads one artifact, each artifact is unpacked into a folder of its own, and from
that folder only what belongs to its cell and stage is taken. So no job can put anything in
another's place, wherever its files point to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kernel_ci.bench.document import STAGE as BENCH
from kernel_ci.errors import Rejected
from kernel_ci.github.legs import artifact
from kernel_ci.layout import receipt_file, variant_directory, wheel_folder
from kernel_ci.plan import Plan

#: The receipts that the job of a stage may bring.
_RECEIPTS: dict[str, tuple[str, ...]] = {
    "cell-build": ("build",),
    "cell-test": ("audit", "test", BENCH),
}


def collect(plan: Plan, artifacts: Path, folder: Path) -> list[str]:
    """Copy what belongs to a plan from unpacked artifacts into a run's folder.

    Args:
        plan: The plan.
        artifacts: Holds one folder for each artifact, under the artifact's name.
        folder: The run's folder.

    Returns:
        What was left behind, one line each.

    Raises:
        Rejected: An artifact holds a link.
    """
    ignored = []
    taken: set[Path] = set()
    for cell in plan.cells:
        for what, stages in _RECEIPTS.items():
            source = artifacts / artifact(plan.id, what, cell.id)
            if not source.is_dir():
                continue
            _refuse_links(source)
            if what == "cell-build":
                for place in (variant_directory, wheel_folder):
                    directory = place(source, cell)
                    if directory.is_dir():
                        shutil.copytree(directory, place(folder, cell))
                        taken.update(path for path in directory.rglob("*") if path.is_file())
            for stage in stages:
                file = receipt_file(source, cell, stage)
                if file.is_file():
                    target = receipt_file(folder, cell, stage)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)
                    taken.add(file)
    if artifacts.is_dir():
        ignored = [
            path.relative_to(artifacts).as_posix()
            for path in sorted(artifacts.rglob("*"))
            if path.is_file() and path not in taken
        ]
    return ignored


def _refuse_links(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise Rejected("an artifact holds a link", where=path, fix="see who uploaded it")
