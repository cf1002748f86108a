"""What a benchmark run leaves beside the receipts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_ci.bench.compare import Ratio
from kernel_ci.documents import Document, Model
from kernel_ci.receipts import Machine

#: The name of the file's stage, as `layout.receipt_file` takes it.
STAGE = "bench"


class Baseline(Model):
    """The build that was compared with.

    Attributes:
        name: Where it is from, as the user named it.
        id: The `id` of its metadata.
        digest: Digest of its variant directory.
    """

    name: str
    id: str
    digest: str


class Workload(Model):
    """One `benchmark_*` method.

    Attributes:
        name: `<script>::<class>::<workload>`.
        verified: Whether results were checked; False where there is no `verify_*`.
        calls: Calls per timing.
        seconds: Time of one call (median).
        against_seconds: That of the baseline.
        ratio: `seconds` over `against_seconds`, with a confidence interval.
    """

    name: str
    verified: bool
    calls: int
    seconds: float
    against_seconds: float | None = None
    ratio: Ratio | None = None


class BenchResult(Document):
    """The benchmarks of one cell.

    Attributes:
        plan: Id of the plan.
        run: Id of the run.
        cell: Id of the cell.
        digest: Digest of the variant directory that was measured.
        against: What it was compared with, or None.
        nothing_published: Why there is nothing to compare with, where one was asked for.
        slowdown_limit: The ratio up to which a slowdown is accepted.
        workloads: The results.
        tools: Versions of what was used.
        machine: Where it ran.
        started: When it began (UTC, ISO 8601).
        seconds: How long it took.
        reproduce: The command that does the same at a desk.
    """

    kind: Literal["kernel-ci bench"] = "kernel-ci bench"
    format: Literal[1] = 1
    plan: str
    run: str
    cell: str
    digest: str
    against: Baseline | None
    nothing_published: str | None = None
    slowdown_limit: float
    workloads: tuple[Workload, ...]
    tools: dict[str, str] = Field(default_factory=dict)
    machine: Machine
    started: str
    seconds: float
    reproduce: str

    def slower(self, limit: float) -> tuple[str, ...]:
        """Return a line for each workload that is slower than a limit beyond doubt."""
        return tuple(
            f"{w.name} takes {w.ratio.median:.3f} times as long as {self.against.name}"
            f" ({100 * w.ratio.confidence:.1f} % interval {w.ratio.low:.3f} to {w.ratio.high:.3f},"
            f" limit {limit:g})"
            for w in self.workloads
            if w.ratio is not None and self.against is not None and w.ratio.slower_than(limit)
        )
