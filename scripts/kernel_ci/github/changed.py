"""Which kernels a change touches.

A path in a kernel's folder touches that kernel, a path that is known to be harmless touches
none, and any other path may be part of anything, so it touches all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from kernel_ci.github.known import known


def harmless_paths() -> tuple[str, ...]:
    """Return the globs of paths that no kernel is built from."""
    return tuple(known()["harmless-paths"])


def touched(
    paths: Iterable[str], folders: Sequence[str], others: Sequence[str], harmless: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """Return the folders of kernels that a change touches, and why.

    Args:
        paths: What has changed, relative to the repository.
        folders: The kernels in question, relative to the repository; `.` is its root.
        others: Further kernels of the repository, which are not in question.
        harmless: Globs of paths that no kernel is built from.
    """
    found: set[str] = set()
    for path in paths:
        inside = [folder for folder in folders if _contains(folder, path)]
        if inside:
            # The innermost folder, should one kernel lie in another's.
            found.add(max(inside, key=lambda folder: len(PurePosixPath(folder).parts)))
        elif not any(_contains(folder, path) for folder in others) and not _is_harmless(
            path, harmless
        ):
            return tuple(folders), f"all kernels: {path} may be part of any"
    left = tuple(folder for folder in folders if folder in found)
    return left, f"kernels touched: {', '.join(left) or 'none'}"


def _contains(folder: str, path: str) -> bool:
    return folder == "." or PurePosixPath(path).is_relative_to(folder)


def _is_harmless(path: str, harmless: Sequence[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in harmless)


def only_touched(folders: Sequence[Path], base: str | None) -> tuple[list[Path], str]:
    """Return those kernels of the current folder that changed since a commit, and why.

    All are returned where git cannot tell: no base, a base that is not in the history (a
    forced push, a shallow clone), or a kernel outside the repository.
    """
    every = list(folders)
    root = _git("rev-parse", "--show-toplevel")
    # An empty base would stand for HEAD, and so for "nothing changed".
    if not base or root is None:
        return every, "all kernels: there is nothing to compare with"
    top = Path(root.strip()).resolve()
    # Three dots: what this side changed since the common ancestor, not what the base did.
    options = ("--name-only", "--no-renames", "-z", "--end-of-options")
    diff = _git("diff", *options, f"{base}...HEAD", "--")
    if diff is None:
        return every, f"all kernels: the history does not lead back to {base}"
    names = {}
    for folder in every:
        resolved = folder.resolve()
        if not resolved.is_relative_to(top):
            return every, f"all kernels: {folder} is outside the repository"
        names[resolved.relative_to(top).as_posix()] = folder
    listed = _git("-C", str(top), "ls-files", "-z", "--", "*build.toml") or ""
    others = [
        PurePosixPath(name).parent.as_posix()
        for name in listed.split("\0")
        if PurePosixPath(name).name == "build.toml"
    ]
    others = [name for name in others if name not in names and name != "."]
    paths = [path for path in diff.split("\0") if path]
    left, reason = touched(paths, list(names), others, harmless_paths())
    return [names[name] for name in left], reason


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
