"""The gate: plan + receipts + what is on disk -> verdict.

Pure but for reading. Only positive evidence counts: no receipt, a receipt of another plan
or run, another digest, no test run, a skip that nobody declared: not proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from kernel_ci.bench.document import STAGE as BENCH
from kernel_ci.bench.document import BenchResult
from kernel_ci.build import package
from kernel_ci.documents import Document, Model
from kernel_ci.errors import InputError
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.matrix import Evidence
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Counts, Machine, Receipt, Stage

FILE = "verdict.json"


class CellVerdict(Model):
    """The judgement on one cell.

    Attributes:
        id: The cell's id.
        proved: Whether all required evidence is there.
        evidence: What was required.
        declared: Who declared `build-only`, and why.
        reasons: Why it is not proved, one line each.
        digest: Digest of the variant directory, or None where there is none.
        bytes: Size of the variant directory.
        seconds: Duration of each stage that left a receipt.
        counts: The test counts, or None.
        machine: Where it was tested, or None.
        bench: What the benchmarks say, one line each, where they do not count.
    """

    id: str
    proved: bool
    evidence: Evidence
    declared: str | None
    reasons: tuple[str, ...]
    digest: str | None
    bytes: int
    seconds: dict[Stage, float]
    counts: Counts | None
    machine: Machine | None
    bench: tuple[str, ...] = ()


class Verdict(Document):
    """The judgement on a plan; publishing needs one that is accepted.

    Attributes:
        plan: Id of the plan.
        run: Id of the run.
        accepted: Whether every planned cell is proved.
        cells: The judgement on each planned cell.
    """

    kind: Literal["kernel-ci verdict"] = "kernel-ci verdict"
    format: Literal[1] = 1
    plan: str
    run: str
    accepted: bool
    cells: tuple[CellVerdict, ...]


class Found(Model):
    """What is on disk for one cell.

    Attributes:
        digest: Digest of the variant directory now, or None where it is missing or broken.
        broken: Why it has no digest though it is there.
        bytes: Its size.
        receipts: Its receipts, or why one cannot be read.
        bench: The result of its benchmarks, why it cannot be read, or None.
    """

    digest: str | None = None
    broken: str | None = None
    bytes: int = 0
    receipts: dict[Stage, Receipt | str]
    bench: BenchResult | str | None = None


def collect(plan: Plan, folder: Path) -> dict[str, Found]:
    """Read what a run left in its folder for each planned cell."""
    found = {}
    for cell in plan.cells:
        receipts: dict[Stage, Receipt | str] = {}
        for stage in ("build", "audit", "test"):
            file = receipt_file(folder, cell, stage)
            if file.exists():
                try:
                    receipts[stage] = Receipt.read(file)
                except InputError as error:
                    receipts[stage] = error.what
        bench: BenchResult | str | None = None
        if (file := receipt_file(folder, cell, BENCH)).exists():
            try:
                bench = BenchResult.read(file)
            except InputError as error:
                bench = error.what
        directory = variant_directory(folder, cell)
        if not directory.is_dir():
            found[cell.id] = Found(receipts=receipts, bench=bench)
            continue
        try:
            digest, broken = package.digest(directory), None
        except (OSError, ValueError) as error:
            digest, broken = None, f"cannot be read: {error}"
        found[cell.id] = Found(
            digest=digest,
            broken=broken,
            bytes=package.size(directory),
            receipts=receipts,
            bench=bench,
        )
    return found


def judge(plan: Plan, found: Mapping[str, Found]) -> Verdict:
    """Judge every planned cell by what was found for it."""
    cells = tuple(_judge_cell(plan, cell, found[cell.id]) for cell in plan.cells)
    return Verdict(
        plan=plan.id, run=plan.run, accepted=all(cell.proved for cell in cells), cells=cells
    )


def _judge_cell(plan: Plan, cell: Cell, found: Found) -> CellVerdict:
    reasons = []
    if found.digest is None:
        reasons.append(found.broken or "nobody built it: there is no variant directory")
    for stage in cell.stages:
        reasons += _judge_receipt(plan, cell, stage, found)  # type: ignore[arg-type]
    bench, counts_here = judge_bench(plan, cell, found)
    if counts_here:
        reasons += bench
    receipts = {s: r for s, r in found.receipts.items() if isinstance(r, Receipt)}
    test = receipts.get("test")
    return CellVerdict(
        id=cell.id,
        proved=not reasons,
        evidence=cell.evidence,
        declared=cell.reason,
        reasons=tuple(reasons),
        digest=found.digest,
        bytes=found.bytes,
        seconds={stage: receipt.seconds for stage, receipt in receipts.items()},
        counts=test.counts if test else None,
        machine=test.machine if test else None,
        bench=() if counts_here else tuple(bench),
    )


def _judge_receipt(plan: Plan, cell: Cell, stage: Stage, found: Found) -> list[str]:
    receipt = found.receipts.get(stage)
    if receipt is None:
        return [f"{stage}: there is no receipt; the stage did not run"]
    if isinstance(receipt, str):
        return [f"{stage}: the receipt is not valid: {receipt}"]
    if another := _of_another(
        ("cell", receipt.cell, cell.id),
        ("stage", receipt.stage, stage),
        ("run", receipt.run, plan.run),
        ("plan", receipt.plan, plan.id),
    ):
        return [f"{stage}: the receipt is of {another}"]
    if receipt.outcome == "failed":
        return [f"{stage}: failed: {finding}" for finding in receipt.findings or ("no reason",)]
    reasons = []
    if found.digest is not None and receipt.digest != found.digest:
        reasons.append(
            f"{stage}: the variant directory is not the one that the receipt is about"
            f" (now {found.digest[:19]}…, then {receipt.digest[:19]}…)"
        )
    if stage == "test":
        reasons += _judge_counts(plan, receipt)
    return reasons


def _of_another(*named: tuple[str, str, str | None]) -> str | None:
    """Return the first of (name, what evidence has, what it should have) that differs, in words."""
    for name, has, wants in named:
        if has != wants:
            return f"another {name} ({has}, not {wants})"
    return None


def judge_bench(plan: Plan, cell: Cell, found: Found) -> tuple[list[str], bool]:
    """Return what the benchmarks say against a cell, and whether that counts.

    It counts where the kernel's author requires benchmarks, for cells that are tested: the
    machine that tests one can time it. The limit is the plan's, whatever the result says.
    """
    settings = plan.kernel(cell.kernel).bench
    required = settings.required and cell.evidence == "tested"
    result = found.bench
    if result is None:
        missing = ["bench: there is no result, and the author requires one"]
        return (missing, True) if required else ([], False)
    if isinstance(result, str):
        return [f"bench: the result is not valid: {result}"], required
    if another := _of_another(
        ("cell", result.cell, cell.id),
        ("run", result.run, plan.run),
        ("plan", result.plan, plan.id),
        ("variant directory", result.digest, found.digest),
    ):
        return [f"bench: the result is of {another}"], required
    if not result.workloads:
        return ["bench: nothing was timed"], required
    if result.nothing_published is not None:
        # A first release has nothing to be slower than. Said, but never held against it.
        return [f"bench: nothing to compare with: {result.nothing_published}"], False
    if result.against is None or any(work.ratio is None for work in result.workloads):
        return ["bench: it was not compared with another build"], required
    return [f"bench: {line}" for line in result.slower(settings.slowdown_limit)], required


def _judge_counts(plan: Plan, receipt: Receipt) -> list[str]:
    if receipt.counts is None or not receipt.counts.passed:
        return ["test: no test was run"]
    if receipt.counts.failed:
        return [f"test: {receipt.counts.failed} failed"]
    undeclared = [
        skip
        for skip in receipt.skips
        if not any(fnmatchcase(skip.partition(": ")[0], glob) for glob in plan.allowed_skips)
    ]
    if receipt.counts.skipped > len(receipt.skips):
        return ["test: tests were skipped that the receipt does not name"]
    return [f"test: skipped, and nobody declared it: {skip}" for skip in undeclared]
