"""The audit stage: what a built variant is, under which runtimes it works, and the receipt."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kernel_ci import __version__, devices
from kernel_ci.audit import archs, archs_xpu
from kernel_ci.audit.dynamic import DEFAULT, Suite, audit_dynamic
from kernel_ci.audit.variant import audit_variant
from kernel_ci.build import package
from kernel_ci.checkout import open_kernel
from kernel_ci.layout import receipt_file
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt, now, this_machine


def audit_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    *,
    runtimes: str = DEFAULT,
    say: Callable[[str], None] = lambda line: None,
) -> Receipt:
    """Audit a cell's variant directory and leave a receipt.

    Where this machine can run the variant, it is also run under several releases of tvm-ffi;
    elsewhere, and for what is built only, the receipt says that it was not.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        runtimes: Which releases (see `dynamic.choose`), or `none`.
        say: Told about progress.

    Raises:
        InputError: The variant has not been built, or the suite is not the planned one.
        InfrastructureError: A release could not be downloaded.
    """
    directory = package.built(folder, cell)
    started, clock = now(), time.monotonic()
    digest = package.digest(directory)
    not_run = _why_not(cell, runtimes)
    planned = plan.kernel(cell.kernel)
    kernel = open_kernel(planned)
    if not_run is None:
        tests = kernel.tests
        # Without any the test stage has a finding of its own.
        suite = Suite(tests, planned.repo_id) if tests.is_dir() else None
        report = audit_dynamic(directory, runtimes, suite=suite, say=say)
    else:
        report = audit_variant(directory)
    (variant,) = report.variants
    every = [*archs.judge_cell(cell, variant.facts.metadata or {}), *report.findings]
    if cell.backend == "metal":
        libraries = [library.facts.path for library in variant.libraries]
        every += archs_xpu.audit_metal(kernel, directory, libraries)
    errors = [finding for finding in every if finding.level == "error"]
    told = errors or [finding for finding in every if finding.level == "warning"]
    findings = [f"{f.check}: {f.where}: {f.message}" for f in told]
    if not_run is not None:
        findings.append(f"runtimes: not run under any tvm-ffi: {not_run}")
    receipt = Receipt(
        plan=plan.id,
        run=plan.run,
        cell=cell.id,
        stage="audit",
        digest=digest,
        outcome="failed" if errors else "passed",
        findings=tuple(findings),
        runtimes=tuple(v for ran in report.dynamic for v in ran.verified),
        tools={"kernel-ci": __version__},
        machine=this_machine(),
        started=started,
        seconds=round(time.monotonic() - clock, 3),
        reproduce=f"kernel-ci audit . --plan plan.json --cell {cell.id}",
    )
    receipt.write(receipt_file(folder, cell, "audit"))
    return receipt


def _why_not(cell: Cell, runtimes: str) -> str | None:
    """Return why a cell is not run, None if it is."""
    if runtimes == "none":
        return "nobody asked for it"
    if cell.evidence == "build-only":
        return "it is built only"
    return devices.why_not(cell.platform, cell.backend)
