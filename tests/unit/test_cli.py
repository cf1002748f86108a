"""The command line: starts fast, tells errors without tracebacks, uses its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci import __version__
from kernel_ci.cli import main

#: What only some commands need, and what takes time to import.
HEAVY = ("pydantic", "rich", "huggingface_hub", "kernels", "lief", "elftools", "starlette",
         "uvicorn", "numpy", "tvm_ffi", "pytest")  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from kernel_ci.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "exit codes" in done.stdout


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
