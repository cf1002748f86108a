"""Which device runs what, and which variant a machine builds for its own device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernel_ci.errors import InfrastructureError, InputError
from kernel_ci.matrix import Matrix
from kernel_ci.plan import Cell
from kernel_ci.testing import attached, preflight
from kernel_ci.testing.preflight import Device, unsuitable
from tests.helpers import REFERENCE

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


@pytest.mark.parametrize(
    ("backend", "device", "says"),
    [
        ("cuda", "/dev/nvidiactl", "there is no NVIDIA driver here"),
        ("rocm", "/dev/kfd", "rocminfo is missing"),
        ("xpu", "/dev/dri/renderD128", "there is no GPU to compute on here"),
        ("metal", "/System/Library/Frameworks/Metal.framework", "no Metal but on macOS"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(
    backend: str, device: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if Path(device).exists():
        pytest.skip("there is a device")
    assert attached.main([backend, str(REFERENCE), "-o", str(tmp_path / "run")]) == 75
    said = capsys.readouterr().err
    assert says in said
    assert "--build-only" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (None, "torch is not installed here, or does not work"),
        ({"torch": "2.9", "xpu": [None, False]}, "torch 2.9 is built without xpu"),
        ({"torch": "2.9", "xpu": ["2025", False]}, "torch 2.9 (xpu 2025) does not see the device"),
        ({"torch": "2.9", "xpu": ["2025", True]}, None),
    ],
)
def test_torch(
    torch: dict[str, object] | None, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = None if torch is None else json.dumps(torch)
    monkeypatch.setattr(preflight, "_run", lambda command: answer)
    monkeypatch.setitem(preflight.FIND, "xpu", lambda where: Device("Intel GPU", None, None))
    xpu = cell("pvc", "spir64", backend="xpu", version="2025.3")
    if says is None:
        assert preflight.check(xpu) is not None
        return
    with pytest.raises(InfrastructureError) as caught:
        preflight.check(xpu)
    assert says in str(caught.value)


def test_what_torch_is_asked_is_right_for_the_torch_that_is_here() -> None:
    pytest.importorskip("torch")
    assert preflight._run([sys.executable, "-c", preflight._FRAMEWORK])
