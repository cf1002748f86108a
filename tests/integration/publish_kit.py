"""What tests of publishing share: runs made by hand, a Hub that misbehaves, a client's view.

A run here has everything that publishing reads, in the real formats, but nothing in it was
compiled for a kernel: its libraries are one tiny ELF library with bytes added at the end.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore2
import kernels_data
import pytest
from huggingface_hub import HfApi, RepoFile
from huggingface_hub.utils import _detect_agent, _http
from rich.console import Console

from kernel_ci.build import package
from kernel_ci.errors import KernelCIError
from kernel_ci.gate import FILE as VERDICT
from kernel_ci.gate import CellVerdict, Verdict
from kernel_ci.hub.server import create_app, running_app
from kernel_ci.hub.store import Store
from kernel_ci.kernel import Kernel
from kernel_ci.plan import FILE as PLAN
from kernel_ci.plan import Cell, Plan, PlannedKernel
from kernel_ci.publish import Options, Published, publish
from kernel_ci.publish.release import FILE as MANIFEST
from kernel_ci.publish.target import connect
from kernel_ci.publish.transport import Retry
from kernel_ci.receipts import Machine
from kernel_ci.source import inspect
from kernel_ci.variant import Variant

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REPO = "acme/negate"
TOKEN = "hf_ThisIsTheSecretOfThePublisher"

#: Does not pause between attempts.
FAST = Retry(attempts=3, first=0, longest=0, timeout=20, sleep=lambda seconds: None)

#: Does not wait long for an answer either; more attempts, as a busy machine is slow.
IMPATIENT = replace(FAST, attempts=5, timeout=0.7)

VARIANTS = ("tvm-ffi01-cpu-x86_64-linux", "tvm-ffi01-cpu-aarch64-linux")

BUILD_TOML = """
[general]
name = "negate"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "{repo}"

[tvm-ffi]
src = ["negate.cc"]

[kernel.negate]
backend = "cpu"
depends = []
src = ["negate.cc"]
"""


_ssl_context = functools.cache(httpcore2.default_ssl_context)


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Be the publisher whose token is TOKEN, and leave out what here only costs time.

    A killed process loses nothing that it has written, so that nobody need wait for the disk.
    huggingface_hub pauses between the attempts of an upload, and asks for a list of agents.
    Each client reads the roots of TLS, which no local Hub needs.
    """
    patch.setenv("HF_TOKEN", TOKEN)
    patch.setattr(os, "fsync", lambda descriptor: None)
    patch.setattr(_http, "time", types.SimpleNamespace(sleep=lambda seconds: None))
    patch.setattr(_detect_agent, "_registry", {"standardEnvVars": [], "harnesses": {}})
    patch.setattr(httpcore2, "default_ssl_context", _ssl_context)


@functools.cache
def library(functions: tuple[str, ...] = ("negate",)) -> bytes:
    """Return a tiny ELF library that exports tvm-ffi functions; nothing ever loads it."""
    source = "".join(f"int __tvm_ffi_{name}(void) {{ return 0; }}\n" for name in functions)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.c").write_text(source)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28"]
        command += ["-shared", "-nostdlib", "-s", "-o", "x.so", "x.c"]
        subprocess.run(command, cwd=folder, check=True)
        return (Path(folder) / "x.so").read_bytes()


@dataclass(frozen=True)
class Wanted:
    """What a run is made of.

    Attributes:
        text: Differs between builds from different sources.
        variants: Names of the variants.
        public: `__all__` of the kernel.
        functions: What its library exports.
        version: Its major version.
        changed: Text that replaces `text` in single variants.
        size: Bytes of each library; 0 for as few as possible.
        card: The kernel's own card template.
        benchmark: Whether it has one.
        helper: Whether its package has a second module.
        excluded: Further variants that the caller left out.
        repo: Its repository, None for none.
    """

    text: str = "first"
    variants: Sequence[str] = VARIANTS
    public: Sequence[str] | None = ("negate",)
    functions: tuple[str, ...] = ("negate",)
    version: int = 1
    changed: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    card: str | None = None
    benchmark: bool = True
    helper: bool = True
    excluded: Sequence[str] = ()
    repo: str | None = REPO


def make_run(folder: Path, wanted: Wanted | None = None, **more: Any) -> Path:
    """Write a run that the gate has accepted, and return its folder."""
    wanted = replace(wanted or Wanted(), **more)
    kernel = _kernel(folder / "kernel", wanted)
    run = folder / "run"
    planned = PlannedKernel(
        name="negate",
        path=str(kernel.path),
        version=wanted.version,
        license="Apache-2.0",
        repo_id=wanted.repo,
        branch=kernel.branch,
        source=inspect(kernel.path),
    )
    cells = tuple(_cell(name) for name in sorted(wanted.variants))
    plan = Plan(
        id="",
        run="local-test",
        kernel_ci="0",
        kernels=(planned,),
        cells=cells,
        excluded=tuple(
            {"id": f"negate/{name}", "by": "caller", "reason": "--only"} for name in wanted.excluded
        ),
    )
    plan = plan.model_copy(update={"id": plan.computed_id()})
    plan.write(run / PLAN)
    verdicts = []
    for cell in cells:
        directory = run / "negate" / "build" / cell.variant
        _variant(directory, cell, wanted)
        verdicts.append(
            CellVerdict(
                id=cell.id,
                proved=True,
                evidence="tested",
                declared=None,
                reasons=(),
                digest=package.digest(directory),
                bytes=package.size(directory),
                seconds={},
                counts=None,
                machine=Machine(platform=cell.platform, system="Linux", python="3.11"),
            )
        )
    Verdict(plan=plan.id, run=plan.run, accepted=True, cells=tuple(verdicts)).write(run / VERDICT)
    return run


def _kernel(folder: Path, wanted: Wanted) -> Kernel:
    text = BUILD_TOML.format(version=wanted.version, repo=wanted.repo)
    if wanted.repo is None:
        text = text.replace('[general.hub]\nrepo-id = "None"', "")
    contents = {
        "build.toml": text,
        "negate.cc": f"// {wanted.text}\n",
        "tvm-ffi-ext/negate/__init__.py": "",
    }
    if wanted.card is not None:
        contents["CARD.md"] = wanted.card
    if wanted.benchmark:
        contents["benchmarks/benchmark.py"] = f"# {wanted.text}\n"
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return Kernel.read(folder)


def _cell(variant: str) -> Cell:
    parsed = Variant.parse(variant)
    return Cell(
        id=f"negate/{variant}",
        kernel="negate",
        variant=variant,
        backend=parsed.backend,
        backend_version=parsed.backend_version,
        platform=parsed.platform,
        tvm_ffi="0.1.9",
        toolchain="zig",
        archs=(),
        build_runner=("any",),
        test_runner=("any",),
        evidence="tested",
        reason=None,
    )


def _variant(directory: Path, cell: Cell, wanted: Wanted) -> None:
    text = wanted.changed.get(cell.variant, wanted.text)
    name = f"_negate_{cell.backend}_{text}"
    directory.mkdir(parents=True)
    names = "" if wanted.public is None else f"__all__ = {list(wanted.public)!r}\n"
    (directory / "__init__.py").write_text(f"# {text}\n{names}")
    if wanted.helper:
        (directory / "_ops.py").write_text(f"# {text}\n")
    with (directory / f"{name}.so").open("wb") as file:
        file.write(library(wanted.functions))
        file.write(f"{text} {cell.variant}".encode())
        if wanted.size:
            file.truncate(max(wanted.size, file.tell()))  # sparse: takes no space here
    metadata = {
        "name": "negate",
        "id": name,
        "version": wanted.version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": cell.backend},
        "kernel-ci": {"tvm-ffi": {"built-with": "0.1.9", "floor": "0.1.0", "verified": []}},
        "digest": {"algorithm": "sha256", "files": package.hashes(directory)},
    }
    (directory / package.METADATA).write_text(json.dumps(metadata, indent=2) + "\n")


# -- the Hub, and what can go wrong with it --------------------------------------------

Fault = Callable[["ASGIApp", "Scope", "Receive", "Send"], Awaitable[None]]


class Between:
    """Stands between clients and a Hub: counts requests, and lets single ones go wrong.

    Attributes:
        app: The Hub; may be replaced.
        log: The requests so far, as `METHOD path?query`.
        fault: Given a request's number and its line in the log, returns what happens to it,
            or None for nothing.
    """

    def __init__(self, app: ASGIApp):
        self.app = app
        self.log: list[str] = []
        self.fault: Callable[[int, str], Fault | None] = lambda number, line: None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] + (
            f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
        )
        undelayed(send)
        with self._lock:
            number, line = len(self.log), f"{scope['method']} {path}"
            self.log.append(line)
            fault = self.fault(number, line)
        await (fault(self.app, scope, receive, send) if fault else self.app(scope, receive, send))

    def serve(self, folder: Path, **tokens: str) -> None:
        """Serve another folder from now on, with an empty log and no faults."""
        self.app = create_app(Store(folder), **tokens)
        self.log, self.fault = [], lambda number, line: None

    @property
    def writes(self) -> list[str]:
        """The requests that could change something."""
        return [line for line in self.log if not line.startswith(("GET ", "HEAD "))]


@contextmanager
def hub(folder: Path, **tokens: str) -> Iterator[tuple[Between, str]]:
    """Serve a local Hub's folder from a thread; yields what stands before it, and its URL."""
    between = Between(create_app(Store(folder), **tokens))
    with running_app(between) as url:
        yield between, url


def _transport(send: Send) -> asyncio.Transport:
    """Return the connection behind an ASGI `send` of uvicorn."""
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]
    return transport


def undelayed(send: Send) -> None:
    """Let both halves of an answer go at once; else the second waits 40 ms for the client."""
    connection = _transport(send).get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _handled(app: ASGIApp, scope: Scope, receive: Receive) -> list[Message]:
    """Let the Hub handle a request, and keep its answer."""
    answer: list[Message] = []

    async def keep(message: Message) -> None:
        answer.append(message)

    await app(scope, receive, keep)
    return answer


def answers(
    status: int, *, handled: bool = True, headers: Mapping[str, str] | None = None
) -> Fault:
    """The Hub answers with a status; the request was `handled` all the same, or not."""

    async def fault(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        # A Hub, or a proxy before it, that repeats what it was sent.
        sent = dict(scope["headers"]).get(b"authorization", b"").decode()
        if handled:
            await _handled(app, scope, receive)
        body = json.dumps({"error": f"planted {status} for {sent}"}).encode()
        given = {"content-type": "application/json", "content-length": str(len(body))}
        given |= headers or {}
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(k.encode(), v.encode()) for k, v in given.items()],
            }
        )
        await send({"type": "http.response.body", "body": body})

    return fault


async def reset(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """The request is handled, and the connection reset in place of an answer."""
    await _handled(app, scope, receive)
    transport = _transport(send)
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def silence(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """The request is handled, and not answered while the client waits."""
    await _handled(app, scope, receive)
    await asyncio.sleep(IMPATIENT.timeout + 0.2)
    _transport(send).abort()


def cut(*, framed: bool) -> Fault:
    """The body is cut in its middle; `framed` pretends that this was all of it."""

    async def fault(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        start, *parts = await _handled(app, scope, receive)
        body = b"".join(part.get("body", b"") for part in parts)
        headers = [(k, v) for k, v in start["headers"] if k.lower() != b"content-length"]
        half = body[: len(body) // 2]
        headers.append((b"content-length", str(len(half if framed else body)).encode()))
        await send({**start, "headers": headers})
        if framed or not body:
            await send({"type": "http.response.body", "body": half})
            return
        await send({"type": "http.response.body", "body": half, "more_body": True})
        _transport(send).close()

    return fault


def kills(pid: Callable[[], int], *, handled: bool) -> Fault:
    """The publisher is killed: before the request is handled, or before it is answered."""

    async def fault(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if handled:
            await _handled(app, scope, receive)
        os.kill(pid(), signal.SIGKILL)
        _transport(send).abort()

    return fault


# -- publishing, and looking at the result ---------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How publishing ended.

    Attributes:
        status: The exit code.
        text: What was printed, the error included.
        published: What became of the kernel, None after an error.
    """

    status: int
    text: str
    published: Published | None


def publish_here(run: Path, url: str, *, real: bool = False, **options: Any) -> Outcome:
    """Publish from this process, as the command does; `real` takes it for the real Hub."""
    output = io.StringIO()
    console = Console(file=output, width=160)
    dry_run = options.pop("dry_run", False)
    options = {"retry": FAST, **options}
    try:
        with connect(url) as target:
            if real:
                target = replace(target, token=None, local=False)
            (done,) = publish(
                run, target, dry_run=dry_run, options=Options(**options), console=console
            )
    except KernelCIError as error:
        print(f"{error.label}: {error}", file=output)
        return Outcome(error.exit_code, output.getvalue(), None)
    return Outcome(0, output.getvalue(), done)


@dataclass(frozen=True)
class View:
    """What clients see of a repository.

    Attributes:
        files: Path -> id of each file on the version's branch that belongs to a release, None
            without that branch.
        card: Id of the card on main.
        tags: Names of the tags.
        branches: Names of the branches.
    """

    files: dict[str, str] | None
    card: str | None
    tags: frozenset[str]
    branches: frozenset[str]


def look(url: str, repo: str = REPO, branch: str = "v1") -> View:
    """Return what clients see."""
    from huggingface_hub.errors import RepositoryNotFoundError

    api = HfApi(endpoint=url, token=TOKEN)
    try:
        refs = api.list_repo_refs(repo, repo_type="kernel")
    except RepositoryNotFoundError:
        return View(None, None, frozenset(), frozenset())
    heads = {ref.name: ref.target_commit for ref in refs.branches}

    def ids(commit: str) -> dict[str, str]:
        listed = api.list_repo_tree(repo, repo_type="kernel", revision=commit, recursive=True)
        return {
            entry.path: (entry.lfs.sha256 if entry.lfs else entry.blob_id)
            for entry in listed
            if isinstance(entry, RepoFile)
        }

    files = ids(heads[branch]) if branch in heads else None
    if files is not None:
        files = {
            path: oid
            for path, oid in files.items()
            if path == MANIFEST or path.startswith(("build/", "benchmarks/"))
        }
    return View(
        files=files,
        card=ids(heads["main"]).get("README.md"),
        tags=frozenset(ref.name for ref in refs.tags),
        branches=frozenset(heads),
    )


def download(url: str, folder: Path, repo: str = REPO, branch: str = "v1") -> dict[str, bytes]:
    """Download a version as the `kernels` client does, check each variant, and return it."""
    root = Path(
        HfApi(endpoint=url, token=TOKEN).snapshot_download(
            repo, repo_type="kernel", revision=branch, cache_dir=folder
        )
    )
    for variant in (root / "build").iterdir():
        metadata = kernels_data.Metadata.read_from_file(variant / package.METADATA)
        assert metadata.digest is not None
        metadata.digest.validate(
            kernels_data.Digest.hash_variant(metadata.digest.algorithm, variant)
        )
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    contents = {
        name: path.read_bytes()
        for name, path in found.items()
        if name == MANIFEST or name.startswith(("build/", "benchmarks/"))
    }
    shutil.rmtree(folder)
    return contents


def client_environment(url: str, folder: Path) -> dict[str, str]:
    """Return the environment of a client that uses a Hub and a cache of its own."""
    ours = {"HF_ENDPOINT": url, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    unset = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_CACHE", "KERNELS_CACHE", "LOCAL_KERNELS")
    return {name: value for name, value in os.environ.items() if name not in unset} | ours


class Driver:
    """A process that publishes, or serves a Hub, in children that can be killed one by one.

    Attributes:
        peak: The most memory that the last child had, in MiB.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.publish_driver"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.peak = 0
        self._pid = 0
        self._known = threading.Event()

    def pid(self) -> int:
        """Return the child's process id; for threads that see it act."""
        assert self._known.wait(timeout=20)
        return self._pid

    def publish(self, run: Path, url: str, log: Path, **options: bool) -> None:
        """Begin to publish in a child; what it prints goes to `log` when it ends."""
        self._start({"run": str(run), "url": url, "log": str(log), "options": options})

    def serve(self, folder: Path, steps: Path, last: int) -> str:
        """Serve a Hub in a child that kills itself; return its URL.

        Args:
            folder: The Hub.
            steps: A file that gets the number of steps so far.
            last: The step at which it kills itself, 0 for none. A step is what it does on the
                file system while a commit, branch or tag is made, or a part of the answer.
        """
        self._start({"folder": str(folder), "steps": str(steps), "last": last})
        return self._line()

    def wait(self) -> int:
        """Return the child's exit code, negative for a signal."""
        code, peak = map(int, self._line().split())
        self._pid = 0
        # The kernel counts in KiB on Linux, in bytes on macOS.
        self.peak = peak >> (20 if sys.platform == "darwin" else 10)
        return code

    def close(self) -> None:
        """End the process, and its child where a failed test left one."""
        assert self._process.stdin is not None
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(timeout=20)

    def _start(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._known.clear()
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        self._pid = int(self._line())
        self._known.set()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
