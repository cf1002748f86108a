"""What a kernel was built from: git state, and a digest of its files."""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
import subprocess
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernel_ci.documents import Model
from kernel_ci.errors import InputError

#: Never part of a kernel's sources, where there is no git to say what is.
_IGNORED = frozenset({".git", "__pycache__", ".pytest_cache", ".venv"})
#: Results, where they usually lie: directly in the kernel's folder.
_RESULTS = frozenset({"build", "out"})

#: Set by git for its hooks; they would make it look at that repository, whatever the folder.
_HOOK_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"}
)


class Source(Model):
    """The state of a kernel's sources.

    Attributes:
        digest: `sha256:<hex>` over the names and contents of the kernel's files.
        commit: HEAD of the repository, or None outside git.
        tree: Id of HEAD's tree, or None outside git.
        dirty: Files differ from HEAD: tracked ones anywhere in the repository, untracked
            ones in the kernel's folder.
    """

    digest: str
    commit: str | None = None
    tree: str | None = None
    dirty: bool = False

    @property
    def unique_id(self) -> str:
        """The part of a variant's id that names the source revision.

        Seven digits of HEAD's tree, as kernel-builder does it. Two states that are not
        committed would share `<tree>_dirty`, and a process that loads both would silently
        run the first one's library twice; so the digest is part of it then, and is all of
        it outside git.
        """
        digest = self.digest.partition(":")[2][:7]
        if self.tree is None:
            return f"src{digest}"
        return f"{self.tree[:7]}_dirty_{digest}" if self.dirty else self.tree[:7]


def inspect(folder: Path, compiled: Sequence[str] = ()) -> Source:
    """Return the state of the sources in a kernel's folder; see `inspect_all`."""
    return inspect_all([(folder, compiled)])[0]


def inspect_all(kernels: Sequence[tuple[Path, Sequence[str]]]) -> list[Source]:
    """Return the state of the sources in each kernel's folder.

    A folder that git ignores is treated as one outside git: no commit says what is in it.
    git is asked once for each repository: what it has to read for an answer is the whole
    repository, however many kernels are in it.

    Args:
        kernels: Each kernel's folder, and the files that its `build.toml` names, relative to
            the folder. One that git ignores is part of the digest all the same, and makes the
            state dirty.

    Raises:
        InputError: git refuses to look at the repository, for instance as it is another user's.
    """
    repositories: dict[Path, list[Path]] = {}
    roots = [_repository(folder) for folder, _ in kernels]
    for root, (folder, _) in zip(roots, kernels, strict=True):
        if root is not None:
            repositories.setdefault(root, []).append(folder.resolve())
    states = {root: _ask(folders) for root, folders in repositories.items()}
    return [
        _source(folder, compiled, None if root is None else states[root])
        for root, (folder, compiled) in zip(roots, kernels, strict=True)
    ]


@dataclass(frozen=True)
class _State:
    """What git says of a part of a repository.

    Attributes:
        top: The folder that this is about; names are relative to it.
        tracked: Names of the files in the index, sorted.
        others: Names of what git would take, sorted; a repository in it ends with `/`.
        commit: HEAD, or None where nothing has been committed.
        tree: HEAD's tree, or None.
        changed: Whether a tracked file anywhere in the repository differs from HEAD.
    """

    top: Path
    tracked: list[str]
    others: list[str]
    commit: str | None
    tree: str | None
    changed: bool


def _repository(folder: Path) -> Path | None:
    """Return the folder whose `.git` git would find for another, None if there is none."""
    folder = folder.resolve()
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


def _ask(folders: Sequence[Path]) -> _State:
    """Ask git for the state of the smallest folder that has all of these, of one repository."""
    top = Path(os.path.commonpath(folders))
    questions = (
        ("ls-files", "-z", "--cached", "--recurse-submodules", "--", "."),
        ("ls-files", "-z", "--others", "--exclude-standard", "--", "."),
        ("rev-parse", "--verify", "--quiet", "HEAD"),
        ("rev-parse", "--verify", "--quiet", "HEAD^{tree}"),
        ("status", "--porcelain", "--untracked-files=no"),
    )
    # Two of them walk the repository, so they are asked at once.
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = pool.map(lambda question: _git(top, *question), questions)
        tracked, others, commit, tree, changed = answers
    return _State(
        top=top,
        tracked=sorted({name for name in (tracked or "").split("\0") if name}),
        others=sorted({name for name in (others or "").split("\0") if name}),
        commit=commit.strip() if commit else None,
        tree=tree.strip() if tree else None,
        changed=bool(commit and changed),
    )


def _source(folder: Path, compiled: Sequence[str], state: _State | None) -> Source:
    named = {posixpath.normpath(name) for name in compiled}
    names, others = _listed(folder, state)
    if state is None or not names:
        return Source(digest=digest_of(folder, sorted({*_walk(folder), *named})))
    ignored = named - names
    digest = digest_of(folder, [*names, *ignored])
    if state.commit is None or state.tree is None:
        return Source(digest=digest)
    return Source(
        digest=digest,
        commit=state.commit,
        tree=state.tree,
        dirty=bool(state.changed or others or ignored),
    )


def files(folder: Path, compiled: Sequence[str] = ()) -> list[str]:
    """Return the files that are a kernel's sources, relative to its folder (see `inspect`)."""
    named = {posixpath.normpath(name) for name in compiled}
    state = None if _repository(folder) is None else _ask([folder.resolve()])
    names, _ = _listed(folder, state)
    return sorted({*(names or _walk(folder)), *named})


def committed_at(folder: Path) -> int | None:
    """Return when HEAD was committed, in seconds since 1970 (UTC); None outside git."""
    time = _git(folder, "show", "--no-patch", "--format=%ct", "HEAD")
    return int(time) if time else None


def _listed(folder: Path, state: _State | None) -> tuple[set[str], list[str]]:
    """Return the files of a folder that git has or would take, and which of them it has not."""
    if state is None:
        return set(), []
    inside = folder.resolve().relative_to(state.top).as_posix()
    prefix = "" if inside == "." else f"{inside}/"
    tracked, others = _below(state.tracked, prefix), _below(state.others, prefix)
    root = str(folder)  # Plain strings: a plan looks at tens of thousands of files.
    names = {name for name in (*tracked, *others) if os.path.isfile(f"{root}/{name}")}  # noqa: PTH113
    return names, others


def _below(names: list[str], prefix: str) -> list[str]:
    """Return those of sorted names that begin with a prefix, without it."""
    found = []
    for index in range(bisect_left(names, prefix), len(names)):
        if not names[index].startswith(prefix):
            break
        found.append(names[index][len(prefix) :])
    return [name for name in found if name]


def digest_of(folder: Path, names: list[str]) -> str:
    """Return `sha256:<hex>` over names (`/`-separated, sorted) and contents of files."""
    root, total = str(folder), hashlib.sha256()
    for name in sorted(names):
        with open(f"{root}/{name}", "rb") as file:  # noqa: PTH123
            content = hashlib.sha256(file.read()).digest()
        total.update(os.fsencode(name) + b"\0" + base64.b64encode(content) + b"\n")
    return f"sha256:{total.hexdigest()}"


def _walk(folder: Path) -> list[str]:
    return _walk_below(str(folder), "", _IGNORED | _RESULTS)


def _walk_below(folder: str, prefix: str, skipped: frozenset[str]) -> list[str]:
    """Return the files in a folder, each with the prefix."""
    found: list[str] = []
    # Plain strings: a plan walks the folders of thousands of kernels.
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in skipped and not _ignores_itself(entry.path):
                found += _walk_below(entry.path, f"{prefix}{entry.name}/", _IGNORED)
        elif not entry.name.endswith(".pyc") and os.path.isfile(entry.path):  # noqa: PTH113
            found.append(prefix + entry.name)
    return found


def _ignores_itself(folder: str) -> bool:
    """Tell whether a folder keeps all of itself out of git, as a run's results do."""
    try:
        with open(f"{folder}/.gitignore", "rb") as file:  # noqa: PTH123
            return file.read(3) == b"*\n"
    except OSError:
        return False


def _git(folder: Path, *arguments: str) -> str | None:
    """Return git's output, or None where git, a repository or what was asked for is missing."""
    # Optional locks off: a status must not write to a checkout that others read.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    environment = {k: v for k, v in os.environ.items() if k not in _HOOK_VARIABLES}
    environment["LC_ALL"] = "C"
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=environment)
    except OSError:
        return None
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    message = os.fsdecode(done.stderr).strip()
    if not message or "not a git repository" in message:
        return None
    # Going on without git would publish a kernel that does not say what it was made from.
    raise InputError(
        f"git cannot tell the state of the sources: {message}",
        where=folder,
        fix="do what git says, or move the kernel out of the repository",
    )
