"""cibuildwheel itself agrees about what is built: one wheel a cell, the planned one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci import tvm_ffi
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell, Selection, plan_folders
from kernel_ci.wheel.images import PLATFORMS, identifier
from kernel_ci.wheel.stage import stage
from tests.helpers import REFERENCE

PLAN = plan_folders([REFERENCE], Selection())

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="needs Python 3.11, as cibuildwheel does"
)

EXPECTED = {
    "x86_64-linux": "cp312-manylinux_x86_64",
    "aarch64-linux": "cp312-manylinux_aarch64",
    "aarch64-darwin": "cp312-macosx_arm64",
}


@pytest.mark.parametrize("cell", PLAN.cells, ids=lambda cell: cell.variant)
def test_cibuildwheel_builds_the_planned_wheel(cell: Cell, tmp_path: Path) -> None:
    kernel = Kernel.read(REFERENCE)
    release = tvm_ffi.fetch(cell.tvm_ffi, cell.platform)
    folder = tmp_path / "stage"
    stage(kernel, cell, PLAN.kernel(cell.kernel).source, release, folder, committed=None)
    system, _, _ = PLATFORMS[cell.platform]
    # All architectures that the platform has: the cell's own must come out all the same.
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    command += ["--platform", system, "--archs", "all", str(folder)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CIBW_")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [identifier(cell)] == [EXPECTED[cell.platform]]
    # The folder is copied into a container, where nothing outside it exists.
    description = (folder / "description.json").read_text()
    assert str(tmp_path) not in description
    assert str(REFERENCE) not in description
