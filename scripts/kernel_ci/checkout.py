"""The sources that a plan is about, as a stage finds them on its machine."""

from __future__ import annotations

from pathlib import Path

from kernel_ci import source
from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel
from kernel_ci.plan import PlannedKernel


def open_kernel(planned: PlannedKernel) -> Kernel:
    """Return a planned kernel from the current folder.

    Raises:
        InputError: It is not there, or its files are not those that were planned: neither a
            build nor a test of other files says anything about the plan.
    """
    if not Path(planned.path).is_dir():
        raise InputError(
            "the plan's kernel is not here",
            where=Path(planned.path).absolute(),
            fix="run this in the folder where the plan was made",
        )
    kernel = Kernel.read(Path(planned.path))
    found = source.inspect(kernel.path, kernel.compiled)
    if (found.digest, found.commit) != (planned.source.digest, planned.source.commit):
        raise InputError(
            "the files are not those that the plan was made for",
            where=kernel.path,
            fix="make the plan again, or check out what it was made for"
            + (f" ({planned.source.commit})" if planned.source.commit else ""),
        )
    return kernel
