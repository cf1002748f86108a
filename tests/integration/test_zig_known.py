"""What is said of zig without asking it is what CMake finds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_ci.plan import Selection, plan_folders
from kernel_ci.toolchains import zig
from tests.helpers import REFERENCE

PROJECT = """
cmake_minimum_required(VERSION 3.26)
project(asked LANGUAGES C CXX)
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-fno-gnu-unique HAS_NO_GNU_UNIQUE)
check_cxx_compiler_flag("-ffile-prefix-map=/a=." HAS_FILE_PREFIX_MAP)
foreach(NAME HAS_NO_GNU_UNIQUE HAS_FILE_PREFIX_MAP CMAKE_C_COMPILER_WORKS CMAKE_CXX_COMPILER_WORKS
             CMAKE_C_ABI_COMPILED CMAKE_CXX_ABI_COMPILED)
  if(${NAME})
    message(STATUS "${NAME}=ON")
  else()
    message(STATUS "${NAME}=OFF")
  endif()
endforeach()
"""


@pytest.mark.parametrize("platform", zig.TARGETS)
def test_known_answers(tmp_path: Path, platform: str) -> None:
    plan = plan_folders([REFERENCE], Selection(only=(f"*-cpu-{platform}",)))
    (cell,) = plan.cells
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    entries = [f"-D{k}={v}" for k, v in zig.find(cell).cmake.items() if k not in zig.KNOWN]
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", *entries],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(
        line.removeprefix("-- ").split("=")
        for line in done.stdout.splitlines()
        if line.startswith("-- ") and "=O" in line
    )
    assert found == zig.KNOWN
