"""The Hub's HTTP interface for repositories of type `kernel`, over a folder.

What is served is what `huggingface_hub` and `kernels` call to publish and to load; answers
carry the status codes, headers and messages that those clients act on (read from
huggingface_hub 2.4.0 and kernels 0.17.2). There is no Xet storage: publishers set
`HF_HUB_DISABLE_XET=1`.

Authentication is optional. With a token, writing needs it; anybody may read. A reader's
token may open pull requests and nothing else, as on the Hub.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import parse_qs, unquote

import uvicorn
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from kernel_ci.documents import describe
from kernel_ci.errors import InfrastructureError, InputError
from kernel_ci.hub.store import (
    LFS_SUFFIXES,
    MAIN,
    Add,
    Change,
    Delete,
    DeleteFolder,
    EntryNotFound,
    HubError,
    RepoNotFound,
    Revision,
    Store,
    StoredFile,
    lfs_pointer,
    valid_path,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LFS_THRESHOLD = 10 << 20
"""The Hub takes files of more than 10 MiB through LFS only."""

# A line of a commit holds a file below the threshold in base64, and so at most 14 MiB.
_LINE_LIMIT = 32 << 20
_BODY_LIMIT = 32 << 20
_WRITE_SIZE = 1 << 20
_USER = "local"

M = TypeVar("M", bound=BaseModel)
Level = Literal["read", "propose", "write"]
Handler = Callable[[Request], Awaitable[Response]]


class _Wire(BaseModel):
    """A value that a client sends; fields that this server has no use for are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Repo(_Wire):
    name: str
    organization: str | None = None
    type: str | None = None


class _Branch(_Wire):
    startingPoint: str = MAIN  # noqa: N815


class _Tag(_Wire):
    tag: str
    message: str = ""


class _Card(_Wire):
    content: str


class _Candidate(_Wire):
    path: str
    size: int
    sample: str = ""


class _Preupload(_Wire):
    files: list[_Candidate]
    gitIgnore: str | None = None  # noqa: N815


class _Object(_Wire):
    oid: str
    size: int


class _Batch(_Wire):
    operation: str
    objects: list[_Object]
    ref: dict[str, str] | None = None


class _Header(_Wire):
    summary: str
    description: str = ""
    parentCommit: str | None = None  # noqa: N815


class _File(_Wire):
    path: str
    content: str
    encoding: Literal["base64", "utf-8"] = "utf-8"


class _LfsFile(_Wire):
    path: str
    algo: Literal["sha256"] = "sha256"
    oid: str
    size: int | None = None


class _Deleted(_Wire):
    path: str


class _Line(_Wire):
    key: str
    value: dict[str, Any]


class _Unauthorized(HubError):
    status = 401


class _InvalidToken(_Unauthorized):
    pass


class _Forbidden(HubError):
    status = 403


class _TooLarge(HubError):
    status = 413


def upload_mode(path: str, size: int, sample: bytes) -> Literal["lfs", "regular"]:
    """Return how a file is transferred: through LFS if it is large or binary.

    Args:
        path: Path in the repository.
        size: Length of the file in bytes.
        sample: Its first bytes; git, too, takes a file with a NUL byte for binary.
    """
    large_or_binary = size > LFS_THRESHOLD or path.lower().endswith(LFS_SUFFIXES) or b"\0" in sample
    return "lfs" if large_or_binary else "regular"


def card_faults(card: str) -> tuple[list[str], list[str]]:
    """Return the errors and the warnings that a README's metadata gives."""
    import yaml

    block = re.match(r"\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", card, re.DOTALL)
    if block is None:
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        metadata = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        return [f"YAML metadata in README.md is invalid: {error}"], []
    if metadata is None:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(metadata, dict):
        return ["YAML metadata in README.md is not a mapping"], []
    return [], []


def create_app(
    store: Store, *, token: str | None = None, reader_token: str | None = None
) -> Starlette:
    """Return the ASGI application that serves a store.

    Args:
        store: What it serves.
        token: If set, writing needs this token.
        reader_token: A token that is valid, but may do no more than open pull requests.
    """
    hub = _Hub(store, token, reader_token)
    return Starlette(
        routes=hub.routes(),
        middleware=[Middleware(_EncodedPath)],
        exception_handlers={
            HubError: _refused,
            HTTPException: _no_page,
            ClientDisconnect: _gone,
            OSError: _disk_failed,
        },
    )


def serve(
    folder: Path, *, port: int = 0, host: str = "127.0.0.1", token: str | None = None
) -> None:
    """Serve a folder until interrupted; the address is printed once requests are taken.

    Args:
        folder: The Hub's folder; made if it does not exist.
        port: TCP port; 0 takes a free one.
        host: Address to listen on. Other machines can reach any but a loopback address.
        token: If set, writing needs this token.

    Raises:
        InputError: The folder is not a Hub, the address cannot be used, or other machines
            could write without a token.
    """
    if token is None and not _is_loopback(host):
        raise InputError(
            f"anybody who reaches {host} could replace kernels",
            where="--host",
            fix="set a token, or listen on 127.0.0.1",
        )
    app = create_app(Store(folder), token=token)
    with _listening(host, port) as (listener, url):
        # The backlog holds requests that come before uvicorn takes the first.
        print(
            f"Hub {folder} at {url}",
            f"  export HF_ENDPOINT={url} HF_HUB_DISABLE_XET=1",
            "lets huggingface_hub and kernels use it; Ctrl-C stops it.",
            sep="\n",
            flush=True,
        )
        try:
            _server(app).run(sockets=[listener])
        except KeyboardInterrupt:
            return


@contextmanager
def running(folder: Path, *, token: str | None = None) -> Iterator[str]:
    """Serve a folder on a free loopback port from a thread of this process.

    Args:
        folder: The Hub's folder; made if it does not exist.
        token: If set, writing needs this token.

    Yields:
        The URL, as `HF_ENDPOINT` and `HfApi(endpoint=...)` take it.

    Raises:
        InputError: The folder is not a Hub.
    """
    with running_app(create_app(Store(folder), token=token)) as url:
        yield url


@contextmanager
def running_app(app: ASGIApp) -> Iterator[str]:
    """Serve an ASGI application on a free loopback port from a thread; yields its URL."""
    with _listening("127.0.0.1", 0) as (listener, url):
        server = _server(app)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="hub", daemon=True
        )
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise InfrastructureError("the Hub did not start", fix="see the error above")
            time.sleep(0.005)
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def _server(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # Clients reuse idle connections. One that is closed just then fails their request.
            timeout_keep_alive=300,
            timeout_graceful_shutdown=2,
        )
    )


@contextmanager
def _listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}",
            fix="choose another port, or 0 for a free one",
        ) from None
    with listener:
        name = f"[{host}]" if ":" in host else host
        yield listener, f"http://{name}:{listener.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _EncodedPath:
    """Route by the path as it was sent: `%2F` in a revision does not part segments."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii")}
        await self.app(scope, receive, send)


def _error(status: int, message: str, code: str | None = None, **headers: str) -> JSONResponse:
    # Headers are Latin-1, and a line break in one would end it.
    line = " ".join(message.split()).encode("ascii", "backslashreplace").decode()
    given = {"X-Error-Message": line, **headers}
    if code:
        given["X-Error-Code"] = code
    return JSONResponse({"error": message}, status_code=status, headers=given)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HubError)
    headers = {}
    if isinstance(error, EntryNotFound) and error.commit:
        # Clients note for the commit that there is no such file, and do not ask again.
        headers["X-Repo-Commit"] = error.commit
    return _error(error.status, str(error), error.code, **headers)


async def _no_page(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code)


async def _gone(_: Request, __: Exception) -> Response:
    # Nobody reads this: the client closed the connection before the request was complete.
    return Response(status_code=400)


async def _disk_failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    return _error(500, f"The Hub's disk failed: {error.strerror}")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_LIMIT:
            raise _TooLarge("The request is too large")
    return bytes(body)


async def _json(request: Request, model: type[M]) -> M:
    body = await _body(request)
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise HubError(f"Invalid request: {describe(error)}") from None


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """Yield the lines of a body; no more than one and a chunk are in memory."""
    buffer = bytearray()
    async for chunk in request.stream():
        searched = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            yield bytes(buffer[:end])
            del buffer[: end + 1]
            searched = 0
        if len(buffer) > _LINE_LIMIT:
            raise _TooLarge("A file is too large for a commit: upload it with LFS")
    yield bytes(buffer)


def _value(model: type[M], value: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise HubError(f"Invalid commit: {describe(error)}") from None


def _parse_line(line: bytes) -> _Line:
    try:
        return _value(_Line, json.loads(line))
    except ValueError as error:
        raise HubError(f"Invalid commit: a line is not JSON: {error}") from None


def _content(file: _File) -> bytes:
    try:
        if file.encoding == "base64":
            return base64.b64decode(file.content, validate=True)
        return file.content.encode()
    except (binascii.Error, UnicodeEncodeError) as error:
        raise HubError(f"Invalid commit: content of {file.path}: {error}") from None


def _entry(path: str, file: StoredFile, last: Revision | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": file.oid, "size": file.size, "path": path}
    if file.lfs:
        pointer = len(lfs_pointer(file.sha256, file.size))
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": pointer}
    return _with_commit(entry, last)


def _with_commit(entry: dict[str, Any], last: Revision | None) -> dict[str, Any]:
    if last is not None:
        commit = last.commit
        entry["lastCommit"] = {"id": last.id, "title": commit.title, "date": commit.date}
    return entry


def _folder_entry(
    path: str, files: Mapping[str, StoredFile], last: Mapping[str, Revision] | None
) -> dict[str, Any]:
    inside = sorted(name for name in files if name.startswith(f"{path}/"))
    listing = "".join(f"{files[name].oid} {name}\n" for name in inside)
    oid = hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()
    newest = max((last[name] for name in inside), key=lambda r: r.commit.date) if last else None
    return _with_commit({"type": "directory", "oid": oid, "size": 0, "path": path}, newest)


def tree_entries(
    files: Mapping[str, StoredFile],
    folder: str,
    *,
    recursive: bool,
    last: Mapping[str, Revision] | None = None,
) -> list[dict[str, Any]]:
    """Return the entries of a folder as the Hub lists them, sorted by path.

    Args:
        files: All files of the commit, by path.
        folder: Path of the folder; empty for the whole repository.
        recursive: Whether to list what is in its folders too.
        last: For each file the commit that changed it last, to be told with each entry.

    Raises:
        EntryNotFound: There is no such folder.
    """
    prefix = f"{folder}/" if folder else ""
    inside = [path for path in files if path.startswith(prefix)]
    if folder and not inside:
        raise EntryNotFound(f"{folder} does not exist")
    paths: set[str] = set()
    for path in inside:
        parts = path.removeprefix(prefix).split("/")
        depth = len(parts) if recursive else 1
        paths.update(prefix + "/".join(parts[:count]) for count in range(1, depth + 1))
    return [
        _entry(path, files[path], last[path] if last else None)
        if path in files
        else _folder_entry(path, files, last)
        for path in sorted(paths)
    ]


class _Hub:
    """The handlers, one for each endpoint."""

    def __init__(self, store: Store, token: str | None, reader_token: str | None):
        self.store = store
        self.token = token
        self.reader_token = reader_token

    def routes(self) -> list[Route]:
        repo = "/api/kernels/{namespace}/{name}"
        git = "/kernels/{namespace}/{name}.git/info/lfs"
        return [
            self._route("GET", "/api/whoami-v2", self.whoami),
            self._route("GET", "/api/organizations/{namespace}/overview", self.organization),
            self._route("POST", "/api/validate-yaml", self.validate_card),
            self._route("POST", "/api/repos/create", self.create_repo, "write"),
            self._route("DELETE", "/api/repos/delete", self.delete_repo, "write"),
            self._route("GET", repo, self.info),
            self._route("GET", repo + "/revision/{revision}", self.info),
            self._route("GET", repo + "/refs", self.refs),
            self._route("GET", repo + "/commits/{revision}", self.commits),
            self._route("GET", repo + "/tree/{revision}", self.tree),
            self._route("GET", repo + "/tree/{revision}/{path:path}", self.tree),
            self._route("POST", repo + "/paths-info/{revision}", self.paths_info),
            self._route("GET", repo + "/discussions", self.discussions),
            self._route("POST", repo + "/branch/{ref}", self.create_branch, "write"),
            self._route("DELETE", repo + "/branch/{ref}", self.delete_branch, "write"),
            self._route("POST", repo + "/tag/{revision}", self.create_tag, "write"),
            self._route("DELETE", repo + "/tag/{ref}", self.delete_tag, "write"),
            self._route("POST", repo + "/preupload/{revision}", self.preupload, "propose"),
            self._route("POST", repo + "/commit/{revision}", self.commit, "propose"),
            self._route("GET", repo + "/xet-write-token/{revision}", self.no_xet),
            self._route("POST", git + "/objects/batch", self.lfs_batch, "propose"),
            self._route("POST", git + "/verify", self.lfs_verify, "propose"),
            # Signed instead: clients send no token to the address of an upload.
            self._route("PUT", git + "/objects/{oid}", self.lfs_upload),
            self._route(
                "GET",
                "/kernels/{namespace}/{name}/resolve/{revision}/{path:path}",
                self.resolve,
            ),
        ]

    def _route(self, method: str, path: str, handler: Handler, level: Level = "read") -> Route:
        async def endpoint(request: Request) -> Response:
            self._authorize(request, level)
            return await handler(request)

        return Route(path, endpoint, methods=[method])

    # -- who may do what ---------------------------------------------------------------

    def _authorize(self, request: Request, level: Level) -> None:
        """Refuse a request whose sender may not make it, in the Hub's words."""
        if request.method not in ("GET", "HEAD") and "origin" in request.headers:
            # Only browsers send it: a web page must not publish kernels to its reader's Hub.
            raise _Forbidden("Requests from web pages are refused")
        if self.token is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        writer = _same(given, self.token)
        reader = self.reader_token is not None and _same(given, self.reader_token)
        if given and not (writer or reader):
            raise _InvalidToken("Invalid credentials in Authorization header")
        if level != "read" and not given:
            raise _Unauthorized("Invalid username or password.")
        if level == "write" and not writer:
            raise _Forbidden("Forbidden: you must use a write token to upload to a repository.")

    def _signature(self, oid: str, size: int) -> str:
        """Return what permits to upload one content.

        It depends on nothing but the token, so that uploads outlive a restart.
        """
        return hmac.new(
            (self.token or "").encode(), f"{oid} {size}".encode(), hashlib.sha256
        ).hexdigest()

    # -- about the Hub -----------------------------------------------------------------

    async def whoami(self, request: Request) -> Response:
        if self.token is not None and "authorization" not in request.headers:
            raise _Unauthorized("Invalid username or password.")
        repos = await run_in_threadpool(self.store.repos)
        namespaces = sorted({repo.split("/")[0] for repo in repos})
        orgs = [{"type": "org", "name": name, "fullname": name} for name in namespaces]
        user = {"type": "user", "id": _USER, "name": _USER, "fullname": _USER, "orgs": orgs}
        return JSONResponse(user)

    async def organization(self, request: Request) -> Response:
        name = _param(request, "namespace")
        repos = await run_in_threadpool(self.store.repos)
        if name not in {repo.split("/")[0] for repo in repos}:
            return _error(404, "This organization does not exist")
        # Whoever uses a Hub of their own trusts what they put there.
        overview = {"name": name, "fullname": name, "trustedKernelPublisher": True}
        return JSONResponse(overview)

    async def validate_card(self, request: Request) -> Response:
        card = await _json(request, _Card)
        errors, warnings = card_faults(card.content)
        answer = {
            "errors": [{"message": message} for message in errors],
            "warnings": [{"message": message} for message in warnings],
        }
        return JSONResponse(answer, status_code=400 if errors else 200)

    async def no_xet(self, _: Request) -> Response:
        raise HubError("This Hub has no Xet storage: set HF_HUB_DISABLE_XET=1")

    # -- repositories ------------------------------------------------------------------

    async def create_repo(self, request: Request) -> Response:
        wanted = await _json(request, _Repo)
        repo = _repo_id(wanted)
        answer = {"url": f"{_base(request)}/kernels/{repo}", "name": repo, "id": repo}
        try:
            await run_in_threadpool(self.store.create, repo, _USER)
        except HubError as error:
            # With exist_ok, clients take the URL from the refusal.
            return JSONResponse({"error": str(error), **answer}, status_code=error.status)
        return JSONResponse(answer)

    async def delete_repo(self, request: Request) -> Response:
        wanted = await _json(request, _Repo)
        await run_in_threadpool(self.store.delete, _repo_id(wanted))
        return JSONResponse({})

    async def info(self, request: Request) -> Response:
        repo = _repo(request)
        name = _param(request, "revision") if "revision" in request.path_params else MAIN
        revision = await run_in_threadpool(self.store.resolve, repo, name)
        return JSONResponse(
            {
                "id": repo,
                "author": repo.split("/")[0],
                "sha": revision.id,
                "lastModified": revision.commit.date,
                "private": False,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
            }
        )

    # -- refs --------------------------------------------------------------------------

    async def refs(self, request: Request) -> Response:
        answer: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": []}
        kinds = {"heads": "branches", "tags": "tags"}
        if _flag(request, "include_prs"):
            answer["pullRequests"] = []
            kinds["pulls"] = "pullRequests"
        for named in await run_in_threadpool(self.store.refs, _repo(request)):
            if named.kind in kinds:
                entry = {
                    "name": named.name,
                    "ref": named.full_name,
                    "targetCommit": named.ref.commit,
                }
                answer[kinds[named.kind]].append(entry)
        return JSONResponse(answer)

    async def create_branch(self, request: Request) -> Response:
        wanted = await _json(request, _Branch)
        await run_in_threadpool(
            self.store.create_ref,
            _repo(request),
            "heads",
            _param(request, "ref"),
            wanted.startingPoint,
        )
        return JSONResponse({})

    async def delete_branch(self, request: Request) -> Response:
        await run_in_threadpool(
            self.store.delete_ref, _repo(request), "heads", _param(request, "ref")
        )
        return JSONResponse({})

    async def create_tag(self, request: Request) -> Response:
        wanted = await _json(request, _Tag)
        await run_in_threadpool(
            self.store.create_ref,
            _repo(request),
            "tags",
            wanted.tag,
            _param(request, "revision"),
            wanted.message,
        )
        return JSONResponse({})

    async def delete_tag(self, request: Request) -> Response:
        await run_in_threadpool(
            self.store.delete_ref, _repo(request), "tags", _param(request, "ref")
        )
        return JSONResponse({})

    async def discussions(self, request: Request) -> Response:
        """List pull requests; other discussions do not exist here."""
        repo = _repo(request)

        def listed() -> list[dict[str, Any]]:
            return [
                {
                    "num": int(named.name),
                    "title": named.ref.title,
                    "status": "open",
                    "isPullRequest": True,
                    "author": {"name": opened.author},
                    "createdAt": opened.date,
                    "repo": {"name": repo, "type": "kernel"},
                }
                for named in self.store.refs(repo)
                if named.kind == "pulls"
                for opened in [self.store.resolve(repo, named.full_name).commit]
            ]

        found = await run_in_threadpool(listed)
        return JSONResponse({"discussions": found, "count": len(found), "start": 0})

    # -- files -------------------------------------------------------------------------

    async def commits(self, request: Request) -> Response:
        repo = _repo(request)

        def listed() -> list[dict[str, Any]]:
            revision = self.store.resolve(repo, _param(request, "revision"))
            return [
                {
                    "id": each.id,
                    "title": each.commit.title,
                    "message": each.commit.message,
                    "authors": [{"user": each.commit.author}],
                    "date": each.commit.date,
                }
                for each in self.store.history(repo, revision)
            ]

        return JSONResponse(await run_in_threadpool(listed))

    async def tree(self, request: Request) -> Response:
        repo = _repo(request)
        folder = _param(request, "path").strip("/") if "path" in request.path_params else ""

        def listed() -> list[dict[str, Any]]:
            revision = self.store.resolve(repo, _param(request, "revision"))
            last = self.store.last_changes(repo, revision) if _flag(request, "expand") else None
            try:
                return tree_entries(
                    revision.commit.files,
                    folder,
                    recursive=_flag(request, "recursive"),
                    last=last,
                )
            except EntryNotFound as error:
                raise EntryNotFound(str(error), revision.id) from None

        return JSONResponse(await run_in_threadpool(listed))

    async def paths_info(self, request: Request) -> Response:
        body = await _body(request)
        if request.headers.get("content-type", "").startswith("application/json"):
            try:
                form = json.loads(body)
                paths, expand = list(map(str, form["paths"])), bool(form.get("expand"))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise HubError("Invalid request: expected paths and expand") from None
        else:
            fields = parse_qs(body.decode("utf-8", "replace"))
            paths = fields.get("paths", [])
            expand = fields.get("expand", ["false"])[-1].lower() in ("true", "1")
        repo = _repo(request)

        def listed() -> list[dict[str, Any]]:
            revision = self.store.resolve(repo, _param(request, "revision"))
            files = revision.commit.files
            last = self.store.last_changes(repo, revision) if expand else None
            return [
                _entry(path, files[path], last[path] if last else None)
                if path in files
                else _folder_entry(path, files, last)
                for path in dict.fromkeys(path.rstrip("/") for path in paths)
                if path in files or any(name.startswith(f"{path}/") for name in files)
            ]

        return JSONResponse(await run_in_threadpool(listed))

    async def resolve(self, request: Request) -> Response:
        path = _param(request, "path")

        def found() -> tuple[Revision, StoredFile, Path]:
            revision = self.store.resolve(_repo(request), _param(request, "revision"))
            file = revision.commit.files.get(path)
            if file is None:
                raise EntryNotFound("Entry not found", revision.id)
            return revision, file, self.store.content(file)

        revision, file, content = await run_in_threadpool(found)
        headers = {"X-Repo-Commit": revision.id, "ETag": f'"{file.oid}"'}
        if file.lfs:
            headers["ETag"] = headers["X-Linked-ETag"] = f'"{file.sha256}"'
            headers["X-Linked-Size"] = str(file.size)
        return FileResponse(
            content,
            headers=headers,
            media_type="application/octet-stream" if file.lfs else "text/plain; charset=utf-8",
            filename=path.rsplit("/", 1)[-1],
            content_disposition_type="inline",
        )

    # -- publishing --------------------------------------------------------------------

    async def preupload(self, request: Request) -> Response:
        wanted = await _json(request, _Preupload)
        self._require_writer_unless_proposed(request)

        def judged() -> list[dict[str, Any]]:
            revision = self.store.resolve(_repo(request), _param(request, "revision"))
            ignored = _ignored(wanted, self._gitignore(wanted, revision))
            return [_judged(file, revision, file.path in ignored) for file in wanted.files]

        return JSONResponse({"files": await run_in_threadpool(judged)})

    def _gitignore(self, wanted: _Preupload, revision: Revision) -> str:
        file = revision.commit.files.get(".gitignore")
        if wanted.gitIgnore is not None or file is None:
            return wanted.gitIgnore or ""
        return self.store.content(file).read_text("utf-8", "replace")

    async def lfs_batch(self, request: Request) -> Response:
        wanted = await _json(request, _Batch)
        if wanted.operation != "upload":
            raise HubError("Only uploads are served here: download with /resolve/")
        if wanted.ref is not None:
            # A client that opens a pull request names no ref.
            self._authorize(request, "write")
        repo = _repo(request)
        git = f"{_base(request)}/kernels/{repo}.git/info/lfs"

        def answer(wish: _Object) -> dict[str, Any]:
            entry: dict[str, Any] = {"oid": wish.oid, "size": wish.size}
            if not re.fullmatch(r"[0-9a-f]{64}", wish.oid) or wish.size < 0:
                return {**entry, "error": {"code": 422, "message": "Invalid oid or size"}}
            if self.store.blob(wish.oid, wish.size) is None:
                query = f"size={wish.size}&signature={self._signature(wish.oid, wish.size)}"
                entry["actions"] = {
                    "upload": {"href": f"{git}/objects/{wish.oid}?{query}"},
                    "verify": {"href": f"{git}/verify"},
                }
            return entry

        def answers() -> list[dict[str, Any]]:
            self.store.resolve(repo, MAIN)
            return [answer(wish) for wish in wanted.objects]

        objects = await run_in_threadpool(answers)
        return JSONResponse(
            {"transfer": "basic", "objects": objects},
            media_type="application/vnd.git-lfs+json",
        )

    async def lfs_upload(self, request: Request) -> Response:
        oid = _param(request, "oid")
        announced = request.query_params.get("size", "")
        size = int(announced) if re.fullmatch("[0-9]{1,18}", announced) else -1
        signature = request.query_params.get("signature", "")
        if not _same(signature, self._signature(oid, size)):
            raise _Forbidden("The upload was not permitted, or for another token: start again")
        upload = await run_in_threadpool(self.store.receive)
        try:
            buffer = bytearray()
            async for chunk in request.stream():
                buffer += chunk
                if upload.size + len(buffer) > size:
                    raise HubError(f"More than the {size} bytes that were announced")
                if len(buffer) >= _WRITE_SIZE:
                    await run_in_threadpool(upload.write, bytes(buffer))
                    buffer.clear()
            await run_in_threadpool(upload.write, bytes(buffer))
            if upload.size != size:
                raise HubError(f"{upload.size} bytes were received, expected {size}")
            await run_in_threadpool(upload.keep, oid)
        finally:
            upload.close()
        return Response(headers={"ETag": f'"{oid}"'})

    async def lfs_verify(self, request: Request) -> Response:
        wanted = await _json(request, _Object)
        if await run_in_threadpool(self.store.blob, wanted.oid, wanted.size) is None:
            return _error(404, f"LFS object {wanted.oid} was not uploaded")
        return JSONResponse({})

    async def commit(self, request: Request) -> Response:
        self._require_writer_unless_proposed(request)
        repo, branch = _repo(request), _param(request, "revision")
        # Refused before the files are received, where that is known already.
        await run_in_threadpool(self.store.resolve, repo, branch)
        header: _Header | None = None
        changes: list[Change] = []
        async for line in _lines(request):
            if not line.strip():
                continue
            if header is None:
                header = await run_in_threadpool(_commit_header, line)
            else:
                changes.append(await run_in_threadpool(self._change, line))
        if header is None:
            raise HubError("Invalid commit: the header is missing")
        arguments: dict[str, Any] = {
            "title": header.summary,
            "message": header.description,
            "author": _USER,
            "parent": header.parentCommit,
        }
        url = f"{_base(request)}/kernels/{repo}"
        answer: dict[str, Any] = {"success": True, "hookOutput": ""}
        if _flag(request, "create_pr"):
            number, identity = await run_in_threadpool(
                lambda: self.store.open_pull(repo, branch, changes, **arguments)
            )
            answer["pullRequestUrl"] = f"{url}/discussions/{number}"
        else:
            identity = await run_in_threadpool(
                lambda: self.store.commit(repo, branch, changes, **arguments)
            )
        answer |= {"commitOid": identity, "commitUrl": f"{url}/commit/{identity}"}
        return JSONResponse(answer)

    def _change(self, line: bytes) -> Change:
        """Return the change that a line of a commit asks for, its content stored."""
        parsed = _parse_line(line)
        match parsed.key:
            case "file":
                file = _value(_File, parsed.value)
                return Add(valid_path(file.path), self.store.put(_content(file)))
            case "lfsFile":
                lfs = _value(_LfsFile, parsed.value)
                return Add(valid_path(lfs.path), self.store.lfs_file(lfs.oid, lfs.size))
            case "deletedFile":
                return Delete(_value(_Deleted, parsed.value).path)
            case "deletedFolder":
                return DeleteFolder(_value(_Deleted, parsed.value).path)
        raise HubError(f"Invalid commit: unknown key {parsed.key!r}")

    def _require_writer_unless_proposed(self, request: Request) -> None:
        if not _flag(request, "create_pr"):
            self._authorize(request, "write")


def _commit_header(line: bytes) -> _Header:
    parsed = _parse_line(line)
    if parsed.key != "header":
        raise HubError("Invalid commit: the first line must be the header")
    return _value(_Header, parsed.value)


def _ignored(wanted: _Preupload, gitignore: str) -> set[str]:
    from pathspec import GitIgnoreSpec

    spec = GitIgnoreSpec.from_lines(gitignore.splitlines())
    return {file.path for file in wanted.files if spec.match_file(file.path)}


def _judged(file: _Candidate, revision: Revision, ignored: bool) -> dict[str, Any]:
    try:
        sample = base64.b64decode(file.sample, validate=True)
    except binascii.Error:
        raise HubError(f"Invalid request: the sample of {file.path} is not base64") from None
    answer: dict[str, Any] = {
        "path": file.path,
        "uploadMode": upload_mode(file.path, file.size, sample),
        "shouldIgnore": ignored,
    }
    if (present := revision.commit.files.get(file.path)) is not None:
        # What clients compare with the file they have, to leave out what is unchanged.
        answer["oid"] = present.sha256 if present.lfs else present.oid
    return answer


def _param(request: Request, name: str) -> str:
    return unquote(str(request.path_params[name]))


def _repo(request: Request) -> str:
    return f"{_param(request, 'namespace')}/{_param(request, 'name')}"


def _repo_id(wanted: _Repo) -> str:
    if wanted.type != "kernel":
        raise RepoNotFound("This Hub has repositories of type kernel only")
    return f"{wanted.organization or _USER}/{wanted.name}"


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("1", "true")


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
