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
foreach(NAME IN LISTS NAMES)
  message(STATUS "${NAME}=${${NAME}}")
endforeach()
# One command line each that depends on all of it.
add_library(asked SHARED asked.cc asked.c)
set_target_properties(asked PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON C_STANDARD 11
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
"""


@pytest.mark.parametrize("platform", zig.TARGETS)
def test_known_answers(tmp_path: Path, platform: str) -> None:
    plan = plan_folders([REFERENCE], Selection(only=(f"*-cpu-{platform}",)))
    (cell,) = plan.cells
    entries = zig.find(cell).cmake
    known = zig.known(entries["CMAKE_SYSTEM_NAME"])
    assert set(known) <= set(entries)
    asked, _ = (
        _configure(tmp_path / name, list(known), given)
        for name, given in (
            ("asked", {k: v for k, v in entries.items() if k not in known}),
            ("said", entries),
        )
    )
    switches = {"TRUE": "ON", "1": "ON"}
    normal = {
        name: switches.get(value, value) for name, value in (item.split("=", 1) for item in asked)
    }
    assert normal == {name: switches.get(value, value) for name, value in known.items()}
    commands = [
        subprocess.run(
            ["ninja", "-C", tmp_path / name, "-t", "commands"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.replace(str(tmp_path / name), "")
        for name in ("asked", "said")
    ]
    assert "asked.cc" in commands[0]
    assert commands[0] == commands[1]


def _configure(folder: Path, names: list[str], entries: dict[str, str]) -> list[str]:
    """Return NAME=value as CMake has it after project()."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT)
    for name in ("asked.c", "asked.cc"):
        (folder / name).touch()
    given = {**entries, "NAMES": ";".join(names)}
    done = subprocess.run(
        [
            *("cmake", "-S", str(folder), "-B", str(folder), "-G", "Ninja"),
            *(f"-D{key}={value}" for key, value in given.items()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.removeprefix("-- ") for line in done.stdout.splitlines())
    return [line for line in lines if line.partition("=")[0] in names]
