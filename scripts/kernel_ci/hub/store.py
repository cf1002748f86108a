"""The repositories of a local Hub, kept in a folder.

Layout; everything but the blobs is JSON that any editor shows::

    hub.json                        marks the folder as a Hub and names its format
    lock                            held with flock by whoever changes anything below `kernels/`
    blobs/<sha256>                  contents of files, shared by all repositories
    kernels/<namespace>--<name>/    a repository
        commits/<id>.json           parent, message, date, and size and digest of every file;
                                    the id is the SHA-1 of the JSON text
        heads/<branch>.json         the commit that a branch points to (names percent-encoded)
        tags/<tag>.json             the same for a tag
        pulls/<number>.json         the same for a pull request, with its title and base branch
    tmp/                            what is being received or built right now

Durability: a file gets its name only after its bytes are on the disk (write, fsync,
rename, fsync of the folder). Blobs are settled before the commit that names them is
written, and the commit before the ref that points to it. So whatever a ref reaches
exists, and a crash at any instant leaves the former state or the new one. What else it
leaves (blobs and commits that no ref reaches, files in `tmp/`) harms nothing;
`kernel_ci.hub.check` collects it.

Concurrency: any number of threads and processes may use one folder. Readers take no
lock, since they see each ref either before or after its rename. Writers of refs hold
`lock`, and compare the ref with the parent that they were given while they hold it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Literal, TypeVar
from urllib.parse import quote, unquote

from kernel_ci.documents import Document, Model
from kernel_ci.errors import InputError

RefKind = Literal["heads", "tags", "pulls"]
"""The kinds of refs, as their folders are called; clients see `refs/pr/` for `pulls`."""

MAIN = "main"

# Files with these endings go through LFS whatever their size. The Hub's default
# .gitattributes lists archives and model formats; kernels have libraries instead.
LFS_SUFFIXES = (
    ".a", ".bin", ".dll", ".dylib", ".gz", ".lib", ".npy", ".npz", ".o", ".pt", ".pyd",
    ".safetensors", ".so", ".tar", ".tgz", ".whl", ".xz", ".zip", ".zst",
)  # fmt: skip

# The first commit of a repository on the Hub holds this file and nothing else.
GITATTRIBUTES = "".join(
    f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES
)

_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ABBREVIATED = re.compile(r"[0-9a-f]{5,39}")
_REPO_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
# What git-check-ref-format(1) forbids in a ref's name.
_BAD_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[./-]|[./]$|^@$")


class HubError(Exception):
    """A request that the Hub refuses.

    Attributes:
        status: The HTTP status of the answer.
        code: The `X-Error-Code` that clients turn into an exception of their own.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str | None] = None


class RepoNotFound(HubError):
    """No such repository."""

    status, code = 404, "RepoNotFound"


class RevisionNotFound(HubError):
    """The repository has no such branch, tag, pull request or commit."""

    status, code = 404, "RevisionNotFound"


class EntryNotFound(HubError):
    """The revision, whose commit is `commit`, has no such file or folder."""

    status, code = 404, "EntryNotFound"

    def __init__(self, what: str, commit: str | None = None):
        super().__init__(what)
        self.commit = commit


class Conflict(HubError):
    """The repository, branch or tag exists already."""

    status = 409


class Stale(HubError):
    """The branch has moved on from the parent commit that the client named."""

    status = 412


class Damaged(HubError):
    """The folder lacks something that it must have."""

    status = 500


class StoredFile(Model):
    """A file of a commit.

    Attributes:
        sha256: Digest of the content, and so the name of its blob.
        size: Length of the content in bytes.
        oid: Git's id of the file: of the content, or with LFS of the pointer to it.
        lfs: Whether clients transfer the file through LFS.
    """

    sha256: str
    size: int
    oid: str
    lfs: bool


class Commit(Document):
    """A commit: all files of the repository at one time, by path, and how it came to be."""

    kind: str = "hub-commit"
    format: int = 1
    parent: str | None
    title: str
    message: str
    author: str
    date: str
    files: dict[str, StoredFile]


class Ref(Document):
    """What a branch, tag or pull request points to.

    Attributes:
        commit: The commit's id.
        title: Message of a tag, title of a pull request.
        base: The branch that a pull request is for.
    """

    kind: str = "hub-ref"
    format: int = 1
    commit: str
    title: str = ""
    base: str | None = None


class Marker(Document):
    """The content of `hub.json`."""

    kind: str = "hub"
    format: int = 1


@dataclass(frozen=True)
class Revision:
    """A commit together with its id."""

    id: str
    commit: Commit


@dataclass(frozen=True)
class NamedRef:
    """A ref together with its name."""

    kind: RefKind
    name: str
    ref: Ref

    @property
    def full_name(self) -> str:
        """Return the name as clients see it, such as `refs/heads/main`."""
        return f"refs/{'pr' if self.kind == 'pulls' else self.kind}/{self.name}"


@dataclass(frozen=True)
class Add:
    """Add a file, or replace it."""

    path: str
    file: StoredFile


@dataclass(frozen=True)
class Delete:
    """Delete a file."""

    path: str


@dataclass(frozen=True)
class DeleteFolder:
    """Delete a folder and all in it."""

    path: str


Change = Add | Delete | DeleteFolder

D = TypeVar("D", bound=Document)


def valid_path(path: str) -> str:
    """Return a repository path unchanged if every client can store it safely.

    Raises:
        HubError: It is absolute, leaves the repository, or has a part that git, Windows or
            a URL cannot hold.
    """
    parts = path.split("/")
    if (
        any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
        or any(
            ord(char) < 0x20 or char in "\\\x7f" or "\ud800" <= char <= "\udfff" for char in path
        )
        or re.match(r"[A-Za-z]:", path)
        or any(len(part.encode()) > 255 for part in parts)
    ):
        raise HubError(f"Invalid path in repository: {path!r}")
    return path


def valid_repo(repo: str) -> str:
    """Return a repository's id unchanged if it is `namespace/name` by the Hub's rules.

    Raises:
        HubError: It is not.
    """
    parts = repo.split("/")
    if (
        len(parts) != 2
        or not all(_REPO_PART.fullmatch(part) for part in parts)
        or "--" in repo
        or ".." in repo
        or repo.endswith(".git")
    ):
        raise HubError(f"Invalid repository id: {repo!r}")
    return repo


def valid_ref(name: str) -> str:
    """Return the name of a branch or tag unchanged if git takes it.

    Raises:
        HubError: It does not, or the name could be taken for a commit's id.
    """
    if (
        not name
        or _UNSTORABLE.search(name)
        or _BAD_REF.search(name)
        or _COMMIT.fullmatch(name)
        or name.startswith("refs/")
        or len(quote(name, safe="")) > 200
    ):
        raise HubError(f"Invalid reference name: {name!r}")
    return name


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Return the text that git keeps in place of an LFS file (git-lfs, docs/spec.md)."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
    ).encode()


def git_oid(content: bytes) -> str:
    """Return git's id of a blob with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def apply_changes(
    files: Mapping[str, StoredFile], changes: Iterable[Change]
) -> dict[str, StoredFile]:
    """Return the files of a commit after changes, which are made in the order given.

    Raises:
        EntryNotFound: A file or folder to delete does not exist.
        HubError: A path is invalid, or would be a file and a folder at once.
    """
    result = dict(files)
    for change in changes:
        match change:
            case Add(path, file):
                result[valid_path(path)] = file
            case Delete(path):
                if result.pop(path, None) is None:
                    raise EntryNotFound(f"A file with this name doesn't exist: {path}")
            case DeleteFolder(path):
                prefix = path.rstrip("/") + "/"
                inside = [name for name in result if name.startswith(prefix)]
                if not inside:
                    raise EntryNotFound(f"A folder with this name doesn't exist: {path}")
                for name in inside:
                    del result[name]
    for path in result:
        for position, char in enumerate(path):
            if char == "/" and path[:position] in result:
                raise HubError(f"Invalid path in repository: {path[:position]} is a file")
    return result


def sync_folder(folder: Path) -> None:
    """Make renames, creations and deletions in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _now() -> str:
    stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def _is_commit(identity: str, named: str) -> bool:
    """Return whether `named` is a commit's id or its first digits."""
    if not re.fullmatch(r"[0-9a-f]{5,40}", named):
        raise HubError(f"Invalid commit id: {named!r}")
    return identity.startswith(named)


def _encode(commit: Commit) -> tuple[str, bytes]:
    data = commit.to_json().encode()
    return hashlib.sha1(data, usedforsecurity=False).hexdigest(), data


class Upload:
    """A blob that is being received; it counts only once it is kept.

    The file in `tmp/` is locked with flock while the upload lives, which is how
    `kernel_ci.hub.check` tells it from one that a crash left behind.
    """

    def __init__(self, store: Store):
        self._path = store.tmp / f"{uuid.uuid4().hex}.blob"
        self._blobs = store.blobs
        self._hash = hashlib.sha256()
        self.size = 0
        # Under the lock, so that `check` never meets the file before it is locked itself.
        with store.locked():
            self._file = self._path.open("xb")
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, data: bytes) -> None:
        """Append to the content."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def keep(self, sha256: str | None = None) -> str:
        """Make the content a blob and return its SHA-256.

        A blob that exists already is replaced, which mends a damaged one.

        Raises:
            HubError: The content has another digest than `sha256`.
        """
        actual = self._hash.hexdigest()
        if sha256 not in (None, actual):
            raise HubError(f"The content's SHA-256 is {actual}, expected {sha256}")
        self._file.flush()
        os.fsync(self._file.fileno())
        # `Store` syncs the folder before it writes the commit that needs the blob.
        self._path.replace(self._blobs / actual)
        return actual

    def close(self) -> None:
        """End the upload; content that was not kept is deleted."""
        self._path.unlink(missing_ok=True)
        self._file.close()


class Store:
    """The repositories in a folder, which is made if it does not exist.

    Repositories are named by their id, `namespace/name`. Every method that takes one
    raises `RepoNotFound` where there is none; every method that takes a revision (branch,
    tag, full ref name, or commit id of at least five digits) raises `RevisionNotFound`.

    Raises:
        InputError: The folder holds something else, or another format of Hub.
    """

    def __init__(self, folder: Path):
        self.folder = folder.absolute()
        self.blobs = self.folder / "blobs"
        self.kernels = self.folder / "kernels"
        self.tmp = self.folder / "tmp"
        self._lock = self.folder / "lock"
        self._open()

    def _open(self) -> None:
        marker = self.folder / "hub.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not marker.exists():
                ours = {"hub.json", "lock", "blobs", "kernels", "tmp"}
                foreign = sorted({entry.name for entry in self.folder.iterdir()} - ours)
                if foreign:
                    raise InputError(
                        f"is not a Hub: it holds {foreign[0]!r}",
                        where=self.folder,
                        fix="name an empty folder, or one that does not exist yet",
                    )
            for folder in (self.blobs, self.kernels, self.tmp):
                folder.mkdir(exist_ok=True)
            with self.locked():
                if not marker.exists():
                    self._write(marker, Marker())
                    sync_folder(self.folder.parent)
        except OSError as error:
            raise InputError(
                f"cannot hold a Hub: {error.strerror}",
                where=error.filename or self.folder,
                fix="name a folder that you may write to",
            ) from None
        Marker.read(marker)

    # -- repositories ------------------------------------------------------------------

    def repos(self) -> list[str]:
        """Return the ids of all repositories, sorted."""
        return sorted(
            entry.name.replace("--", "/", 1)
            for entry in self.kernels.iterdir()
            if "--" in entry.name and entry.is_dir()
        )

    def create(self, repo: str, author: str) -> None:
        """Create a repository with the branch main and the first commit.

        Raises:
            Conflict: It exists already.
            HubError: Its id is invalid.
        """
        target = self._target(repo)
        attributes = self.put(GITATTRIBUTES.encode())
        first = Commit(
            parent=None,
            title="initial commit",
            message="",
            author=author,
            date=_now(),
            files={".gitattributes": attributes},
        )
        identity, data = _encode(first)
        with self.locked():
            if target.exists():
                raise Conflict("You already created this kernel repo")
            sync_folder(self.blobs)
            # The repository appears as a whole, when its folder gets its name.
            draft = self.tmp / f"{uuid.uuid4().hex}.new"
            for name in ("commits", "heads", "tags", "pulls"):
                (draft / name).mkdir(parents=True)
            _write_new(draft / "commits" / f"{identity}.json", data)
            _write_new(draft / "heads" / f"{MAIN}.json", Ref(commit=identity).to_json().encode())
            for folder in (draft / "commits", draft / "heads", draft):
                sync_folder(folder)
            draft.rename(target)
            sync_folder(self.kernels)

    def delete(self, repo: str) -> None:
        """Delete a repository; blobs that nothing needs any more stay until a repair."""
        with self.locked():
            folder = self._repo(repo)
            grave = self.tmp / f"{uuid.uuid4().hex}.old"
            folder.rename(grave)
            sync_folder(self.tmp)
            sync_folder(self.kernels)
            # Gone for clients already; what cannot be removed is a leftover.
            shutil.rmtree(grave, ignore_errors=True)

    # -- reading -----------------------------------------------------------------------

    def resolve(self, repo: str, revision: str) -> Revision:
        """Return the commit that a revision means."""
        folder = self._repo(repo)
        identity = self._named(folder, revision)
        if identity is None and _COMMIT.fullmatch(revision):
            identity = revision
        if identity is None and _ABBREVIATED.fullmatch(revision):
            found = list((folder / "commits").glob(f"{revision}*.json"))
            identity = found[0].stem if len(found) == 1 else None
        commit = self._commit(folder, identity) if identity else None
        if commit is None or identity is None:
            raise RevisionNotFound(f"Invalid rev id: {revision}")
        return Revision(identity, commit)

    def history(self, repo: str, revision: Revision) -> Iterator[Revision]:
        """Yield a commit and its ancestors, newest first."""
        folder = self._repo(repo)
        yield revision
        while (parent := revision.commit.parent) is not None:
            commit = self._commit(folder, parent)
            if commit is None:
                raise Damaged(f"{repo} lacks commit {parent}: run `kernel-ci hub check`")
            revision = Revision(parent, commit)
            yield revision

    def last_changes(self, repo: str, revision: Revision) -> dict[str, Revision]:
        """Return for each file of a commit the commit that gave it its present content."""
        result: dict[str, Revision] = {}
        missing = set(revision.commit.files)
        newer: Revision | None = None
        for older in self.history(repo, revision):
            if newer is not None:
                for path in list(missing):
                    if newer.commit.files[path] != older.commit.files.get(path):
                        result[path] = newer
                        missing.remove(path)
            newer = older
        if newer is not None:
            result.update(dict.fromkeys(missing, newer))
        return result

    def refs(self, repo: str) -> list[NamedRef]:
        """Return branches, tags and pull requests: each kind in turn, sorted by name."""
        folder = self._repo(repo)
        kinds: tuple[RefKind, ...] = ("heads", "tags", "pulls")
        return [
            NamedRef(kind, unquote(path.stem), ref)
            for kind in kinds
            for path in sorted((folder / kind).glob("*.json"))
            if (ref := self._read(Ref, path)) is not None
        ]

    def blob(self, sha256: str, size: int) -> Path | None:
        """Return the file with a content, or None if there is none of this size."""
        path = self.blobs / sha256
        if not _SHA256.fullmatch(sha256) or not path.is_file() or path.stat().st_size != size:
            return None
        return path

    def content(self, file: StoredFile) -> Path:
        """Return where the content of a commit's file is.

        Raises:
            Damaged: It is lost.
        """
        path = self.blob(file.sha256, file.size)
        if path is None:
            raise Damaged(f"blob {file.sha256} is lost: run `kernel-ci hub check`")
        return path

    # -- writing -----------------------------------------------------------------------

    def receive(self) -> Upload:
        """Begin to receive a blob; the caller closes the upload in any case."""
        return Upload(self)

    def put(self, content: bytes) -> StoredFile:
        """Store a content that is not transferred through LFS."""
        upload = self.receive()
        try:
            upload.write(content)
            sha256 = upload.keep()
        finally:
            upload.close()
        return StoredFile(sha256=sha256, size=len(content), oid=git_oid(content), lfs=False)

    def lfs_file(self, sha256: str, size: int | None) -> StoredFile:
        """Return an LFS file whose content was received before.

        Args:
            sha256: Digest of the content.
            size: Its length in bytes, or None to take that of the blob.

        Raises:
            HubError: The content was not received.
        """
        if size is None and _SHA256.fullmatch(sha256) and (self.blobs / sha256).is_file():
            size = (self.blobs / sha256).stat().st_size
        if size is None or self.blob(sha256, size) is None:
            raise HubError(f"LFS object {sha256} of {size} bytes was not uploaded")
        oid = git_oid(lfs_pointer(sha256, size))
        return StoredFile(sha256=sha256, size=size, oid=oid, lfs=True)

    def commit(
        self,
        repo: str,
        branch: str,
        changes: Iterable[Change],
        *,
        title: str,
        message: str = "",
        author: str,
        parent: str | None = None,
    ) -> str:
        """Make a commit on a branch, or on a pull request named `refs/pr/<number>`.

        Args:
            repo: The repository.
            branch: The branch; other revisions cannot be committed to.
            changes: Made in this order to the files of the branch.
            title: First line of the commit's message.
            message: The rest of it.
            author: Who made it.
            parent: The commit that the branch must point to, or its first digits.

        Returns:
            The commit's id.

        Raises:
            Stale: The branch does not point to `parent`.
            EntryNotFound: A file or folder to delete does not exist.
            HubError: A path is invalid, or a file's content was not received.
        """
        with self.locked():
            folder = self._repo(repo)
            path = self._branch(folder, branch)
            ref = self._read(Ref, path) if path else None
            if path is None or ref is None:
                raise RevisionNotFound(f"Invalid rev id: {branch}")
            if parent is not None and not _is_commit(ref.commit, parent):
                raise Stale("A commit has happened since. Please refresh and try again.")
            identity = self._write_commit(folder, ref.commit, changes, title, message, author)
            self._write(path, ref.model_copy(update={"commit": identity}))
        return identity

    def open_pull(
        self,
        repo: str,
        branch: str,
        changes: Iterable[Change],
        *,
        title: str,
        message: str = "",
        author: str,
        parent: str | None = None,
    ) -> tuple[int, str]:
        """Make a commit on a new pull request for a branch; arguments as for `commit`.

        With `parent` the pull request starts there, else at the branch's commit.

        Returns:
            The number of the pull request and the commit's id.
        """
        with self.locked():
            folder = self._repo(repo)
            path = self._branch(folder, branch)
            ref = self._read(Ref, path) if path else None
            if ref is None:
                raise RevisionNotFound(f"Invalid rev id: {branch}")
            start = ref.commit if parent is None else self.resolve(repo, parent).id
            identity = self._write_commit(folder, start, changes, title, message, author)
            taken = [int(path.stem) for path in (folder / "pulls").glob("*.json")]
            number = max(taken, default=0) + 1
            pull = Ref(commit=identity, title=title, base=branch)
            self._write(folder / "pulls" / f"{number}.json", pull)
        return number, identity

    def create_ref(
        self, repo: str, kind: Literal["heads", "tags"], name: str, revision: str, title: str = ""
    ) -> None:
        """Create a branch or a tag at a revision.

        Raises:
            Conflict: It exists already.
            HubError: The name is invalid.
        """
        valid_ref(name)
        with self.locked():
            path = self._ref(self._repo(repo), kind, name)
            if path.exists():
                raise Conflict(f"Reference already exists: {name}")
            self._write(path, Ref(commit=self.resolve(repo, revision).id, title=title))

    def delete_ref(self, repo: str, kind: Literal["heads", "tags"], name: str) -> None:
        """Delete a branch or a tag.

        Raises:
            HubError: It is the main branch.
        """
        if (kind, name) == ("heads", MAIN):
            raise HubError("The main branch cannot be deleted")
        with self.locked():
            path = self._ref(self._repo(repo), kind, name)
            if not path.exists():
                raise RevisionNotFound(f"Invalid rev id: {name}")
            path.unlink()
            sync_folder(path.parent)

    # -- on disk -----------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the Hub's lock against all threads and processes; it does not nest."""
        with self._lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, path: Path, document: Document) -> None:
        """Write a document durably and in one step; the caller holds the lock."""
        self._write_bytes(path, document.to_json().encode())

    def _write_bytes(self, path: Path, data: bytes) -> None:
        draft = self.tmp / f"{uuid.uuid4().hex}.json"
        _write_new(draft, data)
        draft.replace(path)
        sync_folder(path.parent)

    def _write_commit(
        self,
        folder: Path,
        parent: str,
        changes: Iterable[Change],
        title: str,
        message: str,
        author: str,
    ) -> str:
        base = self._commit(folder, parent)
        if base is None:
            raise Damaged(f"{folder.name} lacks commit {parent}: run `kernel-ci hub check`")
        changes = list(changes)
        commit = Commit(
            parent=parent,
            title=title,
            message=message,
            author=author,
            date=_now(),
            files=apply_changes(base.files, changes),
        )
        for change in changes:
            # Looked for again under the lock: a repair may have collected it meanwhile.
            if isinstance(change, Add) and self.blob(change.file.sha256, change.file.size) is None:
                raise HubError(f"The content of {change.path} was not uploaded")
        sync_folder(self.blobs)
        identity, data = _encode(commit)
        self._write_bytes(folder / "commits" / f"{identity}.json", data)
        return identity

    def _read(self, model: type[D], path: Path) -> D | None:
        """Return a document, or None if there is none.

        Raises:
            Damaged: The file is not such a document.
        """
        try:
            return model.parse(json.loads(path.read_bytes()), where=str(path))
        except FileNotFoundError:
            return None
        except (InputError, ValueError) as error:
            raise Damaged(f"{path}: {error}: run `kernel-ci hub check`") from None

    def _commit(self, folder: Path, identity: str) -> Commit | None:
        return self._read(Commit, folder / "commits" / f"{identity}.json")

    def _target(self, repo: str) -> Path:
        return self.kernels / valid_repo(repo).replace("/", "--")

    def _repo(self, repo: str) -> Path:
        try:
            folder = self._target(repo)
        except HubError:
            raise RepoNotFound("Repository not found") from None
        if not folder.is_dir():
            raise RepoNotFound("Repository not found")
        return folder

    def _ref(self, folder: Path, kind: RefKind, name: str) -> Path:
        return folder / kind / f"{quote(name, safe='')}.json"

    def _branch(self, folder: Path, name: str) -> Path | None:
        """Return the file of a ref that can be committed to, or None if it is not one."""
        if name.startswith("refs/pr/"):
            number = name.removeprefix("refs/pr/")
            return self._ref(folder, "pulls", number) if number.isdecimal() else None
        try:
            return self._ref(folder, "heads", valid_ref(name.removeprefix("refs/heads/")))
        except HubError:
            return None

    def _named(self, folder: Path, revision: str) -> str | None:
        """Return the commit of a branch, tag or pull request, or None if it is none of them."""
        paths = [self._branch(folder, revision)]
        with suppress(HubError):
            paths.append(self._ref(folder, "tags", valid_ref(revision.removeprefix("refs/tags/"))))
        for path in paths:
            ref = self._read(Ref, path) if path else None
            if ref is not None:
                return ref.commit
        return None
