"""Which device runs what, and which variant a machine builds for its own device."""

from __future__ import annotations

import pytest

from kernel_ci.errors import InputError
from kernel_ci.matrix import Matrix
from kernel_ci.plan import Cell
from kernel_ci.testing import attached
from kernel_ci.testing.preflight import Device, unsuitable

LINUX = "x86_64-linux"


def cell(*archs: str, backend: str = "cuda", version: str = "13.0") -> Cell:
    return Cell(
        id="k/v",
        kernel="k",
        variant="v",
        backend=backend,
        backend_version=version,
        platform=LINUX,
        tvm_ffi="0.1.15",
        toolchain="nvcc",
        archs=archs,
        build_runner=("x",),
        test_runner=("x",),
        evidence="tested",
        reason=None,
    )


@pytest.mark.parametrize(
    ("archs", "device", "runs"),
    [
        (("9.0",), "9.0", True),
        (("8.0",), "8.9", True),
        (("8.9",), "8.0", False),
        (("8.0",), "9.0", False),
        (("8.0+PTX",), "9.0", True),
        (("9.0a",), "9.0", True),
        (("10.0a",), "10.3", False),
        (("10.0f",), "10.3", True),
        (("10.0f+PTX",), "12.0", False),
        (("7.5", "12.1+PTX"), "9.0", False),
        (("gfx90a",), "gfx90a", True),
        (("gfx90a",), "gfx942", False),
    ],
)
def test_architectures(archs: tuple[str, ...], device: str, runs: bool) -> None:
    assert (unsuitable(cell(*archs), Device("a GPU", device, None)) is None) == runs


def test_a_driver_that_is_too_old() -> None:
    wrong = unsuitable(cell("9.0", version="13.2"), Device("a GPU", "9.0", "13.0"))
    assert wrong is not None
    assert "CUDA 13.0 at most" in wrong[0]
    assert unsuitable(cell("9.0", version="13.0"), Device("a GPU", "9.0", "13.1")) is None


@pytest.mark.parametrize(
    ("here", "limit", "version"),
    [
        ("13.0", "13.0", "13.0"),
        ("13.0", "13.2", "13.0"),
        (None, "13.1", "13.0"),
        (None, None, "13.2"),
        # A toolkit that no published variant is built with.
        ("12.8", "13.0", "12.8"),
        # One that is too new for the driver.
        ("13.2", "13.0", "13.0"),
    ],
)
def test_variant_for_this_machine(here: str | None, limit: str | None, version: str) -> None:
    entry = attached.choose(Matrix.read(), "cuda", LINUX, here, limit)
    assert (entry.backend, entry.version, entry.platform) == ("cuda", version, LINUX)
    assert attached.only(Matrix.read(), entry).variant == (entry,)


def test_no_variant_for_this_machine() -> None:
    with pytest.raises(InputError, match=r"a driver for 11\.4"):
        attached.choose(Matrix.read(), "cuda", LINUX, None, "11.4")
    with pytest.raises(InputError, match="x86_64-darwin"):
        attached.choose(Matrix.read(), "cuda", "x86_64-darwin", "13.0", None)
    old = attached.choose(Matrix.read(), "cuda", LINUX, "11.8", None)
    with pytest.raises(InputError, match=r"11\.8, is older"):
        attached.only(Matrix.read(), old)
