"""The aarch64-linux CPU variant, cross-built and run with qemu's user-mode emulation.

On Debian: `apt-get install qemu-user-static`. The rest (an aarch64 Python, wheels; 230 MB) is
downloaded once and kept in the cache.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernel_ci.errors import InfrastructureError
from kernel_ci.plan import Selection, host_platform, plan_folders
from kernel_ci.testing import emulator
from tests.helpers import REFERENCE, Done, kernel_ci

CELL = "relu-tvm-ffi/tvm-ffi01-cpu-aarch64-linux"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        host_platform() == "aarch64-linux", reason="this machine needs no emulator for aarch64"
    ),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-aarch64-static", "apt-get", "dpkg-deb"))),
        reason="needs qemu-aarch64-static, apt-get and dpkg-deb (Debian: qemu-user-static)",
    ),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the variant built and audited, without a test."""
    folder = tmp_path_factory.mktemp("aarch64") / "run"
    plan = folder / "plan.json"
    ok(kernel_ci("plan", REFERENCE, "--only", "*-cpu-aarch64-linux", "-o", plan))
    ok(kernel_ci("build", plan))
    ok(kernel_ci("audit", folder, "--plan", plan))
    return folder


def ok(done: Done) -> None:
    assert done.status == 0, done.out + done.err


def test_variant_works_on_aarch64(run: Path) -> None:
    plan = run / "plan.json"
    refused = kernel_ci("test", plan, run)
    assert refused.status == 75
    assert "not aarch64-linux" in refused.err

    done = kernel_ci("test", plan, run, "--emulate")
    assert done.status == 0, done.out + done.err
    kernel, _, variant = CELL.partition("/")
    receipt = json.loads((run / kernel / "receipts" / variant / "test.json").read_text())
    assert receipt["counts"]["passed"] > 100
    assert receipt["counts"]["failed"] == 0
    assert receipt["machine"]["platform"] == "aarch64-linux"
    assert receipt["machine"]["device"] == "qemu-user"
    assert "qemu-aarch64" in receipt["machine"]["system"]
    assert receipt["reproduce"].endswith("--emulate")
    ok(kernel_ci("gate", plan, run))


def test_only_what_can_be_emulated_is() -> None:
    for variant in ("*-cpu-aarch64-darwin", "*-cu130-aarch64-linux"):
        plan = plan_folders([REFERENCE], Selection(only=(variant,)))
        with (
            pytest.raises(InfrastructureError, match="cannot be emulated here"),
            emulator.emulated(plan.cells[0]),
        ):
            pass
