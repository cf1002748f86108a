"""Build and prove kernels for the accelerator of this machine, with the toolkit that it has.

`python -m kernel_ci.testing.attached cuda KERNEL…` is what `nox -s test-cuda` runs: first whether
the device can be used at all, then one cell through all stages, with its receipts and the table.
Nothing is downloaded where the toolkit and tvm-ffi are at hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from kernel_ci.errors import InfrastructureError, InputError, KernelCIError
from kernel_ci.kernel import numbers
from kernel_ci.matrix import Entry, Matrix
from kernel_ci.plan import Selection, host_platform, plan_matrix
from kernel_ci.testing import preflight
from kernel_ci.toolchains import hipcc, icpx, nvcc

#: Backend -> which version of its toolkit this machine has, None without one. Metal has none.
_TOOLKITS: dict[str, Callable[[], str | None]] = {
    "cuda": nvcc.attached_version,
    "rocm": hipcc.attached_version,
    "xpu": icpx.attached_version,
}

#: Backend -> its compiler, and how to get it where PyPI does not have it.
_GET = {
    "rocm": ("hipcc", "install ROCm, and name it with ROCM_PATH"),
    "xpu": ("icpx", "install Intel's oneAPI, and run `source /opt/intel/oneapi/setvars.sh`"),
}

_WHERE = "this machine"


def choose(
    matrix: Matrix, backend: str, platform: str, here: str | None, limit: str | None
) -> Entry:
    """Return the variant to build: of the toolkit that is here, or the newest that will do. Pure.

    Args:
        matrix: The support matrix.
        backend: The backend.
        platform: The machine's platform.
        here: `<major>.<minor>` of the toolkit that is installed, None without one.
        limit: The newest version that the driver can run, None for any.

    Raises:
        InputError: The matrix has no variant that this machine could run.
    """
    able = [
        entry
        for entry in matrix.variant
        if (entry.backend, entry.platform) == (backend, platform)
        and (limit is None or numbers(entry.version or "0") <= numbers(limit))
    ]
    if here is not None and (limit is None or numbers(here) <= numbers(limit)):
        for entry in able:
            if entry.version == here:
                return entry
        # Not one that is published, but what this machine can show of the kernel.
        for entry in matrix.variant:
            if (entry.backend, entry.platform) == (backend, platform):
                return entry.model_copy(update={"version": here})
    if not able:
        raise InputError(
            f"no {backend} variant of the support matrix is for {platform}"
            + (f" and a driver for {limit}" if limit else ""),
            where=_WHERE,
            fix="update the driver, or test on another machine",
        )
    return max(able, key=lambda entry: numbers(entry.version or "0"))


def only(matrix: Matrix, entry: Entry) -> Matrix:
    """Return a matrix with one variant alone.

    Raises:
        InputError: It has no default architectures for that toolkit.
    """
    if not matrix.default_archs(entry.variant(matrix.tvm_ffi.name)):
        raise InputError(
            f"the {entry.backend} toolkit here, {entry.version}, is older than all that are known",
            where=_WHERE,
            fix="install a newer one",
        )
    return matrix.model_copy(update={"variant": (entry,)})


def main(arguments: list[str] | None = None) -> int:
    """Run the command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m kernel_ci.testing.attached")
    parser.add_argument("backend", choices=tuple(preflight.FIND))
    parser.add_argument("kernels", type=Path, nargs="+", metavar="KERNEL")
    parser.add_argument(
        "--build-only", action="store_true", help="do not test; no device is needed"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", default=Path("out"))
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except KernelCIError as error:
        print(f"{error.label}: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from kernel_ci.pipeline import run_pipeline

    console = Console(width=None if sys.stdout.isatty() else 160)
    limit = None
    if not options.build_only:
        device = preflight.FIND[options.backend](_WHERE)
        limit = device.driver
        architecture = f" ({device.arch})" if device.arch else ""
        console.print(f"device: {device.name}{architecture}", highlight=False)
    here = _TOOLKITS.get(options.backend, lambda: None)()
    if here is None and options.backend in _GET:
        compiler, fix = _GET[options.backend]
        raise InfrastructureError(f"there is no {compiler} here", where=_WHERE, fix=fix)
    matrix = Matrix.read()
    entry = choose(matrix, options.backend, host_platform(), here, limit)
    plan = plan_matrix(
        options.kernels,
        Selection(build_only=("*",) if options.build_only else ()),
        only(matrix, entry),
    )
    return run_pipeline(plan, options.output, console)


if __name__ == "__main__":
    sys.exit(main())
