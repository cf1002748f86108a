"""The build stage: a cell's variant directory, and the receipt for it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from kernel_ci import __version__, abi, toolchains, tvm_ffi
from kernel_ci.abi.stamp import Stamp
from kernel_ci.audit.readers import read_library
from kernel_ci.build import host, package
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import Rejected
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt, now, this_machine


def build_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    *,
    compiler: str | None = None,
    jobs: int | None = None,
) -> Receipt:
    """Build a cell into its variant directory and leave a receipt.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        compiler: A compiler to use in place of the toolchain's default.
        jobs: How many compilers run at once.

    Returns:
        The receipt; its outcome is `failed` where the compiler refused the sources.

    Raises:
        InputError: The sources are not those of the plan, or no compiler is here.
        Rejected: Nothing may be built with the headers of the release that the plan names.
        InfrastructureError: tvm-ffi could not be fetched, or CMake does not work.
    """
    started, clock = now(), time.monotonic()
    planned = plan.kernel(cell.kernel)
    kernel, state = open_kernel(planned), planned.source
    abi.check_headers(cell.tvm_ffi)
    chosen = toolchains.find(cell, compiler)
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    directory = variant_directory(folder, cell)
    directory.parent.mkdir(parents=True, exist_ok=True)
    findings: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="kernel-ci-build-") as work:
        try:
            library = host.compile_library(
                kernel,
                cell,
                release,
                chosen,
                package.variant_id(kernel, cell, state),
                Path(work),
                jobs=jobs,
            )
            runtimes = _runtimes(library, cell)
            package.assemble(kernel, cell, state, library, directory, runtimes=runtimes)
        except Rejected as error:
            findings = (error.what,)
    receipt = Receipt(
        plan=plan.id,
        run=plan.run,
        cell=cell.id,
        stage="build",
        digest="" if findings else package.digest(directory),
        outcome="failed" if findings else "passed",
        findings=findings,
        tools={
            "kernel-ci": __version__,
            "apache-tvm-ffi": release.version,
            chosen.name: chosen.version,
            **chosen.others,
        },
        machine=this_machine(),
        started=started,
        seconds=round(time.monotonic() - clock, 3),
        reproduce=f"kernel-ci build plan.json --cell {cell.id}"
        + (f" --compiler {compiler}" if compiler else ""),
    )
    receipt.write(receipt_file(folder, cell, "build"))
    return receipt


def _runtimes(library: Path, cell: Cell) -> abi.RuntimeWindow:
    """Return the tvm-ffi runtimes that a library works with, by what it imports and uses.

    What only a test could tell is denied: nobody has run the library yet.
    """
    facts = read_library(library)
    if facts.stamp is None:
        raise Rejected(
            "the build stamp is missing from the library",
            where=cell.id,
            fix="do not strip exported data symbols: remove such flags from build.toml",
        )
    window = abi.judge(
        {entry.name for entry in facts.imports if not entry.weak},
        facts.features,
        cell.tvm_ffi,
        cell.platform,
        ruled_out=Stamp.parse(facts.stamp).risks_ruled_out,
    )
    return abi.runtime_window(window, cell.tvm_ffi)
