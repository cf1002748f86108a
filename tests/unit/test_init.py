"""`kernel-ci init`: what it writes, and what it refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from kernel_ci.errors import InputError
from kernel_ci.github import callers
from kernel_ci.init import write_kernel
from kernel_ci.kernel import Kernel


def test_in_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "kernels" / "my-kernel"
    written = write_kernel("my-kernel", folder, repo_id="acme/my-kernel")
    assert all(path.is_file() for path in written)
    kernel = Kernel.read(folder)
    assert (kernel.name, kernel.general.hub.repo_id) == ("my-kernel", "acme/my-kernel")
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "kernels.yml").read_text())
    assert workflow["jobs"]["build"]["with"]["kernels"] == "kernels/my-kernel"
    assert callers.check(tmp_path) == []
    assert not any(re.search("@[A-Z]+@", path.read_text()) for path in written)


def test_a_second_kernel_leaves_the_workflow_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write_kernel("first", tmp_path / "first")
    workflow = tmp_path / ".github" / "workflows" / "kernels.yml"
    workflow.write_text("mine")
    assert workflow not in write_kernel("second", tmp_path / "second")
    assert workflow.read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["My-Kernel", "a", "-a", "a-", "a--b", "a/b", "../x", "a_b", "1a", ""]
)
def test_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no kernel's name"):
        write_kernel(name, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is there already"):
        write_kernel("my-kernel", tmp_path)
    with pytest.raises(InputError, match="is there already"):
        write_kernel("my-kernel", tmp_path / "file")
