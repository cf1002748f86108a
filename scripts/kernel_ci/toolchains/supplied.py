"""Headers that a component's `depends` names, out of PyPI's wheels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_ci.toolchains import pypi
from kernel_ci.toolchains.table import toolkits


def includes(depends: Sequence[str]) -> list[Path]:
    """Return the include folders of dependencies, downloading them on the first use.

    Args:
        depends: Names that the plan has found in the table of toolchains.

    Raises:
        InfrastructureError: They could not be downloaded.
    """
    by_name = {headers.name: headers for headers in toolkits().headers}
    return [
        pypi.install([by_name[name].wheel], dependencies=False) / folder
        for name in depends
        for folder in by_name[name].include
    ]
