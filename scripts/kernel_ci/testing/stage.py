"""The test stage: the kernel's own suite on a built variant, and the receipt for it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

from kernel_ci import __version__, devices
from kernel_ci.build import package
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import InfrastructureError
from kernel_ci.layout import receipt_file
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt, installed, now, this_machine
from kernel_ci.testing import emulator, preflight
from kernel_ci.testing.suite import SuiteResult, run_suite


def test_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    *,
    emulate: bool = False,  # noqa: PT028
) -> tuple[Receipt, SuiteResult]:
    """Test a cell's variant directory and leave a receipt.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        emulate: Whether to run the quick tests with an emulator where this machine cannot run
            the variant itself; the receipt says so.

    Returns:
        The receipt, and the suite's result with what pytest printed.

    Raises:
        InputError: The variant has not been built, or the suite is not the planned one.
        InfrastructureError: This machine cannot run the variant, so it was not judged.
    """
    directory = package.built(folder, cell).resolve()
    cannot = devices.why_not(cell.platform, cell.backend)
    if cannot is not None and not emulate:
        raise InfrastructureError(
            f"the variant cannot be tested here: {cannot}",
            where=cell.id,
            fix=f"test it on a {cell.platform} machine, e.g. a runner labelled"
            f" {', '.join(cell.test_runner)}",
        )
    device = preflight.check(cell) if cannot is None else None
    started, clock = now(), time.monotonic()
    planned = plan.kernel(cell.kernel)
    kernel = open_kernel(planned)
    digest = package.digest(directory)
    tools, machine = installed(), this_machine(device.name if device else None)
    with nullcontext() if cannot is None else emulator.emulated(cell) as emulated:
        result = run_suite(
            kernel.tests,
            backend=cell.backend,
            variant=directory,
            repo_id=planned.repo_id,
            quick=emulated is not None,
            environment=emulated.environment if emulated else None,
            python=emulated.python if emulated else None,
        )
        if emulated is not None:
            tools, machine = emulated.tools, emulated.machine(cell, machine)
    findings = result.findings
    if package.digest(directory) != digest:
        findings = (*findings, "the suite changed the variant directory")
    receipt = Receipt(
        plan=plan.id,
        run=plan.run,
        cell=cell.id,
        stage="test",
        digest=digest,
        outcome="failed" if findings else "passed",
        findings=findings,
        counts=result.counts,
        skips=result.skips,
        not_covered=result.not_covered,
        tools={"kernel-ci": __version__, **tools},
        machine=machine,
        started=started,
        seconds=round(time.monotonic() - clock, 3),
        reproduce=f"kernel-ci test plan.json . --cell {cell.id}{' --emulate' if cannot else ''}",
    )
    receipt.write(receipt_file(folder, cell, "test"))
    return receipt, result
