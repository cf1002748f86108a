"""What a kernel was built from: git state, and a digest of its files."""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
import subprocess
from collections.abc import Sequence
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
    """Return the state of the sources in a kernel's folder.

    A folder that git ignores is treated as one outside git: no commit says what is in it.

    Args:
        folder: The kernel's folder.
        compiled: Files that its `build.toml` names, relative to the folder. One that git
            ignores is part of the digest all the same, and makes the state dirty.

    Raises:
        InputError: git refuses to look at the repository, for instance as it is another user's.
    """
    names = _files(folder)
    named = {posixpath.normpath(name) for name in compiled}
    if not names:
        return Source(digest=digest_of(folder, files(folder, compiled)))
    ignored = named - set(names)
    digest = digest_of(folder, [*names, *ignored])
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    tree = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{tree}")
    if commit is None or tree is None:
        return Source(digest=digest)
    tracked = _git(folder, "status", "--porcelain", "--untracked-files=no")
    untracked = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    return Source(
        digest=digest,
        commit=commit.strip(),
        tree=tree.strip(),
        dirty=bool(tracked or untracked or ignored),
    )


def files(folder: Path, compiled: Sequence[str] = ()) -> list[str]:
    """Return the files that are a kernel's sources, relative to its folder (see `inspect`)."""
    named = {posixpath.normpath(name) for name in compiled}
    return sorted({*(_files(folder) or _walk(folder)), *named})


def committed_at(folder: Path) -> int | None:
    """Return when HEAD was committed, in seconds since 1970 (UTC); None outside git."""
    time = _git(folder, "show", "--no-patch", "--format=%ct", "HEAD")
    return int(time) if time else None


def digest_of(folder: Path, names: list[str]) -> str:
    """Return `sha256:<hex>` over names (`/`-separated, sorted) and contents of files."""
    total = hashlib.sha256()
    for name in sorted(names):
        content = hashlib.sha256((folder / name).read_bytes()).digest()
        total.update(os.fsencode(name) + b"\0" + base64.b64encode(content) + b"\n")
    return f"sha256:{total.hexdigest()}"


def _files(folder: Path) -> list[str]:
    """Return the files in a folder that git knows or would take, those of submodules too."""
    tracked = _git(folder, "ls-files", "-z", "--cached", "--recurse-submodules", "--", ".")
    others = _git(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", ".")
    names = {name for listed in (tracked, others) for name in (listed or "").split("\0") if name}
    return sorted(name for name in names if (folder / name).is_file())


def _walk(folder: Path) -> list[str]:
    found = []
    for path, folders, names in os.walk(folder):
        skipped = _IGNORED | _RESULTS if Path(path) == folder else _IGNORED
        folders[:] = [
            name
            for name in folders
            if name not in skipped and not _ignores_itself(Path(path) / name)
        ]
        files = [Path(path) / name for name in names if not name.endswith(".pyc")]
        found += [file.relative_to(folder).as_posix() for file in files if file.is_file()]
    return found


def _ignores_itself(folder: Path) -> bool:
    """Tell whether a folder keeps all of itself out of git, as a run's results do."""
    try:
        return (folder / ".gitignore").read_bytes() == b"*\n"
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
