"""The problem matchers, on what the real compilers print: each error at its file and line, once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.toolchains import hipcc, nvcc, zig
from tests.helpers import ROOT

SOURCE = """#include "part.h"
int Function(int x) {
  int unused = x;
  return nowhere;
}
"""
PART = "inline int Part() { return elsewhere; }\n"

Command = Callable[[], list[str]]


def _patterns() -> list[dict[str, Any]]:
    """Return the pattern of every matcher; each has one line."""
    found = []
    for file in (ROOT / "actions" / "build-variant" / "matchers").glob("*.json"):
        for matcher in json.loads(file.read_text())["problemMatcher"]:
            (pattern,) = matcher["pattern"]
            found.append(pattern)
    return found


def shown(output: str) -> set[tuple[str, int, str, str]]:
    """Return what GitHub would show: file, line, severity and message of each line matched."""
    found = set()
    for line in output.splitlines():
        hits = [(p, m) for p in _patterns() if (m := re.match(p["regexp"], line)) is not None]
        assert len(hits) <= 1, f"two matchers take {line!r}"
        for pattern, match in hits:
            file, number, severity, message = (
                match[pattern[key]] for key in ("file", "line", "severity", "message")
            )
            found.add((Path(file).name, int(number), severity, message))
    return found


def _zig() -> list[str]:
    return [str(zig.executable()), "c++", "-Wall", "-x", "c++"]


def _gcc() -> list[str]:
    return ["g++", "-Wall", "-x", "c++"]


def _nvcc() -> list[str]:
    return [str(nvcc.find_toolkit("13.2", cell="test").nvcc), "-x", "cu"]


def _hipcc() -> list[str]:
    return ["hipcc", "-x", "hip", "--offload-arch=gfx90a", "-Wall"]


def _icpx() -> list[str]:
    return ["icpx", "-fsycl", "-Wall", "-x", "c++"]


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}")


COMPILERS = [
    pytest.param(_zig, id="zig"),
    pytest.param(_gcc, marks=needs("g++"), id="gcc"),
    pytest.param(_nvcc, marks=[pytest.mark.needs_nvcc, needs("g++")], id="nvcc"),
    pytest.param(
        _hipcc,
        marks=[
            pytest.mark.needs_hipcc,
            pytest.mark.skipif(hipcc.attached_version() is None, reason="needs hipcc"),
        ],
        id="hipcc",
    ),
    pytest.param(_icpx, marks=needs("icpx"), id="icpx"),
]


def compiled(command: list[str], source: Path) -> str:
    done = subprocess.run(
        [*command, "-c", str(source), "-o", str(source.with_suffix(".o"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "HIP_PLATFORM": "amd"},
    )
    assert done.returncode, done.stdout
    return done.stdout


@pytest.mark.parametrize("command", COMPILERS)
def test_errors(tmp_path: Path, command: Command) -> None:
    (tmp_path / "part.h").write_text(PART)
    (tmp_path / "kernel.src").write_text(SOURCE)
    output = compiled(command(), tmp_path / "kernel.src")
    found = shown(output)
    errors = {(file, line) for file, line, severity, _ in found if severity == "error"}
    assert errors == {("part.h", 1), ("kernel.src", 4)}, output
    messages = {line: message for file, line, _, message in found if file == "kernel.src"}
    assert "nowhere" in messages[4]


@pytest.mark.parametrize("command", COMPILERS)
def test_a_file_that_is_missing(tmp_path: Path, command: Command) -> None:
    (tmp_path / "kernel.src").write_text('\n#include "no-such-file.h"\n')
    output = compiled(command(), tmp_path / "kernel.src")
    (found,) = shown(output)
    assert found[:3] == ("kernel.src", 2, "error"), output
    assert "no-such-file.h" in found[3]


@pytest.mark.parametrize("command", COMPILERS)
def test_warnings(tmp_path: Path, command: Command) -> None:
    (tmp_path / "kernel.src").write_text("int Function() {\n}\nint x = nowhere;\n")
    output = compiled(command(), tmp_path / "kernel.src")
    warnings = {(file, line) for file, line, severity, _ in shown(output) if severity == "warning"}
    assert warnings in ({("kernel.src", 1)}, {("kernel.src", 2)}), output
