"""The store of the local Hub: what it keeps, and what survives a crash at any instant.

Crashes are real: this file, run as a script, forks a child for each step that an action
takes on the file system and ends the child right before that step. `Disk` decides what
the disk holds then.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.errors import InputError
from kernel_ci.hub.check import Finding, check
from kernel_ci.hub.store import (
    Add,
    Change,
    Conflict,
    Delete,
    DeleteFolder,
    EntryNotFound,
    HubError,
    RepoNotFound,
    RevisionNotFound,
    Stale,
    Store,
    StoredFile,
    apply_changes,
    git_oid,
    lfs_pointer,
    valid_path,
    valid_ref,
    valid_repo,
)

REPO = "acme/relu"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk here; what is synced matters in the children only."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def lfs(store: Store, content: bytes) -> StoredFile:
    upload = store.receive()
    try:
        upload.write(content)
        sha256 = upload.keep()
    finally:
        upload.close()
    return store.lfs_file(sha256, len(content))


def prepared(folder: Path) -> Store:
    """Return a Hub with one repository, a branch v1 with a commit of its own, and a tag."""
    store = Store(folder)
    store.create(REPO, "tester")
    store.create_ref(REPO, "heads", "v1", "main")
    changes = [
        Add("build/a/__init__.py", store.put(b"one = 1\n")),
        Add("build/a/a.so", lfs(store, b"\0library" * 1000)),
        Add("build/b/__init__.py", store.put(b"two = 2\n")),
    ]
    store.commit(REPO, "v1", changes, title="first", author="tester")
    store.create_ref(REPO, "tags", "v1.0", "v1")
    return store


def head(store: Store, revision: str = "v1") -> str:
    return store.resolve(REPO, revision).id


# -- crashes ---------------------------------------------------------------------------


def update(store: Store) -> None:
    """Do what a new release does: new contents, one file replaced, a folder removed."""
    changes: list[Change] = [
        Add("build/a/a.so", lfs(store, b"\0new library" * 1000)),
        Add("build/a/__init__.py", store.put(b"one = 1.5\n")),
        DeleteFolder("build/b"),
    ]
    store.commit(REPO, "v1", changes, title="next", author="tester", parent=head(store))


def propose(store: Store) -> None:
    changes = [Add("build/a/__init__.py", store.put(b"one = 1.5\n"))]
    store.open_pull(REPO, "v1", changes, title="please", author="tester")


ACTIONS: dict[str, Callable[[Store], object]] = {
    "open": lambda store: Store(store.folder.parent / "other").create(REPO, "tester"),
    "create": lambda store: store.create("acme/gelu", "tester"),
    "delete": lambda store: store.delete(REPO),
    "update": update,
    "propose": propose,
    "branch": lambda store: store.create_ref(REPO, "heads", "v2", "v1"),
    "untag": lambda store: store.delete_ref(REPO, "tags", "v1.0"),
}

# What a crash costs. A killed process loses nothing that it has written. A machine that
# loses power may lose whatever was not synced: bytes, new names, renames. The name that
# was given last may be on the disk although what came before it is not.
LOSSES = ("nothing", "all unsynced", "all unsynced but the last rename")


class Disk:
    """Ends this process before its nth step on the file system, and loses what may be lost."""

    def __init__(self, steps: int, loss: str, backups: Path):
        self.steps, self.loss, self.backups = steps, loss, backups
        self.active = True
        self.unwritten: set[Path] = set()
        self.created: list[Path] = []
        self.renamed: list[tuple[Path, Path, Path | None]] = []
        # What is written stays in memory here, so that the tests do not wait for the disk.
        os.fsync = self.sync  # type: ignore[assignment]
        sys.addaudithook(self.event)

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        self.active = False  # what this does is no step
        if name == "open" and isinstance(arguments[0], str) and arguments[2] & os.O_ACCMODE:
            self.step()
            path = Path(arguments[0])
            if not path.exists():
                self.created.append(path)
                self.unwritten.add(path)
        elif name in ("os.remove", "os.rmdir"):
            self.step()
            self.created = [path for path in self.created if path != Path(arguments[0])]
        elif name == "os.mkdir":
            self.step()
            if not Path(arguments[0]).exists():
                self.created.append(Path(arguments[0]))
        elif name == "os.rename":
            self.step()
            self.rename(Path(arguments[0]), Path(arguments[1]))
        self.active = True

    def rename(self, old: Path, new: Path) -> None:
        backup = None
        if new.exists():
            backup = self.backups / str(len(list(self.backups.iterdir())))
            os.link(new, backup)
        self.renamed.append((old, new, backup))
        self.unwritten = {rebased(path, old, new) for path in self.unwritten}
        self.created = [rebased(path, old, new) for path in self.created if path != old]

    def sync(self, descriptor: int) -> None:
        self.active = False
        self.step()
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.unwritten.discard(path)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.created = [made for made in self.created if made.parent != path]
            self.renamed = [entry for entry in self.renamed if entry[1].parent != path]
        self.active = True

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            self.crash(9)

    def crash(self, status: int) -> None:
        self.active = False
        if self.loss != "nothing":
            self.lose()
        os._exit(status)

    def lose(self) -> None:
        for path in self.unwritten:
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
        kept = 1 if self.loss.endswith("last rename") else 0
        for path in reversed(self.created):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for old, new, backup in reversed(self.renamed[: len(self.renamed) - kept]):
            if new.exists():
                new.rename(old)
            if backup is not None:
                backup.rename(new)


def rebased(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


def crash_everywhere(action: str, loss: str, start: Path, cases: Path) -> None:
    """Run an action once for each of its steps with a crash before it, then with one after all.

    The Hub at `start` is copied to `cases/<n>/hub` for the nth run.
    """
    for number in range(1000):
        case = cases / str(number)
        shutil.copytree(start.parent, case)
        backups = cases / "backups" / str(number)
        backups.mkdir(parents=True)
        child = os.fork()
        if child == 0:
            store = Store(case / start.name)
            disk = Disk(number, loss, backups)
            ACTIONS[action](store)
            disk.crash(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return
        assert status == 9, f"{action} failed before step {number}: status {status}"
    raise AssertionError("the action takes no end")


def run_self(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def served(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return all that clients see: repository → ref → path → digest of the content read."""
    if not (folder / "hub.json").exists():
        return {}
    store = Store(folder)
    return {
        repo: {
            named.full_name: {
                path: hashlib.sha256(store.content(file).read_bytes()).hexdigest()
                for path, file in store.resolve(repo, named.full_name).commit.files.items()
            }
            for named in store.refs(repo)
        }
        for repo in store.repos()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="follows descriptors through /proc")
@pytest.mark.parametrize("action", ACTIONS)
def test_crash_at_any_step(action: str, tmp_path: Path) -> None:
    start = tmp_path / "start" / "hub"
    prepared(start)
    assert run_self("crash", action, start, tmp_path).wait(120) == 0

    target = "other" if action == "open" else "hub"
    before = served(start.parent / target)
    ACTIONS[action](Store(start))
    after = served(start.parent / target)
    assert before != after
    for loss in LOSSES:
        cases = tmp_path / loss
        numbers = sorted(int(path.name) for path in cases.iterdir() if path.name.isdecimal())
        assert len(numbers) > 3
        outcomes = []
        for number in numbers:
            folder = cases / str(number) / target
            if folder.exists():
                Store(folder)  # completes what a crash interrupted when the Hub was first made
                found = check(folder, repair=True)
                assert [finding for finding in found if finding.kind != "leftover"] == []
                assert check(folder) == []
            outcomes.append(served(folder))
            assert outcomes[-1] in (before, after), f"{loss} lost before step {number}"
            if outcomes[-1] == before:
                ACTIONS[action](Store(folder.parent / "hub"))
                assert served(folder) == after
        # Old, then new, never back; and what was reported as done stays done.
        assert outcomes == sorted(outcomes, key=lambda state: state == after)
        assert outcomes[0] == before
        assert outcomes[-1] == after


# -- concurrency -----------------------------------------------------------------------


def race(folder: Path, name: str, commits: int) -> None:
    """Make commits, each on the head just read; start over when another was faster."""
    store = Store(folder)
    sys.stdin.readline()
    lost = 0
    for number in range(commits):
        content = store.put(f"{name} {number}".encode())
        while True:
            parent = head(store)
            try:
                store.commit(
                    REPO,
                    "v1",
                    [Add(f"{name}/{number}", content)],
                    title=f"{name} {number}",
                    author=name,
                    parent=parent,
                )
                break
            except Stale:
                lost += 1
    print(lost)


def test_two_processes_lose_no_commit(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    commits = 25
    first = head(store)
    racers = [
        subprocess.Popen(
            [sys.executable, __file__, "race", str(store.folder), name, str(commits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate(timeout=60)
        assert racer.returncode == 0
    final = store.resolve(REPO, "v1")
    history = [revision.id for revision in store.history(REPO, final)]
    assert history.index(first) == 2 * commits
    expected = {f"{name}/{number}" for name in "ab" for number in range(commits)}
    assert expected <= set(final.commit.files)
    assert check(store.folder) == []


# -- rules -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a", "build/x/_ops.py", "ä/ö.py", ".gitattributes", "a b"])
def test_path_accepted(path: str) -> None:
    assert valid_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/../../b", "./a", "a\\b",
        "..\\a", "C:/a", "a\0b", "a\nb", ".git/config", "x/.GIT/hooks", "\ud800", "a" * 256,
    ],
)  # fmt: skip
def test_path_refused(path: str) -> None:
    with pytest.raises(HubError, match="Invalid path"):
        valid_path(path)


@pytest.mark.parametrize(
    "repo", ["relu", "a/b/c", "../x", "a/..", "a/b--c", "-a/b", "a/b.git", "a/", "a/b.", "a/ä"]
)
def test_repo_refused(repo: str) -> None:
    with pytest.raises(HubError, match="Invalid repository id"):
        valid_repo(repo)


@pytest.mark.parametrize("name", ["main", "v1", "feature/x", "1.0", "refs-x", "ä"])
def test_ref_accepted(name: str) -> None:
    assert valid_ref(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "/a", "a/", "a//b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[",
     "a\\b", "a@{1}", "@", "-a", "a.lock", "x/.y", "a.", "refs/heads/a", "0" * 40, "ä" * 99],
)  # fmt: skip
def test_ref_refused(name: str) -> None:
    with pytest.raises(HubError, match="Invalid reference name"):
        valid_ref(name)


def file(content: bytes) -> StoredFile:
    digest = hashlib.sha256(content).hexdigest()
    return StoredFile(sha256=digest, size=len(content), oid=git_oid(content), lfs=False)


def test_changes_are_made_in_order() -> None:
    old, new = file(b"old"), file(b"new")
    files = {"build/a": old, "build/b": old, "buildx": old}
    assert apply_changes(files, [DeleteFolder("build/"), Add("build/a", new)]) == {
        "build/a": new,
        "buildx": old,
    }
    assert apply_changes(files, [Add("build/a", new), DeleteFolder("build")]) == {"buildx": old}
    assert apply_changes(files, [Delete("buildx"), Add("buildx/c", new)])["buildx/c"] == new


@pytest.mark.parametrize("change", [Delete("nope"), Delete("build"), DeleteFolder("buil")])
def test_deleting_what_is_not_there(change: Delete | DeleteFolder) -> None:
    with pytest.raises(EntryNotFound, match="with this name doesn't exist"):
        apply_changes({"build/a": file(b"")}, [change])


@pytest.mark.parametrize("path", ["build", "build/a/b"])
def test_file_and_folder_of_one_name(path: str) -> None:
    with pytest.raises(HubError, match="is a file"):
        apply_changes({"build/a": file(b"")}, [Add(path, file(b"x"))])


def test_invalid_path_is_not_added() -> None:
    with pytest.raises(HubError, match="Invalid path"):
        apply_changes({}, [Add("../a", file(b""))])


def test_git_ids_are_those_of_git(tmp_path: Path) -> None:
    pointer = lfs_pointer("ab" * 32, 12345)
    for content in (b"", b"hello\n", pointer):
        run = subprocess.run(
            ["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True
        )
        assert git_oid(content) == run.stdout.decode().strip()


# -- the store -------------------------------------------------------------------------


def test_revisions(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    store.create_ref(REPO, "heads", "feature/x", "v1.0")
    number, pull = store.open_pull(
        REPO, "v1", [Delete("build/b/__init__.py")], title="please", author="tester"
    )
    first, main = head(store), head(store, "main")
    assert (number, store.resolve(REPO, "refs/pr/1").id) == (1, pull)
    same = ["refs/heads/v1", "v1.0", "refs/tags/v1.0", "feature/x", first, first[:7]]
    assert {head(store, revision) for revision in same} == {first}
    assert main != first != pull
    names = [named.full_name for named in store.refs(REPO)]
    assert names == [
        *("refs/heads/feature/x", "refs/heads/main", "refs/heads/v1"),
        *("refs/tags/v1.0", "refs/pr/1"),
    ]
    for missing in (
        "v9",
        "refs/heads/v1.0",
        "refs/tags/v1",
        "refs/pr/2",
        first[:4],
        "0" * 40,
        "../v1",
    ):
        with pytest.raises(RevisionNotFound):
            head(store, missing)
    with pytest.raises(RepoNotFound):
        store.resolve("acme/other", "main")
    with pytest.raises(RepoNotFound):
        store.resolve("../hub", "main")


def test_stale_parent_changes_nothing(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    before = served(store.folder)
    main = head(store, "main")
    for parent in (main, main[:7], "0" * 40):
        with pytest.raises(Stale):
            store.commit(
                REPO, "v1", [Delete("build/b/__init__.py")], title="x", author="t", parent=parent
            )
    for parent in ("", "abc", "main", "Z" * 40):
        with pytest.raises(HubError, match="Invalid commit id"):
            store.commit(REPO, "v1", [], title="x", author="t", parent=parent)
    assert served(store.folder) == before


def test_only_branches_and_pull_requests_take_commits(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    for revision in ("v1.0", "refs/tags/v1.0", head(store), "nope"):
        with pytest.raises(RevisionNotFound):
            store.commit(REPO, revision, [], title="x", author="t")
        with pytest.raises(RevisionNotFound):
            store.open_pull(REPO, revision, [], title="x", author="t")
    propose(store)
    changes = [Add("more", store.put(b""))]
    store.commit(REPO, "refs/pr/1", changes, title="more", author="t")
    assert "more" in store.resolve(REPO, "refs/pr/1").commit.files
    assert [named.ref.title for named in store.refs(REPO) if named.kind == "pulls"] == ["please"]


def test_what_exists_is_not_made_again(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    with pytest.raises(Conflict):
        store.create(REPO, "tester")
    with pytest.raises(Conflict):
        store.create_ref(REPO, "heads", "v1", "main")
    with pytest.raises(RevisionNotFound):
        store.delete_ref(REPO, "heads", "v9")
    with pytest.raises(HubError, match="main branch"):
        store.delete_ref(REPO, "heads", "main")


def test_last_changes(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    first = head(store)
    update(store)
    revision = store.resolve(REPO, "v1")
    changed = {path: each.id for path, each in store.last_changes(REPO, revision).items()}
    assert changed == {
        ".gitattributes": head(store, "main"),
        "build/a/a.so": revision.id,
        "build/a/__init__.py": revision.id,
    }
    older = store.resolve(REPO, first)
    assert store.last_changes(REPO, older)["build/b/__init__.py"].id == first


def test_content_with_another_digest_is_not_kept(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    upload = store.receive()
    upload.write(b"other")
    with pytest.raises(HubError, match="SHA-256"):
        upload.keep("0" * 64)
    upload.close()
    assert check(store.folder) == []
    with pytest.raises(HubError, match="was not uploaded"):
        store.lfs_file("0" * 64, 5)
    with pytest.raises(HubError, match="was not uploaded"):
        store.lfs_file("../hub.json", None)


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is not a Hub: it holds 'notes\.txt'"):
        Store(tmp_path)
    with pytest.raises(InputError, match="cannot hold a Hub"):
        Store(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(InputError, match="is not a Hub"):
        check(tmp_path / "nowhere")
    newer = tmp_path / "newer"
    Store(newer)
    marker = newer / "hub.json"
    marker.write_text(marker.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(InputError, match="format is 2"):
        Store(newer)


# -- check -----------------------------------------------------------------------------


def blob_of(store: Store, path: str) -> Path:
    return store.content(store.resolve(REPO, "v1").commit.files[path])


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def heads(store: Store) -> Path:
    return store.kernels / "acme--relu" / "heads"


def commit_file(store: Store) -> Path:
    return store.kernels / "acme--relu" / "commits" / f"{head(store)}.json"


DAMAGE: dict[str, tuple[Callable[[Store], object], str]] = {
    "byte": (
        lambda store: blob_of(store, "build/a/a.so").write_bytes(b"\0librarY" * 1000),
        "was changed: its digest is",
    ),
    "size": (
        lambda store: blob_of(store, "build/a/a.so").write_bytes(b"\0library"),
        "has 8 bytes, expected 8000",
    ),
    "blob": (lambda store: blob_of(store, "build/a/a.so").unlink(), "build/a/a.so, which is lost"),
    "commit": (lambda store: commit_file(store).unlink(), "names commit"),
    "forged": (lambda store: rewrite(commit_file(store), "first", "other"), "was changed"),
    "no json": (lambda store: commit_file(store).write_text("{"), "cannot be read"),
    "no commit": (lambda store: commit_file(store).write_text("{}"), "is not a hub-commit"),
    "ref": (lambda store: (heads(store) / "v1.json").write_text("[]"), "is not a hub-ref"),
    "main": (lambda store: (heads(store) / "main.json").unlink(), "has no branch main"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_repair_removes_nothing_then(kind: str, tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    store.put(b"unneeded")
    inflict, what = DAMAGE[kind]
    inflict(store)
    names = sorted(str(path) for path in store.folder.rglob("*"))
    found = check(store.folder, repair=kind not in ("byte", "size"))
    assert any(finding.kind == "damage" and what in finding.what for finding in found)
    assert sorted(str(path) for path in store.folder.rglob("*")) == names


def test_damage_of_a_content_that_nothing_needs_yet_is_damage(tmp_path: Path) -> None:
    """Clients would not upload it again, and then commit it."""
    store = prepared(tmp_path / "hub")
    blob = store.content(lfs(store, b"good"))
    blob.write_bytes(b"evil")
    assert {finding.kind for finding in check(store.folder)} == {"damage", "leftover"}
    check(store.folder, repair=True)
    assert check(store.folder) == []
    assert not blob.exists()


def test_uploading_again_mends_a_content(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    blob_of(store, "build/a/a.so").write_bytes(b"\0librarY" * 1000)
    assert check(store.folder)
    lfs(store, b"\0library" * 1000)
    assert check(store.folder) == []


def test_repair_spares_what_is_being_received(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    (store.tmp / "dead.blob").write_bytes(b"half")
    (store.tmp / "dead.new" / "heads").mkdir(parents=True)
    upload = store.receive()
    upload.write(b"content")
    found = check(store.folder, repair=True)
    assert found == [
        Finding("leftover", "tmp/dead.blob", "an unfinished write"),
        Finding("leftover", "tmp/dead.new", "an unfinished write"),
    ]
    sha256 = upload.keep()
    upload.close()
    assert store.blob(sha256, 7) is not None


def test_commit_tells_when_its_content_was_collected(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    before = served(store.folder)
    added = Add("build/c/c.so", lfs(store, b"library"))
    check(store.folder, repair=True)
    with pytest.raises(HubError, match="was not uploaded"):
        store.commit(REPO, "v1", [added], title="x", author="t")
    assert served(store.folder) == before


def test_repair_collects_what_deleting_leaves(tmp_path: Path) -> None:
    store = prepared(tmp_path / "hub")
    store.create("acme/gelu", "tester")
    store.delete(REPO)
    assert {Path(finding.where).parent.name for finding in check(store.folder)} == {"blobs"}
    check(store.folder, repair=True)
    assert check(store.folder) == []
    assert len(list(store.blobs.iterdir())) == 1
    assert json.loads((store.kernels / "acme--gelu/heads/main.json").read_text())["commit"]


if __name__ == "__main__":
    if sys.argv[1] == "crash":
        for loss in LOSSES:
            crash_everywhere(sys.argv[2], loss, Path(sys.argv[3]), Path(sys.argv[4]) / loss)
    else:
        race(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
