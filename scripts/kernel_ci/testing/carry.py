"""Bring the releases of tvm-ffi to a machine without network.

`python -m kernel_ci.testing.carry FOLDER` downloads their wheels. There, pip's own variables
(`PIP_NO_INDEX`, `PIP_FIND_LINKS`) name the folder, since kernel-ci downloads through pip.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kernel_ci import tvm_ffi
from kernel_ci.abi.table import table
from kernel_ci.errors import InputError
from kernel_ci.matrix import Matrix
from kernel_ci.plan import host_platform


def carry(folder: Path) -> list[str]:
    """Download what building and auditing here need: the release to build with, and each other.

    Args:
        folder: Where the wheels go; those that are there stay.

    Returns:
        The releases without a wheel for this interpreter: they are not audited under.

    Raises:
        InputError: There is no wheel of the release to build with.
        InfrastructureError: The package index could not be reached.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    wanted: list[tuple[str, str | None]] = [(version, None) for version in table().versions]
    for version, platform in [(Matrix.read().tvm_ffi.build, host_platform()), *wanted]:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            try:
                wheel = tvm_ffi.download(version, Path(scratch), platform)
            except InputError:
                if platform is not None:
                    raise
                missing.append(version)
                continue
            wheel.replace(folder / wheel.name)
    return missing


if __name__ == "__main__":
    absent = carry(Path(sys.argv[1]))
    print(f"no wheels for this interpreter: {', '.join(absent) or 'none'}")
