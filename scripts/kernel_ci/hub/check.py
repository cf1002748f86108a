"""Verify the folder of a local Hub, and collect what crashes left behind."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from kernel_ci.documents import Document
from kernel_ci.errors import InputError
from kernel_ci.hub.store import MAIN, Commit, Ref, Store

D = TypeVar("D", bound=Document)

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        kind: `damage`: clients are, or can be, served something wrong or nothing.
            `leftover`: of no use to anyone, and harmless; a repair removes it.
        where: Path below the Hub's folder.
        what: What is wrong.
    """

    kind: Literal["damage", "leftover"]
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


@dataclass
class _Scan:
    """What the refs reach, and what is wrong on the way."""

    store: Store
    blobs: dict[str, int] = field(default_factory=dict)
    leftovers: dict[Path, str] = field(default_factory=dict)
    damage: list[Finding] = field(default_factory=list)

    def damaged(self, path: Path, what: str) -> None:
        self.damage.append(Finding("damage", str(path.relative_to(self.store.folder)), what))

    def repository(self, folder: Path) -> None:
        if not (folder / "heads" / f"{MAIN}.json").exists():
            self.damaged(folder, f"the repository has no branch {MAIN}")
        reached: set[str] = set()
        for kind in ("heads", "tags", "pulls"):
            for path in sorted((folder / kind).glob("*.json")):
                ref = self.document(Ref, path)
                if ref is not None:
                    self.commits(folder, ref.commit, path, reached)
        for path in (folder / "commits").glob("*.json"):
            if path.stem not in reached:
                self.leftovers[path] = "a commit that no ref reaches"

    def commits(self, folder: Path, identity: str, named_by: Path, reached: set[str]) -> None:
        current: str | None = identity
        while current is not None and current not in reached:
            reached.add(current)
            path = folder / "commits" / f"{current}.json"
            if not path.exists():
                self.damaged(named_by, f"names commit {current}, which is lost")
                return
            commit = self.document(Commit, path)
            if commit is None:
                return
            digest = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
            if digest != current:
                self.damaged(path, f"was changed: its digest is {digest}")
            for name, file in sorted(commit.files.items()):
                if file.sha256 not in self.blobs:
                    self.blobs[file.sha256] = file.size
                    if not (self.store.blobs / file.sha256).exists():
                        self.damaged(path, f"names blob {file.sha256} for {name}, which is lost")
                elif self.blobs[file.sha256] != file.size:
                    self.damaged(path, f"gives {name} another size than other commits do")
            named_by, current = path, commit.parent

    def document(self, model: type[D], path: Path) -> D | None:
        try:
            return model.parse(json.loads(path.read_bytes()), where=path.name)
        except InputError as error:
            self.damaged(path, error.what)
        except (ValueError, OSError) as error:
            self.damaged(path, f"cannot be read: {error}")
        return None


def check(folder: Path, *, repair: bool = False) -> list[Finding]:
    """Verify that whatever the refs of a Hub reach exists, with the right size and digest.

    Servers may go on using the folder: the state is read under the Hub's lock, and only
    the contents are read after it is released. With `repair`, a publisher whose upload was
    collected before it was committed is told so, and has to start again.

    Args:
        folder: The Hub's folder.
        repair: Remove leftovers. Damage stays, and while there is any in refs or commits,
            nothing is removed, as it could be needed to mend it.

    Returns:
        What was found, the removed leftovers included; damage first.

    Raises:
        InputError: The folder is not a Hub.
    """
    if not (folder / "hub.json").is_file():
        raise InputError("is not a Hub", where=folder, fix="name the folder that was served")
    store = Store(folder)
    scan = _Scan(store)
    with store.locked():
        for repository in sorted(path for path in store.kernels.iterdir() if path.is_dir()):
            scan.repository(repository)
        unneeded = [
            path
            for path in store.blobs.iterdir()
            # Some file managers put hidden files of their own into every folder.
            if path.name not in scan.blobs and not path.name.startswith(".")
        ]
        scan.leftovers.update(dict.fromkeys(unneeded, "a blob that no commit needs"))
        for path in store.tmp.iterdir():
            if not _in_use(path):
                scan.leftovers[path] = "an unfinished write"
        if repair and not scan.damage:
            for path in scan.leftovers:
                _remove(path)
    # Contents never change once they have their name, so no lock is needed for them.
    for blob in sorted([*scan.blobs, *(path.name for path in unneeded)]):
        path = store.blobs / blob
        try:
            fault = _content_fault(path, scan.blobs.get(blob))
        except FileNotFoundError:
            continue  # reported as lost, or removed as a leftover
        if fault:
            scan.damaged(path, fault)
    leftovers = [
        Finding("leftover", str(path.relative_to(store.folder)), what)
        for path, what in sorted(scan.leftovers.items())
    ]
    return scan.damage + leftovers


def _content_fault(path: Path, size: int | None) -> str | None:
    actual = path.stat().st_size
    if size is not None and actual != size:
        return f"has {actual} bytes, expected {size}"
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
    if sha256.hexdigest() != path.name:
        return f"was changed: its digest is {sha256.hexdigest()}"
    return None


def _in_use(path: Path) -> bool:
    """Return whether a living process is receiving this file (see `store.Upload`)."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):
        return True
    return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
