"""The sessions that need a device tell a machine that lacks it from a kernel that failed."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from typing import Any

import nox.command
import pytest

from tests.helpers import ROOT


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Session:
    """A session in which the command of kernel-ci ends with a code."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.posargs: list[str] = []

    def install(self, *arguments: str) -> None:
        pass

    def run(self, *command: str) -> None:
        raise nox.command.CommandFailed("failed", return_code=self.code)


@pytest.mark.parametrize("backend", ["cuda", "rocm", "xpu", "metal"])
def test_exit_codes(noxfile: ModuleType, backend: str) -> None:
    session: Any = getattr(noxfile, f"test_{backend}").func
    with pytest.raises(SystemExit) as ended:
        session(Session(75))
    assert ended.value.code == 75
    with pytest.raises(nox.command.CommandFailed):
        session(Session(1))


def test_every_session_that_a_page_names_exists(noxfile: ModuleType) -> None:
    sessions = {
        getattr(value, "name", None) or name.replace("_", "-")
        for name, value in vars(noxfile).items()
        if hasattr(value, "func")
    }
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        named = set(re.findall(r"nox -s ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
        assert named <= sessions, (page.name, named - sessions)
