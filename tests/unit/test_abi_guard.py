"""The check that a generated `_ops.py` makes before it loads anything."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from kernel_ci.abi import Denied, RuntimeWindow, guard

WINDOW = RuntimeWindow(
    **{"built-with": "0.1.15.post2"},
    floor="0.1.8.post1",
    denied=(Denied(version="0.1.13.post0", reason="its 'Module' has \"another\" layout"),),
)
CLOSED = RuntimeWindow(**{"built-with": "0.1.12"}, floor="0.1.9", newest="0.1.12.post1")

Load = Callable[[RuntimeWindow, str | None], None]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that runs the check where a version of tvm-ffi is installed."""

    def run(window: RuntimeWindow, version: str | None) -> None:
        module = ModuleType("tvm_ffi")
        if version is not None:
            module.__dict__["__version__"] = version
        monkeypatch.setitem(sys.modules, "tvm_ffi", module)
        scope: dict[str, Any] = {}
        exec(compile(guard.source("relu-tvm-ffi", window), "_ops.py", "exec"), scope)

    return run


@pytest.mark.parametrize(
    "version",
    ["0.1.8.post1", "0.1.8.post2", "0.1.9", "0.1.10", "0.1.13", "0.1.13.post1", "0.1.15.post2",
     "0.1.99", "0.1.16.dev3+g0123abc", "0.1.8.post1+local", "0.1.16rc1"],
)  # fmt: skip
def test_passes(load: Load, version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(WINDOW, version)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.1.8.post0", "older than 0.1.8.post1"),
        ("0.1.8", "older than 0.1.8.post1"),
        ("0.1.8.post1.dev2", "older than 0.1.8.post1"),
        ("0.1.0", "older than 0.1.8.post1"),
        ("0.1.13.post0", "its 'Module' has \"another\" layout"),
        ("0.2.0", "the ABI of tvm-ffi 0.1"),
        ("0.10.0", "the ABI of tvm-ffi 0.1"),
        ("1.1.9", "the ABI of tvm-ffi 0.1"),
    ],
)
def test_refuses(load: Load, version: str, reason: str) -> None:
    with pytest.raises(ImportError) as caught:
        load(WINDOW, version)
    text = str(caught.value)
    assert f"relu-tvm-ffi cannot use the installed apache-tvm-ffi {version}: " in text
    assert reason in text
    assert 'pip install "apache-tvm-ffi>=0.1.8.post1,<0.2,!=0.1.13.post0"' in text


@pytest.mark.parametrize(("version", "passes"), [("0.1.12.post1", True), ("0.1.13", False)])
def test_known_end(load: Load, version: str, passes: bool) -> None:
    if passes:
        load(CLOSED, version)
        return
    with pytest.raises(ImportError, match=r">=0\.1\.9,<=0\.1\.12\.post1"):
        load(CLOSED, version)


@pytest.mark.parametrize("version", ["0.0.0.dev0", "unknown", "", None])
def test_runtime_that_does_not_know_its_version(load: Load, version: str | None) -> None:
    with pytest.warns(RuntimeWarning, match="cannot tell"):
        load(WINDOW, version)


def test_order_of_versions_is_that_of_packaging(load: Load) -> None:
    parts = ["", ".dev1", "a1", "b2", "rc1", "rc1.dev2", ".post0", ".post2", ".post10",
             ".post2.dev1", "rc2.post1"]  # fmt: skip
    versions = [f"{n}{p}" for n, p in itertools.product(["0.1", "0.1.0", "0.1.2", "0.1.10"], parts)]
    pairs = random.Random(1).sample(list(itertools.product(versions, versions)), 600)
    for floor, installed in pairs:
        window = RuntimeWindow(**{"built-with": "0.1.9"}, floor=floor)
        expected = Version(installed) >= Version(floor)
        try:
            load(window, installed)
            passed = True
        except ImportError:
            passed = False
        assert passed is expected, (floor, installed)
        assert window.admits(installed) is expected


def test_without_tvm_ffi(tmp_path: Path) -> None:
    (tmp_path / "_ops.py").write_text(guard.source("relu-tvm-ffi", WINDOW))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "_ops.py")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ImportError: relu-tvm-ffi needs apache-tvm-ffi>=0.1.8.post1" in done.stderr
    assert "not installed. Run: pip install" in done.stderr
