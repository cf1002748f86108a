"""All stages in a row on this machine, with progress, and one table at the end."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console

from kernel_ci import gate, toolchains
from kernel_ci.audit.stage import audit_cell
from kernel_ci.build import build_cell
from kernel_ci.errors import InputError
from kernel_ci.layout import write_plan
from kernel_ci.plan import FILE as PLAN_FILE
from kernel_ci.plan import Plan
from kernel_ci.publish import Options, publish, verify
from kernel_ci.publish.target import connect
from kernel_ci.report import human_time, show_plan, show_receipt, show_verdict
from kernel_ci.testing.stage import test_cell


def run_pipeline(
    plan: Plan,
    folder: Path,
    console: Console,
    *,
    hub: str | None = None,
    compiler: str | None = None,
) -> int:
    """Build, audit, test, judge and, where a Hub is named, publish and load a plan's cells.

    Args:
        plan: The plan.
        folder: The run's folder; what former runs left there is replaced.
        console: Where progress and the table go.
        hub: Where to publish: a local Hub's folder, or a URL. None does not publish.
        compiler: A compiler to use in place of the default one.

    Returns:
        0 where everything planned is proved (and published), else 1.
    """
    clock = time.monotonic()
    _clear(folder)
    write_plan(plan, folder / PLAN_FILE)
    show_plan(console, plan, explain=False)
    for cell in plan.cells:
        # A compiler that is missing, or too new for another, is told before anything is built.
        toolchains.find(cell, compiler)
    for number, cell in enumerate(plan.cells, 1):
        console.rule(f"{number} of {len(plan.cells)}: {cell.id}", align="left")
        with console.status(f"building {cell.id}"):
            built = build_cell(plan, cell, folder, compiler=compiler)
        show_receipt(console, built)
        if built.outcome == "failed":
            continue
        with console.status(f"auditing {cell.id}"):
            show_receipt(console, audit_cell(plan, cell, folder))
        if cell.evidence == "build-only":
            console.print(f"-- test {cell.id}: {cell.reason}", markup=False, highlight=False)
            continue
        with console.status(f"testing {cell.id}"):
            receipt, result = test_cell(plan, cell, folder)
        if receipt.outcome == "failed":
            console.print(result.output, markup=False, highlight=False)
        show_receipt(console, receipt)
    console.rule("gate", align="left")
    verdict = gate.judge(plan, gate.collect(plan, folder))
    verdict.write(folder / gate.FILE)
    published: dict[str, str] | None = None
    good = verdict.accepted
    if hub is not None and verdict.accepted:
        published = {}
        with connect(hub) as target:
            # A local Hub is for trying things out; what the real one has, stays.
            options = Options(replace=target.local, drop=target.local)
            for done in publish(folder, target, options=options, console=console):
                good = verify.load(plan, done.kernel, done.repo_id, target, console) and good
                published[done.kernel] = done.branch
    elif hub is not None:
        published = {}
    show_verdict(console, plan, verdict, published)
    console.print(f"{'done' if good else 'not proved'} in {human_time(time.monotonic() - clock)}")
    return 0 if good else 1


def _clear(folder: Path) -> None:
    """Remove a former run's results, and nothing else."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / PLAN_FILE).is_file()):
        raise InputError(
            "is not the folder of a run", where=folder, fix="name a new or empty folder with -o"
        )
    shutil.rmtree(folder)
