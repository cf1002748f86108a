"""version.yml: the major version's tag moves to a new release, and to nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_ci import __version__
from tests.workflows.harness import ROOT, USES, Caller, Run

TAG = f"v{__version__}"
MAJOR = TAG.partition(".")[0]


@pytest.fixture
def origin(caller: Caller) -> Path:
    """Return the repository that tags are pushed to; the caller's is a clone of it."""
    folder = caller.scratch / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    text = (ROOT / ".github" / "workflows" / "version.yml").read_text()
    caller.workflow(re.sub(r"uses: \$/(\S+)", rf"uses: {USES}/\1@v1", text), "version.yml")
    shutil.copyfile(ROOT / "CHANGELOG.md", caller.folder / "CHANGELOG.md")
    caller.commit()
    _git(caller.folder, "remote", "add", "origin", str(folder))
    _git(caller.folder, "tag", TAG)
    _git(caller.folder, "push", "-q", "origin", "main", TAG)
    return folder


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def push(caller: Caller, *, created: bool = True, **environment: str) -> Run:
    ref = f"refs/tags/{TAG}"
    payload = {"ref": ref, "created": created}
    return caller.run("push", payload, workflow="version.yml", ref=ref, environment=environment)


def test_a_release_moves_the_major_versions_tag(caller: Caller, origin: Path) -> None:
    """Here the runner has no kernel-ci: the action installs it, as on GitHub."""
    shutil.copytree(ROOT / "scripts", caller.library / "scripts")
    for name in ("README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, caller.library / name)
    # The tag is at an older commit, and moves.
    _git(caller.folder, "push", "-q", "origin", f"{_older(caller)}:refs/tags/{MAJOR}")

    run = push(caller, KERNEL_CI_PREINSTALLED="")

    assert run.exit_code == 0, run
    assert run.job("move").outcome('setup.sh" install') == "success"
    assert run.job("move").outcome("kernel-ci github move-version") == "success"
    assert f"{MAJOR} is {TAG} now" in run.text
    assert _git(origin, "rev-parse", MAJOR) == _git(origin, "rev-parse", TAG)


def test_a_release_that_moved_is_refused(caller: Caller, origin: Path) -> None:
    run = push(caller, created=False)

    assert run.exit_code != 0
    assert run.job("move").outcome("kernel-ci github move-version") == "failure"
    assert f"{TAG} was there before, and callers rely on it" in run.text
    assert _git(origin, "tag", "--list") == TAG


def _older(caller: Caller) -> str:
    tree = _git(caller.folder, "write-tree")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return _git(caller.folder, *identity, "commit-tree", tree, "-m", "older")
