"""The benchmark stage: a cell's workloads, against another build, and what it leaves."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from kernel_ci import __version__, devices
from kernel_ci.bench import against
from kernel_ci.bench.document import STAGE, Baseline, BenchResult
from kernel_ci.bench.measure import ROUNDS, Build, measure
from kernel_ci.build import package
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import InfrastructureError
from kernel_ci.layout import receipt_file
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import installed, now, this_machine


def bench_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    *,
    baseline: str | None = None,
    hub: str | None = None,
    rounds: int = ROUNDS,
) -> BenchResult:
    """Run a cell's benchmarks and leave the result beside its receipts.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        baseline: What to compare with (see `against.find`), or None.
        hub: Where published builds are.
        rounds: How many times to begin anew (see `compare`).

    Raises:
        InputError: The variant has not been built, there are no benchmarks, or the baseline
            cannot be compared with.
        Rejected: A benchmark raised, or a build computes something else than it verifies.
        InfrastructureError: This machine cannot run the variant, or the Hub is out of reach.
    """
    directory = package.built(folder, cell)
    cannot = devices.why_not(cell.platform, cell.backend)
    if cannot is not None:
        raise InfrastructureError(
            f"the variant cannot be timed here: {cannot}",
            where=cell.id,
            fix=f"run it on a {cell.platform} machine",
        )
    planned = plan.kernel(cell.kernel)
    benchmarks = open_kernel(planned).path / "benchmarks"
    started, clock = now(), time.monotonic()
    digest = package.digest(directory)
    compared, nothing, other = None, None, None
    with ExitStack() as stack:
        if baseline is not None:
            try:
                found, content = stack.enter_context(against.find(baseline, planned, cell, hub))
            except against.NothingPublished as missing:
                nothing = str(missing)
            else:
                compared = Baseline(name=baseline, id=content["id"], digest=package.digest(found))
                other = Build(f"the baseline, {baseline}", found)
        workloads = measure(
            Build(cell.id, directory), other, benchmarks, cell.backend, rounds=rounds
        )
    command = f"kernel-ci bench {planned.path} -o . --cell {cell.id}"
    result = BenchResult(
        plan=plan.id,
        run=plan.run,
        cell=cell.id,
        digest=digest,
        against=compared,
        nothing_published=nothing,
        slowdown_limit=planned.bench.slowdown_limit,
        workloads=workloads,
        tools={"kernel-ci": __version__, **installed()},
        machine=this_machine(),
        started=started,
        seconds=round(time.monotonic() - clock, 3),
        reproduce=command + (f" --against {baseline}" if baseline else ""),
    )
    result.write(receipt_file(folder, cell, STAGE))
    return result
