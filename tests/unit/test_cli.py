"""The command line: starts fast, tells errors without tracebacks, uses its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import _pydantic_core

from kernel_ci import __version__
from kernel_ci.cli import main
from tests.unit.trees import BUILDABLE, write_tree

#: What only some commands need, and what takes time to import.
HEAVY = ("pydantic", "rich", "huggingface_hub", "kernels", "lief", "elftools", "starlette",
         "uvicorn", "numpy", "tvm_ffi", "pytest")  # fmt: skip


def imported(*arguments: str) -> tuple[set[str], str]:
    """Return the modules that a command has imported when it ends, and what it printed."""
    code = (
        "import sys\n"
        "from kernel_ci.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()), done.stdout


def test_help_imports_nothing_heavy() -> None:
    modules, printed = imported("--help")
    assert not modules & set(HEAVY)
    assert "exit codes" in printed


def test_an_audit_imports_what_reads_a_library() -> None:
    # Any library will do. All else would take longer than to read it.
    modules, _ = imported("audit", str(_pydantic_core.__file__))
    assert "kernel_ci.audit.variant" in modules
    others = {"kernel_ci.plan", "kernel_ci.build", "kernel_ci.audit.dynamic", "kernel_ci.kernel"}
    assert not modules & (set(HEAVY) - {"pydantic", "rich", "elftools"} | others)


def test_a_plan_imports_what_makes_one(tmp_path: Path) -> None:
    kernel = write_tree(tmp_path / "kernel", BUILDABLE)
    modules, _ = imported("plan", str(kernel))
    assert "kernel_ci.plan" in modules
    others = {"kernel_ci.build", "kernel_ci.gate", "cmake"}
    assert not modules & (set(HEAVY) - {"pydantic", "rich"} | others)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"kernel-ci {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["plan"],
        ["plan", "a", "--no-such-option"],
        ["build"],
        ["build", "plan.json", "-j", "0"],
        ["hub"],
    ],
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: kernel-ci" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "nowhere"], "nowhere: no such folder"),
        (["build", "nowhere.json"], "nowhere.json: no such file"),
        (["test", "nowhere.json", "."], "nowhere.json: no such file"),
        (["gate", "nowhere.json", "."], "nowhere.json: no such file"),
        (["publish", "nowhere"], "nowhere/plan.json: no such file"),
        (["audit", "nowhere"], "nowhere: there is nothing to audit"),
        (["audit", ".", "--cell", "x"], "--cell: needs --plan"),
        (["hub", "check", "nowhere"], "nowhere"),
    ],
)
def test_bad_input(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []
