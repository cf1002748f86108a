"""The state of sources: with real git, and without."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_ci import source
from kernel_ci.errors import InputError
from kernel_ci.source import Source, digest_of, inspect
from tests.helpers import commit


@pytest.fixture(autouse=True)
def _git_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the user's configuration out, and this repository too."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@git.example")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel's folder without git."""
    return write(tmp_path / "repo" / "kernel", build_toml="x", sub__a_cc="a")


@pytest.fixture
def committed(kernel: Path) -> Path:
    """The same in a repository, committed, with a file beside it."""
    write(kernel.parent, README_md="read me")
    git(kernel.parent, "init", "--quiet")
    git(kernel.parent, "add", ".")
    git(kernel.parent, "commit", "--quiet", "-m", "first")
    return kernel


# --- Outside git ---------------------------------------------------------------------------


def test_without_a_repository(kernel: Path) -> None:
    found = inspect(kernel)
    assert found == Source(digest=digest_of(kernel, ["build.toml", "sub/a.cc"]))
    assert found.unique_id == f"src{found.digest[7:14]}"


def test_digest_is_of_names_and_contents(kernel: Path) -> None:
    seen = {inspect(kernel).digest}

    def changed() -> bool:
        before = len(seen)
        seen.add(inspect(kernel).digest)
        return len(seen) > before

    assert not changed()
    os.utime(kernel / "sub/a.cc", (1, 1))
    assert not changed()
    write(kernel, sub__a_cc="b")
    assert changed()
    (kernel / "sub/a.cc").rename(kernel / "sub/b.cc")
    assert changed()
    write(kernel, empty="")
    assert changed()
    # The same bytes, parted otherwise.
    write(kernel, build_toml="", empty="x")
    assert changed()


def test_what_is_no_source_without_git(kernel: Path) -> None:
    before = inspect(kernel)
    write(
        kernel,
        build__x__lib_so="1",
        out__plan_json="1",
        sub____pycache____a_pyc="1",
        sub__b_pyc="1",
    )
    (kernel / ".pytest_cache").mkdir()
    (kernel / ".pytest_cache/x").write_text("1")
    assert (kernel / "build/x/lib.so").exists()
    assert inspect(kernel) == before
    # Only results lie in `build` of the kernel's folder; deeper ones are sources.
    write(kernel, sub__build__a_cc="1")
    assert inspect(kernel) != before


def test_results_of_a_run_are_no_sources_without_git(kernel: Path) -> None:
    before = inspect(kernel)
    results = write(kernel / "results", plan_json="{}", deep__lib_so="1")
    assert inspect(kernel) != before
    # What kernel-ci leaves in a folder that it makes for a run.
    (results / ".gitignore").write_text("*\n")
    assert inspect(kernel) == before
    (results / ".gitignore").write_text("*.so\n")
    assert inspect(kernel) != before


def test_odd_files(kernel: Path) -> None:
    before = inspect(kernel)
    (kernel / "dangling").symlink_to("nowhere")
    (kernel / "loop").symlink_to("loop")
    os.mkfifo(kernel / "pipe")
    assert inspect(kernel) == before
    (kernel / "link").symlink_to("build.toml")
    with_link = inspect(kernel)
    assert with_link != before
    # Names need not be text.
    Path(os.fsdecode(os.fsencode(kernel) + b"/\xff.cc")).write_text("x")
    assert inspect(kernel) not in (before, with_link)


def test_without_git_on_the_path(committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_git = inspect(committed)
    monkeypatch.setenv("PATH", str(committed))
    assert inspect(committed) == Source(digest=with_git.digest)


# --- In a repository -----------------------------------------------------------------------


def test_committed(committed: Path) -> None:
    found = inspect(committed)
    assert found == Source(
        digest=digest_of(committed, ["build.toml", "sub/a.cc"]),
        commit=git(committed, "rev-parse", "HEAD"),
        tree=git(committed, "rev-parse", "HEAD^{tree}"),
        dirty=False,
    )
    assert found.tree is not None
    assert found.unique_id == found.tree[:7]


def test_no_commit_yet(kernel: Path) -> None:
    outside = inspect(kernel)
    git(kernel.parent, "init", "--quiet")
    assert inspect(kernel) == outside
    git(kernel.parent, "add", ".")
    assert inspect(kernel) == outside


def test_tracked_file_changed(committed: Path) -> None:
    before = inspect(committed)
    write(committed, sub__a_cc="changed")
    found = inspect(committed)
    assert found.dirty
    assert (found.commit, found.tree) == (before.commit, before.tree)
    assert found.digest != before.digest
    assert found.tree is not None
    assert found.unique_id == f"{found.tree[:7]}_dirty_{found.digest[7:14]}"
    # Two states that are not committed must not share an id.
    write(committed, sub__a_cc="changed again")
    assert inspect(committed).unique_id != found.unique_id
    # Staged is not committed.
    git(committed, "add", ".")
    assert inspect(committed).dirty
    write(committed, sub__a_cc="a")
    git(committed, "add", ".")
    assert inspect(committed) == before


def test_tracked_file_deleted(committed: Path) -> None:
    (committed / "sub/a.cc").unlink()
    found = inspect(committed)
    assert found.dirty
    assert found.digest == digest_of(committed, ["build.toml"])


def test_tracked_file_changed_beside_the_kernel(committed: Path) -> None:
    # The id is of the whole tree, so the whole tree must be what was committed.
    before = inspect(committed)
    write(committed.parent, README_md="changed")
    assert inspect(committed) == before.model_copy(update={"dirty": True})


def test_untracked_file_in_the_kernel(committed: Path) -> None:
    before = inspect(committed)
    write(committed, sub__new_cc="new")
    found = inspect(committed)
    assert found.dirty
    assert found.digest == digest_of(committed, ["build.toml", "sub/a.cc", "sub/new.cc"])
    assert found.digest != before.digest


def test_untracked_file_is_seen_whatever_is_configured(committed: Path) -> None:
    git(committed, "config", "status.showUntrackedFiles", "no")
    write(committed, sub__new_cc="new")
    assert inspect(committed).dirty


def test_untracked_file_beside_the_kernel(committed: Path) -> None:
    before = inspect(committed)
    write(committed.parent, out__plan_json="{}")
    assert inspect(committed) == before


def test_ignored_files_do_not_count(committed: Path) -> None:
    write(committed.parent, **{"_gitignore": "build/\n*.o\n"})
    git(committed.parent, "add", ".")
    git(committed.parent, "commit", "--quiet", "-m", "ignore")
    before = inspect(committed)
    assert not before.dirty
    write(committed, build__x_so="1", sub__a_o="1")
    assert inspect(committed) == before


def test_an_ignored_folder_is_not_that_commit(committed: Path) -> None:
    # HEAD says nothing about what is in it, so it must not lend it its id.
    write(committed.parent, **{"_gitignore": "scratch/\n"})
    git(committed.parent, "add", ".")
    git(committed.parent, "commit", "--quiet", "-m", "ignore")
    scratch = write(committed.parent / "scratch", build_toml="x")
    first = inspect(scratch)
    assert first == Source(digest=digest_of(scratch, ["build.toml"]))
    write(scratch, build_toml="y")
    assert inspect(scratch) != first


def test_another_commit_is_another_id(committed: Path) -> None:
    before = inspect(committed)
    write(committed.parent, README_md="changed")
    git(committed.parent, "commit", "--quiet", "-am", "second")
    found = inspect(committed)
    assert (found.digest, found.dirty) == (before.digest, False)
    assert found.commit != before.commit
    assert found.unique_id != before.unique_id


def test_the_repository_itself_is_the_kernel(committed: Path) -> None:
    found = inspect(committed.parent)
    assert found.digest == digest_of(
        committed.parent, ["README.md", "kernel/build.toml", "kernel/sub/a.cc"]
    )
    assert not found.dirty


def test_in_another_worktree(committed: Path, tmp_path: Path) -> None:
    before = inspect(committed)
    git(committed, "worktree", "add", "--quiet", "--detach", str(tmp_path / "other"))
    other = tmp_path / "other" / "kernel"
    assert inspect(other) == before
    write(other, sub__a_cc="changed")
    assert inspect(other).dirty
    assert inspect(committed) == before


def test_files_of_submodules_count(committed: Path, tmp_path: Path) -> None:
    library = write(tmp_path / "library", lib_h="1")
    git(library, "init", "--quiet")
    git(library, "add", ".")
    git(library, "commit", "--quiet", "-m", "library")
    git(
        committed.parent, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
        str(library), "kernel/third",
    )  # fmt: skip
    git(committed.parent, "commit", "--quiet", "-m", "submodule")
    before = inspect(committed)
    assert before.digest == digest_of(committed, ["build.toml", "sub/a.cc", "third/lib.h"])
    assert not before.dirty
    write(committed, third__lib_h="2")
    changed = inspect(committed)
    assert changed.dirty
    assert changed.digest != before.digest
    # Another commit of the submodule than the recorded one.
    git(committed / "third", "commit", "--quiet", "-am", "other")
    assert inspect(committed) == changed


def test_names_that_git_would_quote(committed: Path) -> None:
    for name in ("ä b.cc", "tab\t.cc", 'quote".cc', "new\nline.cc"):
        (committed / name).write_text(name)
    Path(os.fsdecode(os.fsencode(committed) + b"/\xff.cc")).write_text("x")
    git(committed, "add", ".")
    git(committed, "commit", "--quiet", "-m", "names")
    with_git = inspect(committed)
    assert not with_git.dirty
    shutil.rmtree(committed.parent / ".git")
    assert inspect(committed).digest == with_git.digest


def test_inside_a_hook(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # git tells its hooks where *their* repository is.
    before = inspect(committed)
    other = write(tmp_path / "other", file="x")
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert inspect(committed) == before


def test_a_repository_that_git_does_not_trust(
    committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a container that runs as another user than the one who checked out.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(InputError, match="dubious ownership") as caught:
        inspect(committed)
    assert caught.value.where == str(committed)
    assert "safe.directory" in caught.value.what
    assert caught.value.fix


def test_nothing_is_written_to_the_repository(committed: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in committed.parent.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    # A changed time would make `git status` refresh the index.
    os.utime(committed / "sub/a.cc", (1, 1))
    before = state()
    assert not inspect(committed).dirty
    assert state() == before


def test_digest_of_does_not_depend_on_the_order_of_names(kernel: Path) -> None:
    names = ["build.toml", "sub/a.cc"]
    assert digest_of(kernel, names) == digest_of(kernel, names[::-1])
    assert digest_of(kernel, names) != digest_of(kernel, names[:1])
    assert source.digest_of(kernel, []).startswith("sha256:")


def test_a_compiled_file_that_git_ignores_counts(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / ".gitignore").write_text("*.gen.cc\n")
    (repository / "a.gen.cc").write_text("one")
    commit(repository)
    assert not inspect(repository).dirty
    first = inspect(repository, ["a.gen.cc"])
    # The commit does not hold the file, so it does not say what was built.
    assert first.dirty
    (repository / "a.gen.cc").write_text("two")
    assert inspect(repository, ["./a.gen.cc"]).digest != first.digest
