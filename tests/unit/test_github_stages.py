"""What the commands of the workflows refuse, and which kernels an input names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kernel_ci.errors import InputError
from kernel_ci.github.stages import find_kernels
from kernel_ci.plan import Plan
from tests.helpers import ROOT, committed

HERE = "*-cpu-x86_64-linux"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (committed(tmp_path / "kernels") / ".git").rename(tmp_path / ".git")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stage(name: str, **inputs: str) -> tuple[int, str]:
    """Run a command as a job does; return its exit code, and all that it said."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    done = subprocess.run(
        [sys.executable, "-m", "kernel_ci", "github", name],
        env={**clean, "GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(Path.cwd())} | inputs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"BACKENDS": "cuda vulkan"}, "no backend 'vulkan'"),
        ({"CHANGED_ONLY": "yes"}, "input changed-only: is 'yes'"),
        ({"TIER": "fast"}, "input tier: is 'fast'"),
        ({"ENGINE": "docker"}, "input engine: is 'docker'"),
        ({"RUNNERS": "no.toml"}, "no.toml: cannot be read: No such file"),
        ({"RUNNERS": "../r.toml"}, "'../r.toml' leads out of the repository"),
        ({"RUNNERS": '[test]\n"*" = 7'}, "input runners: test.*: Input should be a valid tuple"),
        ({"RUNNERS": '[test]\n"*-vulkan" = "a"'}, "'*-vulkan' matches no variant"),
        ({"KERNELS": "kernels/none"}, "'kernels/none' matches no folder with a build.toml"),
        ({"KERNELS": "/etc"}, "'/etc' leads out of the repository"),
        ({"KERNELS": "kernels/a**"}, "'kernels/a**' is no glob"),
        ({"TIER": "quick"}, "these variants need a runner of your own, and none is named"),
    ],
)
def test_wrong_inputs(repository: Path, inputs: dict[str, str], message: str) -> None:
    code, text = stage("plan", **{f"IN_{name}": value for name, value in inputs.items()})
    assert code == 2, text
    assert "::error " in text
    assert message in text
    assert "fix: " in text


def test_a_base_that_is_not_there_means_all(repository: Path) -> None:
    code, text = stage("plan", IN_ONLY=HERE, IN_CHANGED_ONLY="true", IN_BASE="f" * 40)
    assert code == 0
    assert f"all kernels: the history does not lead back to {'f' * 40}" in text


def test_another_workflow_that_is_broken_stops_nothing(repository: Path) -> None:
    workflow = repository / ".github" / "workflows" / "other.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("on: [push")
    code, text = stage("plan", IN_ONLY=HERE)
    assert code == 0, text
    assert "::warning title=permissions::.github/workflows/other.yml: is not YAML" in text


def test_a_caller_that_grants_too_little_is_told_the_lines(repository: Path) -> None:
    workflow = repository / ".github" / "workflows" / "release.yml"
    workflow.parent.mkdir(parents=True)
    uses = "acme/kernel-ci/.github/workflows/release.yml@v1"
    workflow.write_text(
        f"on: push\njobs:\n  go:\n    permissions:\n      contents: read\n    uses: {uses}\n"
    )
    code, text = stage("plan", IN_ONLY=HERE)
    assert code == 0, text
    place = "file=.github/workflows/release.yml,line=6,title=permissions"
    lines = (
        "permissions:%0A      contents: read  # to check the kernels out%0A      id-token: write"
    )
    assert f"::warning {place}::the job 'go' does not grant id-token to release.yml" in text
    assert lines in text


@pytest.mark.parametrize(
    ("name", "code", "inputs", "message"),
    [
        ("build", 2, {"PLAN_ID": "sha256:0", "CELL": "a/b"}, "plan.json: no such file"),
        ("names", 2, {}, "input plan-id: is missing"),
        ("gate", 1, {"PLAN_RESULT": "cancelled"}, "there is no plan, so nothing is proved"),
        ("publish", 2, {"PLAN_ID": "sha256:0"}, "plan.json: no such file"),
    ],
)
def test_stages_out_of_turn(
    repository: Path, name: str, code: int, inputs: dict[str, str], message: str
) -> None:
    found, text = stage(name, **{f"IN_{key}": value for key, value in inputs.items()})
    assert (found, message in text) == (code, True), text


@pytest.mark.parametrize("tier", ["quick", "full"])
def test_this_repository_asks_for_what_githubs_runners_can_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    monkeypatch.chdir(ROOT)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    given = workflow["jobs"]["kernels"]["with"]
    inputs = {f"IN_{name.upper()}": given[name] for name in ("kernels", "skip", "runners")}
    code, text = stage("plan", IN_TIER=tier, RUNNER_TEMP=str(tmp_path), **inputs)
    assert code == 0, text
    cells = Plan.read(tmp_path / "kernel-ci" / "plan" / "plan.json").cells
    built_with = {(cell.toolchain, cell.backend_version) for cell in cells}
    # Out of Python packages, but for Apple's.
    assert built_with <= {("zig", None), ("xcode", None), ("nvcc", "13.0"), ("nvcc", "13.2")}


def test_kernels(repository: Path) -> None:
    relu = Path("kernels/relu-tvm-ffi")
    assert find_kernels(()) == find_kernels(("kernels/*",)) == find_kernels(("**", str(relu)))
    assert find_kernels(()) == [relu]
    (repository / "build.toml").touch()
    assert find_kernels(()) == [Path()]
    with pytest.raises(InputError, match="matches no folder"):
        find_kernels(("kernels",))
