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
    unknown = {key: value for key, value in entries.items() if key not in known}
    asked, asked_commands = _configure(tmp_path / "asked", list(known), unknown)
    _, commands = _configure(tmp_path / "said", list(known), entries)
    switches = {"TRUE": "ON", "1": "ON"}
    normal, said = (
        {name: switches.get(value, value) for name, value in found.items()}
        for found in (asked, known)
    )
    assert normal == said
    assert "asked.cc" in commands
    assert asked_commands == commands


def _configure(
    folder: Path, names: list[str], entries: dict[str, str]
) -> tuple[dict[str, str], str]:
    """Return what CMake has under some names after project(), and the command lines."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT)
    for name in ("asked.c", "asked.cc"):
        (folder / name).touch()
    given = {**entries, "NAMES": ";".join(names)}
    printed = _run(
        *("cmake", "-S", str(folder), "-B", str(folder), "-G", "Ninja"),
        *(f"-D{key}={value}" for key, value in given.items()),
    )
    pairs = (line.removeprefix("-- ").partition("=") for line in printed.splitlines())
    found = {name: value for name, _, value in pairs if name in names}
    return found, _run("ninja", "-C", str(folder), "-t", "commands").replace(str(folder), "")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
