"""What people see of a run: the step summary, and annotations at the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from kernel_ci.gate import CellVerdict, Verdict
from kernel_ci.github import actions
from kernel_ci.github.legs import Legs
from kernel_ci.plan import Cell, Excluded, Plan
from kernel_ci.receipts import Receipt
from kernel_ci.report import human_size, human_time

#: GitHub takes 1 MiB of summary from a step; these keep 1024 cells well below it.
_MOST_DETAILS = 100
_MOST_REASONS = 5
_MOST_CHARACTERS = 1500

_FAILED_TEST = re.compile(r"(?P<file>[\w./-]+\.py)::(?P<test>\S+): (?P<rest>.*)", re.DOTALL)
_CRASH = re.compile(r"(?P<file>\S+\.py):(?P<line>\d+): (?P<message>.*)", re.DOTALL)


def plan_summary(plan: Plan, legs: Legs, notes: Sequence[str]) -> str:
    """Return the summary of the plan: what is left out, and what will not run."""
    lines = [f"## Plan: {len(plan.cells)} variants", ""]
    lines += [f"- {note}" for note in notes]
    for held in legs.withheld:
        lines.append(f"- :warning: `{held.cell}`: {held.stage} {_escape(held.reason)}")
    left_out = [item for item in plan.excluded if item.by != "kernel"]
    if left_out:
        lines += ["", _details(f"{len(left_out)} variants left out", _left_out(left_out))]
    return "\n".join(lines) + "\n"


def verdict_summary(plan: Plan, legs: Legs | None, verdict: Verdict) -> str:
    """Return the summary of a verdict: every cell, and what decided."""
    proved = sum(cell.proved for cell in verdict.cells)
    word = "accepted" if verdict.accepted else "not accepted"
    lines = [
        f"## {':white_check_mark:' if verdict.accepted else ':x:'} Verdict: {word}",
        "",
        f"{proved} of {len(verdict.cells)} planned variants are proved.",
        "",
        "| variant | build | audit | test | proved | size | time | tested on |",
        "| :-- | :-- | :-- | :-- | :-- | --: | --: | :-- |",
    ]
    # What needs attention first.
    lines += [_row(cell) for cell in sorted(verdict.cells, key=lambda cell: cell.proved)]
    withheld = {held.cell: held.reason for held in legs.withheld} if legs else {}
    refused = [cell for cell in verdict.cells if not cell.proved]
    for cell in refused[:_MOST_DETAILS]:
        lines += ["", f"### `{cell.id}`", ""]
        if cell.id in withheld:
            lines.append(f"- {_escape(withheld[cell.id])}")
        lines += [f"- {_reason(reason)}" for reason in cell.reasons[:_MOST_REASONS]]
        if len(cell.reasons) > _MOST_REASONS:
            lines.append(f"- and {len(cell.reasons) - _MOST_REASONS} more, see verdict.json")
        lines += ["", "Again, on a machine of your own:", "", "```sh"]
        lines += [*reproduce(plan, _cell(plan, cell.id), legs.commit if legs else None), "```"]
    if len(refused) > _MOST_DETAILS:
        lines += ["", f"and {len(refused) - _MOST_DETAILS} variants more, see verdict.json"]
    return "\n".join(lines) + "\n"


def reproduce(plan: Plan, cell: Cell, commit: str | None) -> list[str]:
    """Return the commands that do the same for one cell at a desk."""
    kernel = plan.kernel(cell.kernel)
    words = ["kernel-ci", "pipeline", kernel.path, "--only", cell.variant]
    if cell.evidence == "build-only":
        words += ["--build-only", cell.variant]
    for glob in plan.allowed_skips:
        words += ["--allow-skip", glob]
    checkout = [f"git checkout {commit or kernel.source.commit}"]
    return [*(checkout if commit or kernel.source.commit else []), shlex.join(words)]


def annotate_receipt(plan: Plan, cell: Cell, receipt: Receipt) -> None:
    """Show what a receipt says of a failure at the code, where that is known."""
    if receipt.outcome == "passed":
        return
    kernel = Path(plan.kernel(cell.kernel).path)
    title = f"{receipt.stage} of {cell.id} failed"
    again = "\n".join(["", "Again:", *reproduce(plan, cell, None)])
    for finding in receipt.findings[: actions.MOST_ANNOTATIONS - 1]:
        file, line, message = locate(finding, kernel)
        actions.annotate(
            "error", message[:_MOST_CHARACTERS] + again, file=file, line=line, title=title
        )
    more = len(receipt.findings) - (actions.MOST_ANNOTATIONS - 1)
    if more > 0:
        actions.annotate("error", f"and {more} more, see the log", title=title)


def annotate_verdict(verdict: Verdict) -> None:
    """Show which cells are not proved."""
    refused = [cell for cell in verdict.cells if not cell.proved]
    for cell in refused[: actions.MOST_ANNOTATIONS - 1]:
        message = cell.reasons[0].partition("\n")[0] if cell.reasons else "not proved"
        actions.annotate("error", message, title=f"{cell.id} is not proved")
    more = len(refused) - (actions.MOST_ANNOTATIONS - 1)
    if more > 0:
        actions.annotate("error", f"and {more} variants more, see the summary", title="not proved")


def locate(finding: str, kernel: Path) -> tuple[str | None, int | None, str]:
    """Return the file and line that a finding is about, and what it says.

    A failing test names its file in the kernel's suite and, mostly, the line that raised; a
    compiler's message is left to the problem matchers, which see every line of its output.
    """
    test = _FAILED_TEST.match(finding)
    if test is None:
        return None, None, finding.partition("\n")[0]
    file = kernel / "tests" / test["file"]
    shown = file.as_posix() if file.is_file() else None
    crash = _CRASH.match(test["rest"])
    if crash is None:
        return shown, None, f"{test['test']}: {test['rest']}"
    # The innermost frame may be elsewhere; the test's own file is where people look.
    line = int(crash["line"]) if Path(crash["file"]).name == Path(test["file"]).name else None
    return shown, line, f"{test['test']}: {crash['message']}"


def _cell(plan: Plan, cell_id: str) -> Cell:
    return next(cell for cell in plan.cells if cell.id == cell_id)


def _row(cell: CellVerdict) -> str:
    columns = [
        f"`{cell.id}`",
        *(_stage(cell, stage) for stage in ("build", "audit", "test")),
        _proved(cell),
        human_size(cell.bytes) if cell.bytes else "-",
        human_time(sum(cell.seconds.values())) if cell.seconds else "-",
        _machine(cell),
    ]
    return f"| {' | '.join(columns)} |"


def _stage(cell: CellVerdict, stage: str) -> str:
    if stage == "test" and cell.evidence == "build-only":
        return "not asked"
    if stage not in cell.seconds:
        return "**missing**"
    if any(reason.startswith(f"{stage}:") for reason in cell.reasons):
        return "**failed**"
    if stage == "test" and cell.counts is not None:
        return f"{cell.counts.passed} passed"
    return "ok"


def _proved(cell: CellVerdict) -> str:
    if not cell.proved:
        return ":x:"
    return f"build-only: {_escape(cell.declared or '')}" if cell.declared else ":white_check_mark:"


def _machine(cell: CellVerdict) -> str:
    if cell.machine is None:
        return "-"
    return _escape(cell.machine.device or cell.machine.platform)


def _reason(reason: str) -> str:
    first, _, rest = reason.partition("\n")
    if not rest:
        return _escape(first)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", rest)), 3)
    # The end of a compiler's output has the error that stopped it; only whole lines of it.
    if len(rest) > _MOST_CHARACTERS:
        end = rest[-_MOST_CHARACTERS:]
        rest = "…\n" + (end.partition("\n")[2] or end)
    return f"{_escape(first)}\n{fence}\n{rest}\n{fence}"


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _left_out(items: Sequence[Excluded]) -> str:
    return "\n".join(f"- `{item.id}`: {_escape(item.reason)}" for item in items)


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
