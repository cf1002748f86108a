"""Which kernels a change touches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_ci.github.changed import harmless_paths, only_touched, touched

KERNELS = ("kernels/a", "kernels/b")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["kernels/a/build.toml"], ("kernels/a",)),
        (["kernels/a/CARD.md"], ("kernels/a",)),
        (["kernels/a/x.cc", "kernels/b/y.cc"], KERNELS),
        (["README.md"], ()),
        (["docs/deep/page.rst"], ()),
        (["kernels/other/x.cc"], ()),
        ([], ()),
        # What is not known may be part of anything.
        (["include/common.h"], KERNELS),
        (["kernels/common.h"], KERNELS),
        ([".github/workflows/kernels.yml"], KERNELS),
        (["README.md", "kernels/a/x.cc", "setup.cfg"], KERNELS),
        # Not inside a/, though it begins alike.
        (["kernels/ab/x.cc"], KERNELS),
    ],
)
def test_touched(paths: list[str], expected: tuple[str, ...]) -> None:
    assert touched(paths, KERNELS, ["kernels/other"], harmless_paths())[0] == expected


def test_a_kernel_that_is_the_repository() -> None:
    assert touched(["README.md"], ["."], [], harmless_paths())[0] == (".",)
    assert touched(["inner/x.cc"], [".", "inner"], [], harmless_paths())[0] == ("inner",)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in KERNELS:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "build.toml").touch()
        (tmp_path / name / "x.cc").write_text("1\n2\n3\n4\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folders() -> list[Path]:
    return [Path(name) for name in KERNELS]


def test_what_a_side_branch_changed(repository: Path) -> None:
    """Not what its base changed meanwhile."""
    git(repository, "checkout", "-q", "-b", "side")
    (repository / "kernels/a/x.cc").write_text("2")
    git(repository, "commit", "-q", "-a", "-m", "side")
    git(repository, "checkout", "-q", "main")
    (repository / "kernels/b/x.cc").write_text("3")
    git(repository, "commit", "-q", "-a", "-m", "main")
    git(repository, "checkout", "-q", "side")
    assert only_touched(folders(), "main")[0] == [Path("kernels/a")]


def test_a_file_that_moved_touches_both_ends(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "mv", "kernels/a/x.cc", "kernels/b/moved.cc")
    git(repository, "commit", "-q", "-m", "move")
    assert only_touched(folders(), base)[0] == folders()


@pytest.mark.parametrize("base", [None, "d" * 40, "--output=oops", ""])
def test_everything_where_git_cannot_tell(repository: Path, base: str | None) -> None:
    found, reason = only_touched(folders(), base)
    assert found == folders()
    assert reason.startswith("all kernels: ")
    assert sorted(path.name for path in repository.iterdir()) == [".git", "kernels"]


def test_nothing_touched(repository: Path) -> None:
    assert only_touched(folders(), "HEAD") == ([], "kernels touched: none")
