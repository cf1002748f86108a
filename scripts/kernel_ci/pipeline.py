"""All stages in a row on this machine, with progress, and one table at the end."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console

from kernel_ci import gate, reuse, toolchains
from kernel_ci.audit.stage import audit_cell
from kernel_ci.build import build_cell
from kernel_ci.errors import InputError
from kernel_ci.layout import receipt_file, write_plan
from kernel_ci.plan import FILE as PLAN_FILE
from kernel_ci.plan import Cell, Plan
from kernel_ci.publish import Options, publish, verify
from kernel_ci.publish.target import connect
from kernel_ci.receipts import Receipt
from kernel_ci.report import human_time, show_plan, show_receipt, show_verdict
from kernel_ci.testing.stage import test_cell


def run_pipeline(
    plan: Plan,
    folder: Path,
    console: Console,
    *,
    hub: str | None = None,
    compiler: str | None = None,
    fresh: bool = False,
) -> int:
    """Build, audit, test, judge and, where a Hub is named, publish and load a plan's cells.

    Args:
        plan: The plan.
        folder: The run's folder; what a former run left there is replaced, but for cells of
            which nothing has changed (see `reuse`).
        console: Where progress and the table go.
        hub: Where to publish: a local Hub's folder, or a URL. None does not publish.
        compiler: A compiler to use in place of the default one.
        fresh: Do everything anew. So it is for a Hub that is not a local folder, too.

    Returns:
        0 where everything planned is proved (and published), else 1.
    """
    clock = time.monotonic()
    # A compiler that is missing, or too new for another, is told before anything is built.
    keys = {cell.id: reuse.key(plan, cell, toolchains.find(cell, compiler)) for cell in plan.cells}
    served = hub is not None and "://" in hub
    former = {} if fresh or served else reuse.find(plan, folder, keys)
    with reuse.kept(plan, folder, former):
        _clear(folder)
    write_plan(plan, folder / PLAN_FILE)
    show_plan(console, plan, explain=False)
    for number, cell in enumerate(plan.cells, 1):
        console.rule(f"{number} of {len(plan.cells)}: {cell.id}", align="left")
        if cell.id in former:
            receipts = reuse.take_over(plan, former[cell.id])
            for receipt in receipts:
                show_receipt(console, receipt)
        else:
            receipts = _prove(plan, cell, folder, console, compiler)
        for receipt in receipts:
            receipt.model_copy(update={"key": keys[cell.id]}).write(
                receipt_file(folder, cell, receipt.stage)
            )
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


def _prove(
    plan: Plan, cell: Cell, folder: Path, console: Console, compiler: str | None
) -> list[Receipt]:
    """Build, audit and test a cell; return the receipts of what was done."""
    with console.status(f"building {cell.id}"):
        built = build_cell(plan, cell, folder, compiler=compiler)
    show_receipt(console, built)
    if built.outcome == "failed":
        return [built]
    with console.status(f"auditing {cell.id}"):
        audited = audit_cell(plan, cell, folder)
    show_receipt(console, audited)
    if cell.evidence == "build-only":
        console.print(f"-- test {cell.id}: {cell.reason}", markup=False, highlight=False)
        return [built, audited]
    with console.status(f"testing {cell.id}"):
        tested, result = test_cell(plan, cell, folder)
    if tested.outcome == "failed":
        console.print(result.output, markup=False, highlight=False)
    show_receipt(console, tested)
    return [built, audited, tested]


def _clear(folder: Path) -> None:
    """Remove a former run's results, and nothing else."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / PLAN_FILE).is_file()):
        raise InputError(
            "is not the folder of a run", where=folder, fix="name a new or empty folder with -o"
        )
    shutil.rmtree(folder)
