"""What people see of a benchmark run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from kernel_ci.bench.document import BenchResult
from kernel_ci.report import human_time


def show_result(console: Console, result: BenchResult) -> None:
    """Print a result's table and what is to be known about it."""
    table = Table(title=f"bench {result.cell}", title_justify="left")
    for heading in ("workload", "one call", "baseline", "ratio", "interval"):
        table.add_column(heading, overflow="fold")
    for work in result.workloads:
        ratio = work.ratio
        flagged = ratio is not None and ratio.slower_than(result.slowdown_limit)
        table.add_row(
            work.name,
            call_time(work.seconds),
            call_time(work.against_seconds) if work.against_seconds else "-",
            f"[{'red' if flagged else 'green'}]{ratio.median:.3f}[/]" if ratio else "-",
            f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else "-",
        )
    console.print(table)
    for work in result.workloads:
        if not work.verified:
            console.print(
                f"notice: {work.name} has no verify_*: what it computes was not checked",
                markup=False,
                highlight=False,
            )
    if result.nothing_published:
        console.print(
            f"nothing to compare with: {result.nothing_published}", markup=False, highlight=False
        )
    for line in result.slower(result.slowdown_limit):
        console.print(f"slower: {line}", style="red", markup=False, highlight=False)
    console.print(f"{len(result.workloads)} workloads in {human_time(result.seconds)}")


def call_time(seconds: float) -> str:
    """Return the time of one call in the unit that fits, e.g. `1.25 µs`."""
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"
