"""Intel's compiler and Apple's: what a cell asks of them, and what is said where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_ci.errors import InputError
from kernel_ci.plan import Cell, Selection, plan_folders
from kernel_ci.toolchains import icpx, xcode
from tests.helpers import REFERENCE


def cell(pattern: str) -> Cell:
    return plan_folders([REFERENCE], Selection(only=(pattern,))).cells[0]


def test_ahead_of_time_code_and_spirv() -> None:
    options = icpx.flags(("pvc", "xe-lpg", "ats-m150", "spir64"), cell="c")
    assert "-fsycl-targets=spir64_gen,spir64 " in options
    assert '-Xsycl-target-backend=spir64_gen "-device pvc,xe-lpg,ats-m150 -options ' in options


def test_spirv_alone() -> None:
    options = icpx.flags(("spir64",), cell="c")
    assert options.endswith("-fsycl-targets=spir64")
    assert "-Xsycl-target-backend" not in options


@pytest.mark.parametrize(
    ("archs", "message"), [(("pvc", "gfx90a"), "'gfx90a'"), ((), "no XPU device is listed")]
)
def test_devices_that_are_refused(archs: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        icpx.flags(archs, cell="c")


def test_the_matrix_lists_known_devices() -> None:
    assert icpx.flags(cell("*-xpu*").archs, cell="c")


def fake_icpx(folder: Path, version: str) -> None:
    program = folder / "icpx"
    program.write_text(f"#!/bin/sh\necho 'Intel(R) oneAPI DPC++/C++ Compiler {version} (x)'\n")
    program.chmod(0o755)


def test_no_icpx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ONEAPI_ROOT", str(tmp_path))
    with pytest.raises(InputError, match="there is no icpx here") as caught:
        icpx.find(cell("*-xpu*"))
    assert "setvars.sh" in str(caught.value.fix)


def test_icpx_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_icpx(tmp_path, "2026.0.1")
    planned = cell("*-xpu*")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(InputError, match=r"of oneAPI 2026.0.1; the variant needs 2025.3"):
        icpx.find(planned)


def test_icpx_without_ocloc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_icpx(tmp_path, "2025.3.1")
    planned = cell("*-xpu*")
    monkeypatch.setenv("ONEAPI_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(InputError, match="there is no ocloc here"):
        icpx.find(planned)


@pytest.mark.parametrize("find", [icpx.find, xcode.find])
def test_cells_of_another_backend(find: object) -> None:
    with pytest.raises(InputError, match="builds no cpu variant"):
        find(cell("*-cpu-x86_64-*"))  # type: ignore[operator]
