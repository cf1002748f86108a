"""What people see: tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from kernel_ci.gate import CellVerdict, Verdict
    from kernel_ci.plan import Plan
    from kernel_ci.receipts import Receipt

#: Reasons of one cell that are printed; the verdict's file has all of them.
_MOST_REASONS = 5

#: Cells that are listed one by one; of more, nobody reads a list on a terminal.
_MOST_CELLS = 200


def human_size(count: int) -> str:
    """Return a number of bytes in the largest fitting unit, e.g. `1.2 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def human_time(seconds: float) -> str:
    """Return a duration, e.g. `4.2 s` or `2 min 05 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def show_plan(console: Console, plan: Plan, *, explain: bool) -> None:
    """Print a plan's cells, and with `explain` why the others are left out.

    Many cells are counted by variant, unless they are to be explained.
    """
    counted = len(plan.cells) > _MOST_CELLS and not explain
    rows: Counter[tuple[str, ...]] = Counter()
    for cell in plan.cells:
        build_only = cell.evidence == "build-only"
        row: tuple[str, ...] = (
            cell.variant if counted else cell.id,
            cell.toolchain,
            " ".join(cell.build_runner),
            "-" if build_only else " ".join(cell.test_runner),
            f"build-only ({cell.reason})" if build_only else "tested",
        )
        rows[row] += 1
    title = f"{len(plan.cells)} planned"
    if counted:
        title += f", of {len(plan.kernels)} kernels; --explain lists each"
    table = Table(title=title, title_justify="left")
    headings = ("variant" if counted else "cell", "toolchain", "build on", "test on", "evidence")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    if counted:
        table.add_column("kernels", justify="right")
    for cells, count in rows.items():
        table.add_row(*cells, *([str(count)] if counted else []))
    console.print(table)
    if explain and plan.excluded:
        left_out = Table(title=f"{len(plan.excluded)} left out", title_justify="left")
        for heading in ("variant", "by", "why"):
            left_out.add_column(heading, overflow="fold")
        for item in plan.excluded:
            left_out.add_row(item.id, item.by, item.reason)
        console.print(left_out)
    elif any(item.by != "kernel" for item in plan.excluded):
        count = sum(item.by != "kernel" for item in plan.excluded)
        console.print(f"{count} further variants are left out; --explain tells why")


def show_receipt(console: Console, receipt: Receipt) -> None:
    """Print one line for a receipt, and its findings."""
    good = receipt.outcome == "passed"
    mark = "[green]ok[/]" if good else "[red]FAILED[/]"
    detail = ""
    if receipt.counts is not None:
        detail = f"  {count_words(receipt)}"
    if receipt.runtimes:
        detail = f"  ran under {len(receipt.runtimes)} releases of tvm-ffi:"
        detail += f" {receipt.runtimes[0]} to {receipt.runtimes[-1]}"
    if receipt.reused is not None:
        detail += "  (of an earlier run; nothing has changed)"
    console.print(
        f"{mark} {receipt.stage} {receipt.cell}  {human_time(receipt.seconds)}{detail}",
        highlight=False,
    )
    for finding in receipt.findings:
        console.print(f"   {finding}", markup=False, highlight=False)
    if not good:
        console.print(f"   again: {receipt.reproduce}", markup=False, highlight=False)


def count_words(receipt: Receipt) -> str:
    """Return a receipt's test counts in words, without what is zero."""
    counts = receipt.counts
    if counts is None:
        return ""
    parts = [
        f"{number} {word}"
        for number, word in (
            (counts.passed, "passed"),
            (counts.failed, "failed"),
            (counts.skipped, "skipped"),
            (counts.not_covered, "not covered here"),
        )
        if number
    ]
    return ", ".join(parts) or "no test"


def show_verdict(
    console: Console, plan: Plan, verdict: Verdict, published: dict[str, str] | None = None
) -> None:
    """Print the one table that says how each variant fared.

    Args:
        console: Where to.
        plan: The plan.
        verdict: The verdict.
        published: Kernel's name -> what became of its publishing; None before that stage.
    """
    table = Table(title="verdict", title_justify="left")
    headings = ["variant", "build", "audit", "test", "proved", "size", "time"]
    if published is not None:
        headings.insert(5, "published")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for cell in verdict.cells:
        row = [
            cell.id,
            *(_stage(cell, stage) for stage in ("build", "audit", "test")),
            _proved(cell),
            human_size(cell.bytes),
            human_time(sum(cell.seconds.values())),
        ]
        if published is not None:
            row.insert(5, published.get(cell.id.partition("/")[0], "no"))
        table.add_row(*row)
    console.print(table)
    for cell in verdict.cells:
        for reason in cell.reasons[:_MOST_REASONS]:
            console.print(f"{cell.id}: {reason}", markup=False, highlight=False)
        if len(cell.reasons) > _MOST_REASONS:
            console.print(f"{cell.id}: and {len(cell.reasons) - _MOST_REASONS} reasons more")
        for line in cell.bench:
            console.print(f"{cell.id}: {line}", markup=False, highlight=False)
    left_out = [item for item in plan.excluded if item.by != "kernel"]
    if left_out:
        console.print(f"not part of this run: {_listed([item.id for item in left_out])}")


def _stage(cell: CellVerdict, stage: str) -> str:
    if stage == "test" and cell.evidence == "build-only":
        return "build-only"
    refused = any(reason.startswith(f"{stage}:") for reason in cell.reasons)
    if stage not in cell.seconds:
        return "[red]missing[/]"
    if refused:
        return "[red]FAILED[/]"
    if stage == "test" and cell.counts is not None:
        counts = cell.counts
        more = f", {counts.not_covered} not covered" if counts.not_covered else ""
        return f"[green]{counts.passed} passed[/]{more}"
    return "[green]ok[/]"


def _proved(cell: CellVerdict) -> str:
    if not cell.proved:
        return "[red]no[/]"
    return "built only" if cell.evidence == "build-only" else "[green]yes[/]"


def _listed(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
