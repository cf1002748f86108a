"""The build stage: a cell's variant directory, and the receipt for it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Literal

from kernel_ci import __version__, abi, toolchains, tvm_ffi
from kernel_ci.abi.stamp import Stamp
from kernel_ci.audit.readers import read_library
from kernel_ci.build import host, package
from kernel_ci.checkout import open_kernel
from kernel_ci.errors import InputError, Rejected
from kernel_ci.layout import receipt_file, variant_directory, wheel_folder
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt, now, this_machine

Engine = Literal["host", "cibuildwheel"]


def build_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    *,
    compiler: str | None = None,
    jobs: int | None = None,
    engine: Engine = "host",
) -> Receipt:
    """Build a cell into its variant directory and leave a receipt.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        compiler: A compiler to use in place of the toolchain's default.
        jobs: How many compilers run at once.
        engine: `host`, or `cibuildwheel`, which leaves the cell's wheel as well and takes
            neither a compiler nor a number of jobs.

    Returns:
        The receipt; its outcome is `failed` where the compiler refused the sources.

    Raises:
        InputError: The sources are not those of the plan, or no compiler is here.
        Rejected: Nothing may be built with the headers of the release that the plan names.
        InfrastructureError: tvm-ffi could not be fetched, or CMake does not work.
    """
    # The engine is made of this package's parts.
    from kernel_ci.wheel.engine import build_wheel, finish

    started, clock = now(), time.monotonic()
    planned = plan.kernel(cell.kernel)
    kernel, state = open_kernel(planned), planned.source
    abi.check_headers(cell.tvm_ffi)
    if engine == "cibuildwheel" and (compiler or jobs):
        raise InputError(
            "is not for cibuildwheel, which builds with its container's toolchain",
            where="--compiler" if compiler else "--jobs",
            fix="leave it out, or build with --engine host",
        )
    chosen = toolchains.find(cell, compiler) if engine == "host" else None
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    directory = variant_directory(folder, cell)
    directory.parent.mkdir(parents=True, exist_ok=True)
    identity = package.variant_id(kernel, cell, state)
    findings: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    tools: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="kernel-ci-build-") as work:
        try:
            if chosen is not None:
                tools = {chosen.name: chosen.version, **chosen.others}
                library = host.compile_library(
                    kernel, cell, release, chosen, identity, Path(work), jobs=jobs
                )
                package.assemble(
                    kernel, cell, state, library, directory, runtimes=_runtimes(library, cell)
                )
            else:
                built = build_wheel(kernel, cell, state, release, identity, Path(work))
                tools, overrides = built.tools, built.overrides
                window = _runtimes(built.library, cell)
                package.assemble(kernel, cell, state, built.library, directory, runtimes=window)
                finish(
                    built.wheel, directory, kernel.python_name, window, wheel_folder(folder, cell)
                )
        except Rejected as error:
            findings = (error.what,)
    receipt = Receipt(
        plan=plan.id,
        run=plan.run,
        cell=cell.id,
        stage="build",
        digest="" if findings else package.digest(directory),
        outcome="failed" if findings else "passed",
        findings=findings + tuple(f"{key} of the environment was used" for key in overrides),
        tools={"kernel-ci": __version__, "apache-tvm-ffi": release.version, **tools},
        machine=this_machine(),
        started=started,
        seconds=round(time.monotonic() - clock, 3),
        reproduce=f"kernel-ci build plan.json --cell {cell.id}"
        + (f" --compiler {compiler}" if compiler else "")
        + (f" --engine {engine}" if engine != "host" else ""),
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
