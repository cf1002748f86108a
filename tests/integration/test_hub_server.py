"""The local Hub's server, used by the real clients."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import huggingface_hub.constants
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
)
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._http import get_session

from kernel_ci.errors import InputError
from kernel_ci.hub.check import check
from kernel_ci.hub.server import create_app, running, running_app, serve
from kernel_ci.hub.store import GITATTRIBUTES, Store

Add, Delete = CommitOperationAdd, CommitOperationDelete

REPO = "acme/relu"
SERVE = "import sys, pathlib, kernel_ci.hub.server as s; s.serve(pathlib.Path(sys.argv[1]))"


class Client(HfApi):
    """The real client, for repositories of type kernel on one Hub."""

    def __init__(self, url: str, token: str | bool = False):
        super().__init__(endpoint=url, token=token)
        self.url = url

    def push(self, operations: list[object], revision: str = "v1", **more: object) -> str:
        info = self.create_commit(  # type: ignore[call-overload]
            REPO, operations, commit_message="test", repo_type="kernel", revision=revision, **more
        )
        return str(info.oid)

    def heads(self) -> dict[str, str]:
        refs = self.list_repo_refs(REPO, repo_type="kernel", include_pull_requests=True)
        every = [*refs.branches, *refs.tags, *(refs.pull_requests or [])]
        return {ref.ref: ref.target_commit for ref in every}

    def paths(self, revision: str = "v1") -> list[str]:
        return [
            entry.path
            for entry in self.list_repo_tree(
                REPO, repo_type="kernel", revision=revision, recursive=True
            )
        ]

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a file on v1, without the client's comfort."""
        answer = get_session().get(f"{self.url}/kernels/{REPO}/resolve/v1/{path}", headers=headers)
        return answer.status_code, dict(answer.headers), answer.content


@pytest.fixture(autouse=True)
def no_xet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of a Hub that has one repository with a branch v1."""
    with running(tmp_path / "hub") as url:
        client = Client(url)
        prepare(client)
        yield client
    assert [finding for finding in check(tmp_path / "hub") if finding.kind == "damage"] == []


def prepare(client: HfApi) -> None:
    client.create_repo(REPO, repo_type="kernel")
    client.create_branch(REPO, branch="v1", repo_type="kernel")


# -- publishing ------------------------------------------------------------------------


def test_repository(client: Client) -> None:
    url = client.create_repo(REPO, repo_type="kernel", exist_ok=True)
    assert (url.repo_id, url.repo_type, str(url)) == (
        REPO,
        "kernel",
        f"{client.url}/kernels/{REPO}",
    )
    with pytest.raises(HfHubHTTPError, match="409"):
        client.create_repo(REPO, repo_type="kernel")
    assert client.create_repo("gelu", repo_type="kernel").repo_id == "local/gelu"
    info = client.kernel_info(REPO)
    assert (info.id, info.author, info.private) == (REPO, "acme", False)
    assert info.sha == client.heads()["refs/heads/main"]
    assert not hasattr(info, "siblings")
    assert client.paths("main") == [".gitattributes"]
    commits = client.list_repo_commits(REPO, repo_type="kernel")
    assert [commit.title for commit in commits] == ["initial commit"]
    client.delete_repo("local/gelu", repo_type="kernel")
    client.delete_repo("local/gelu", repo_type="kernel", missing_ok=True)
    with pytest.raises(RepositoryNotFoundError):
        client.delete_repo("local/gelu", repo_type="kernel")
    with pytest.raises(RepositoryNotFoundError):
        client.create_repo("acme/model")


def test_commits(client: Client, tmp_path: Path) -> None:
    start = client.heads()["refs/heads/v1"]
    first = client.push(
        [
            Add("build/a/__init__.py", b"one = 1\n"),
            Add("build/a/a.so", b"\0library"),
            Add("build/a/empty.bin", b""),
            Add("build/b/__init__.py", b"two = 2\n"),
            Add("README.md", b"---\nlicense: mit\n---\n"),
        ],
        parent_commit=start,
    )
    second = client.push(
        [
            Delete("build/b/", is_folder=True),
            Delete("README.md"),
            Add("build/ä ö/%41#?.py", b"odd\n"),
            CommitOperationCopy("build/a/a.so", "build/c/c.so"),
        ],
        parent_commit=first[:7],
    )
    assert client.heads()["refs/heads/v1"] == second
    files = [".gitattributes", "build/a/__init__.py", "build/a/a.so", "build/a/empty.bin"]
    more = ["build/c/c.so", "build/ä ö/%41#?.py"]
    folders = ["build", "build/a", "build/c", "build/ä ö"]
    assert client.paths() == sorted(files + more + folders)
    folder = client.snapshot_download(
        REPO, repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache"
    )
    contents = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }
    assert contents == {
        ".gitattributes": GITATTRIBUTES.encode(),
        "build/a/__init__.py": b"one = 1\n",
        "build/a/a.so": b"\0library",
        "build/a/empty.bin": b"",
        "build/c/c.so": b"\0library",
        "build/ä ö/%41#?.py": b"odd\n",
    }
    verified = client.verify_repo_checksums(
        REPO, repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache"
    )
    assert (verified.checked_count, verified.mismatches) == (6, [])
    commits = client.list_repo_commits(REPO, repo_type="kernel", revision="v1")
    assert [commit.commit_id for commit in commits] == [second, first, start]
    old = client.hf_hub_download(
        REPO, "README.md", repo_type="kernel", revision=first, cache_dir=tmp_path / "cache"
    )
    assert Path(old).read_bytes() == b"---\nlicense: mit\n---\n"


def test_stale_parent(client: Client) -> None:
    start = client.heads()["refs/heads/v1"]
    first = client.push([Add("a.py", b"1")], parent_commit=start)
    for parent in (start, start[:7], "0" * 40):
        with pytest.raises(HfHubHTTPError, match="A commit has happened since") as raised:
            client.push([Add("b.py", b"2")], parent_commit=parent)
        assert raised.value.response.status_code == 412
    assert client.heads()["refs/heads/v1"] == first


def test_same_content_again_is_no_commit(client: Client) -> None:
    operations = {"a.py": b"text\n", "a.so": b"\0library", "empty": b""}
    first = client.push([Add(path, content) for path, content in operations.items()])
    assert client.push([Add(path, content) for path, content in operations.items()]) == first
    # An LFS file that became a regular one, and the other way round, is no such case.
    assert client.push([Add("a.py", b"text\0"), Add("empty", b"x")]) != first


def test_deleting_what_is_not_there(client: Client) -> None:
    client.push([Add("build/a/x.py", b"1")])
    for operation in (Delete("build/a"), Delete("nope.py"), Delete("nope/", is_folder=True)):
        with pytest.raises(EntryNotFoundError, match="with this name doesn't exist"):
            client.push([operation])


def test_gitignore(client: Client) -> None:
    client.push(
        [Add(".gitignore", b"*.pyc\n__pycache__/\n"), Add("x.pyc", b"1"), Add("y.py", b"1")]
    )
    client.push([Add("__pycache__/a.so", b"1"), Add("z.py", b"1")])
    assert client.paths() == [".gitattributes", ".gitignore", "y.py", "z.py"]


def test_pull_request(client: Client) -> None:
    start = client.push([Add("a.py", b"1")])
    info = client.create_commit(
        REPO,
        [Add("a.py", b"2"), Add("a.so", b"\0")],
        commit_message="Please",
        repo_type="kernel",
        revision="v1",
        create_pr=True,
        parent_commit=start,
    )
    assert (info.pr_num, info.pr_revision) == (1, "refs/pr/1")
    assert client.heads()["refs/pr/1"] == info.oid
    assert client.heads()["refs/heads/v1"] == start
    more = client.push([Add("b.py", b"3")], revision="refs/pr/1", parent_commit=info.oid)
    assert client.heads()["refs/pr/1"] == more
    assert client.paths("refs/pr/1") == [".gitattributes", "a.py", "a.so", "b.py"]
    listed = get_session().get(f"{client.url}/api/kernels/{REPO}/discussions").json()
    assert [(pull["num"], pull["title"]) for pull in listed["discussions"]] == [(1, "Please")]
    assert client.list_repo_refs(REPO, repo_type="kernel").pull_requests is None


def test_branches_and_tags(client: Client) -> None:
    first = client.push([Add("a.py", b"1")])
    client.create_tag(REPO, tag="v1.0", revision="v1", tag_message="one", repo_type="kernel")
    client.create_tag(REPO, tag="v1.0", revision="v1", repo_type="kernel", exist_ok=True)
    client.create_branch(REPO, branch="x/y", revision="v1.0", repo_type="kernel")
    client.create_branch(REPO, branch="x/y", repo_type="kernel", exist_ok=True)
    heads = client.heads()
    assert heads["refs/tags/v1.0"] == heads["refs/heads/x/y"] == first
    for revision in ("x/y", "refs/heads/x/y", "refs/tags/v1.0", first, first[:7]):
        assert client.kernel_info(REPO, revision=revision).sha == first
    with pytest.raises(HfHubHTTPError, match="409"):
        client.create_branch(REPO, branch="x/y", repo_type="kernel")
    with pytest.raises(HfHubHTTPError, match="409"):
        client.create_tag(REPO, tag="v1.0", repo_type="kernel")
    with pytest.raises(BadRequestError, match="Invalid reference name"):
        client.create_tag(REPO, tag="a..b", repo_type="kernel")
    client.delete_tag(REPO, tag="v1.0", repo_type="kernel")
    client.delete_branch(REPO, branch="x/y", repo_type="kernel")
    assert set(client.heads()) == {"refs/heads/main", "refs/heads/v1"}
    for absent in (
        lambda: client.delete_tag(REPO, tag="v1.0", repo_type="kernel"),
        lambda: client.delete_branch(REPO, branch="x/y", repo_type="kernel"),
        lambda: client.create_branch(REPO, branch="v2", revision="v9", repo_type="kernel"),
        lambda: client.push([Add("a.py", b"1")], revision="v9"),
        lambda: client.push([Add("a.py", b"2")], revision=first),
    ):
        with pytest.raises(RevisionNotFoundError):
            absent()
    with pytest.raises(BadRequestError, match="main branch"):
        client.delete_branch(REPO, branch="main", repo_type="kernel")


def test_card_is_validated(client: Client) -> None:
    with pytest.raises(ValueError, match="YAML metadata"):
        client.push([Add("README.md", b"---\nlicense: [\n---\n")])
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        client.push([Add("README.md", b"# Relu\n")])


def test_who(client: Client) -> None:
    assert client.whoami(token="any")["orgs"][0]["name"] == "acme"
    overview = client.get_organization_overview("acme")
    assert getattr(overview, "trustedKernelPublisher", False) is True
    with pytest.raises(HfHubHTTPError, match="404"):
        client.get_organization_overview("nobody")
    assert get_session().get(f"{client.url}/api/agent-harnesses").status_code == 404


# -- loading ---------------------------------------------------------------------------


def test_large_file(client: Client, tmp_path: Path) -> None:
    source = tmp_path / "large.so"
    source.write_bytes(os.urandom(30 << 20))
    client.push([Add("build/a/a.so", source)])
    path = client.hf_hub_download(
        REPO, "build/a/a.so", repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache"
    )
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    assert Path(path).resolve().name == digest  # the client's cache is keyed by the ETag
    [entry] = client.get_paths_info(REPO, "build/a/a.so", repo_type="kernel", revision="v1")
    assert isinstance(entry, RepoFile)
    assert entry.lfs is not None
    assert (entry.size, entry.lfs.sha256) == (30 << 20, digest)


def test_ranges(client: Client) -> None:
    content = bytes(range(256)) * 4
    commit = client.push([Add("a.so", content), Add("a.py", b"0123456789")])
    status, headers, body = client.get("a.so")
    assert (status, body, headers["x-repo-commit"]) == (200, content, commit)
    assert headers["x-linked-etag"] == headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert headers["x-linked-size"] == "1024"
    etag = headers["etag"]
    for wanted, part in (
        ("bytes=0-9", content[:10]),
        ("bytes=1000-", content[1000:]),
        ("bytes=1000-9999", content[1000:]),
        ("bytes=-24", content[-24:]),
    ):
        status, headers, body = client.get("a.so", Range=wanted)
        assert (status, body) == (206, part)
        assert headers["content-range"].endswith("/1024")
        assert headers["x-repo-commit"] == commit
    status, headers, _ = client.get("a.so", Range="bytes=1024-")
    assert status == 416
    assert headers["content-range"].endswith("*/1024")
    assert client.get("a.so", **{"Range": "bytes=0-9", "If-Range": etag})[0] == 206
    assert client.get("a.so", **{"Range": "bytes=0-9", "If-Range": '"other"'})[0] == 200
    status, headers, body = client.get("a.py", Range="bytes=3-5")
    assert (status, body) == (206, b"345")
    assert "x-linked-etag" not in headers
    head = get_session().head(f"{client.url}/kernels/{REPO}/resolve/v1/a.so")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "1024", b"")


def test_what_is_missing_is_told_apart(client: Client, tmp_path: Path) -> None:
    commit = client.push([Add("build/a/x.py", b"1")])

    def download(repo: str, revision: str, path: str) -> str:
        return client.hf_hub_download(
            repo, path, repo_type="kernel", revision=revision, cache_dir=tmp_path / "cache"
        )

    with pytest.raises(RepositoryNotFoundError):
        download("acme/other", "v1", "a")
    with pytest.raises(RevisionNotFoundError):
        download(REPO, "v9", "a")
    for path in ("nope", "build", "build/a/x.py/y"):
        with pytest.raises(EntryNotFoundError):
            download(REPO, "v1", path)
    # The commit in the answer lets the client remember that the file does not exist.
    assert list((tmp_path / "cache").glob(f"*/.no_exist/{commit}/nope"))
    with pytest.raises(EntryNotFoundError):
        list(client.list_repo_tree(REPO, "nope", repo_type="kernel", revision="v1"))
    assert client.file_exists(REPO, "build/a/x.py", repo_type="kernel", revision="v1")
    assert not client.revision_exists(REPO, "v9", repo_type="kernel")
    assert not client.repo_exists("acme/other", repo_type="kernel")


def test_tree_with_commits(client: Client) -> None:
    first = client.push([Add("build/a/x.py", b"1"), Add("build/b/y.py", b"1")])
    second = client.push([Add("build/b/y.py", b"2")])
    entries = client.list_repo_tree(
        REPO, "build", repo_type="kernel", revision="v1", recursive=True, expand=True
    )
    commits = {entry.path: entry.last_commit.oid for entry in entries if entry.last_commit}
    assert commits == {
        "build/a": first,
        "build/a/x.py": first,
        "build/b": second,
        "build/b/y.py": second,
    }


def write_variant(folder: Path) -> None:
    """Write a variant directory that needs no library, for this machine."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def answer():\n    return 42\n")
    metadata = {
        "name": "relu",
        "id": "_relu_cpu_0123456",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))


def test_real_kernels_client(client: Client, tmp_path: Path) -> None:
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    variant = f"tvm-ffi01-cpu-{machine}-{sys.platform}"
    write_variant(tmp_path / variant)
    client.push(
        [
            Add(f"build/{variant}/{path.name}", path)
            for path in sorted((tmp_path / variant).iterdir())
        ]
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": client.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_CACHE", "KERNELS_CACHE", "LOCAL_KERNELS"):
        environment.pop(name, None)
    code = f"""
        import kernels
        kernel = kernels.get_kernel({REPO!r}, version=1, backend="cpu")
        print(kernel.answer(), kernel.__file__)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    answer, path = run.stdout.split()
    assert answer == "42"
    assert Path(path).is_relative_to(tmp_path / "home")
    command = [sys.executable, "-c", "from kernels.cli import main; main()"]
    for arguments, expected in ((["versions", REPO], variant), (["info", REPO], "Apache-2.0")):
        run = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, run.stderr
        assert expected in run.stdout


# -- who may do what -------------------------------------------------------------------


def test_tokens(tmp_path: Path) -> None:
    store = Store(tmp_path / "hub")
    with running_app(create_app(store, token="writer", reader_token="reader")) as url:
        writer, reader, anyone = Client(url, "writer"), Client(url, "reader"), Client(url)
        wrong = Client(url, "wrong")
        prepare(writer)
        first = writer.push([Add("a.py", b"1"), Add("a.so", b"\0" * 100)])
        assert writer.whoami()["name"] == "local"
        assert anyone.paths() == reader.paths() == [".gitattributes", "a.py", "a.so"]

        def refused(call: Callable[[], object], status: int, message: str) -> None:
            with pytest.raises(HfHubHTTPError, match=message) as raised:
                call()
            assert raised.value.response.status_code == status

        forbidden: tuple[Callable[[Client], object], ...] = (
            lambda client: client.push([Add("b.py", b"2")]),
            lambda client: client.push([Add("b.so", b"2")]),
            lambda client: client.create_repo("acme/gelu", repo_type="kernel"),
            lambda client: client.create_branch(REPO, branch="v2", repo_type="kernel"),
            lambda client: client.create_tag(REPO, tag="t", repo_type="kernel"),
            lambda client: client.delete_branch(REPO, branch="v1", repo_type="kernel"),
            lambda client: client.delete_repo(REPO, repo_type="kernel"),
        )
        for write in forbidden:
            refused(partial(write, anyone), 401, "Invalid username or password")
            refused(partial(write, wrong), 401, "Invalid credentials")
            refused(partial(write, reader), 403, "must use a write token")
        refused(wrong.paths, 401, "Invalid credentials")
        pull = reader.push([Add("b.so", b"\0" * 99)], create_pr=True)
        assert writer.heads()["refs/pr/1"] == pull
        refused(lambda: anyone.push([Add("b.py", b"2")], create_pr=True), 401, "Invalid username")
        assert writer.heads()["refs/heads/v1"] == first
        for ref, status in (({}, 200), ({"ref": {"name": "v1"}}, 403)):
            batch = get_session().post(
                f"{url}/kernels/{REPO}.git/info/lfs/objects/batch",
                json={"operation": "upload", "objects": [], **ref},
                headers={"Authorization": "Bearer reader"},
            )
            assert batch.status_code == status
        put = get_session().put(
            f"{url}/kernels/{REPO}.git/info/lfs/objects/{'0' * 64}?size=5&signature=0",
            content=b"12345",
        )
        assert put.status_code == 403
    assert {finding.kind for finding in check(tmp_path / "hub")} <= {"leftover"}


def test_web_pages_cannot_publish(client: Client) -> None:
    answer = get_session().post(
        f"{client.url}/api/kernels/{REPO}/commit/v1",
        content=b'{"key": "header", "value": {"summary": "x"}}\n',
        headers={"Origin": "https://example.org", "Content-Type": "text/plain"},
    )
    assert answer.status_code == 403
    assert len(client.list_repo_commits(REPO, repo_type="kernel", revision="v1")) == 1


# -- wrong requests --------------------------------------------------------------------


def line(key: str, **value: object) -> bytes:
    return json.dumps({"key": key, "value": value}).encode() + b"\n"


HEADER = line("header", summary="test")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the header is missing"),
        (b"not json\n", "a line is not JSON"),
        (b"[]\n", "Input should be"),
        (line("file", path="a", content=""), "the first line must be the header"),
        (line("header"), "summary: Field required"),
        (HEADER + line("rename", path="a"), "unknown key 'rename'"),
        (HEADER + line("file", path="a", content="?", encoding="base64"), "content of a"),
        (HEADER + line("file", path="a", content="", encoding="rot13"), "encoding"),
        (HEADER + line("file", path="../a", content=""), "Invalid path"),
        (HEADER + line("file", path="/a", content=""), "Invalid path"),
        (HEADER + line("file", path="a\\b", content=""), "Invalid path"),
        (HEADER + line("file", path="a\0b", content=""), "Invalid path"),
        (HEADER + line("file", path="\ud800", content=""), "Invalid path"),
        (HEADER + line("lfsFile", path="a/..", oid="0" * 64), "Invalid path"),
        (HEADER + line("lfsFile", path="a", oid="0" * 64, size=1), "was not uploaded"),
        (HEADER + line("lfsFile", path="a", oid="../../lock"), "was not uploaded"),
        (HEADER + line("file", path=".gitattributes/a", content=""), "is a file"),
        (HEADER[:-1] + b', "value": 1}\n' + b'{"key": "file"', "not JSON"),
        (line("header", summary="x", parentCommit="main"), "Invalid commit id"),
        (line("header", summary="x", parentCommit=""), "Invalid commit id"),
    ],
)
def test_malformed_commit(client: Client, body: bytes, message: str) -> None:
    answer = get_session().post(f"{client.url}/api/kernels/{REPO}/commit/v1", content=body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]
    assert len(client.list_repo_commits(REPO, repo_type="kernel", revision="v1")) == 1


def test_malformed_requests(client: Client) -> None:
    session, api = get_session(), f"{client.url}/api/kernels/{REPO}"
    for method, url, body, status in (
        ("POST", f"{client.url}/api/repos/create", b"{", 400),
        ("POST", f"{client.url}/api/repos/create", b'{"name": 1}', 400),
        ("POST", f"{client.url}/api/repos/create", b'{"name": "..", "type": "kernel"}', 400),
        ("POST", f"{client.url}/api/repos/create", b'{"name": "relu", "type": "model"}', 404),
        ("POST", f"{api}/preupload/v1", b'{"files": [{"path": "a"}]}', 400),
        ("POST", f"{api}/preupload/v1", b'{"files": [{"path":"a","size":1,"sample":"?"}]}', 400),
        ("POST", f"{api}/tag/v1", b"{}", 400),
        ("POST", f"{api}/branch/refs%2Fheads%2Fx", b"{}", 400),
        ("GET", f"{api}/revision/..%2F..", b"", 404),
        ("GET", f"{client.url}/kernels/{REPO}/resolve/v1/..%2f..%2fhub.json", b"", 404),
        ("GET", f"{client.url}/kernels/..%2F..%2Fx/y/resolve/v1/a", b"", 404),
        ("POST", f"{client.url}/kernels/{REPO}.git/info/lfs/objects/batch", b"[]", 400),
        ("PUT", f"{client.url}/kernels/{REPO}.git/info/lfs/objects/x?size=abc", b"", 403),
        ("GET", f"{api}/xet-write-token/v1", b"", 400),
        ("PATCH", api, b"", 405),
        ("GET", f"{client.url}/nowhere", b"", 404),
        ("POST", f"{api}/commit/v1", b" " * (33 << 20), 413),
    ):
        answer = session.request(method, url, content=body)
        assert answer.status_code == status, (url, body[:50], answer.text)
        assert answer.json()["error"]


def lfs_action(client: Client, content: bytes) -> str:
    """Ask for the upload of a content and return the address to put it to."""
    batch = get_session().post(
        f"{client.url}/kernels/{REPO}.git/info/lfs/objects/batch",
        json={
            "operation": "upload",
            "objects": [{"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}],
        },
    )
    return str(batch.json()["objects"][0]["actions"]["upload"]["href"])


def test_wrong_uploads(client: Client, tmp_path: Path) -> None:
    content = b"library" * 1000
    href = lfs_action(client, content)
    for wrong, message in (
        (content[:-1], "6999 bytes were received, expected 7000"),
        (content + b"x", "More than the 7000 bytes"),
        (content[:-1] + b"Y", "The content's SHA-256 is"),
        (b"", "0 bytes were received"),
    ):
        answer = get_session().put(href, content=wrong)
        assert answer.status_code == 400
        assert message in answer.json()["error"]
    assert check(tmp_path / "hub") == []
    assert get_session().put(href, content=content).status_code == 200
    assert get_session().put(href, content=content).status_code == 200


# -- faults ----------------------------------------------------------------------------


def cut_off(method: str, url: str, sent: bytes) -> None:
    """Begin a request whose body never ends, and drop the connection."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.putrequest(method, f"{parts.path}?{parts.query}")
    connection.putheader("Content-Length", str(len(sent) + 1))
    connection.endheaders(sent)
    time.sleep(0.2)
    assert connection.sock is not None
    # Reset instead of an orderly end.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def test_dropped_connections_leave_nothing(client: Client, tmp_path: Path) -> None:
    content = os.urandom(2 << 20)
    cut_off("PUT", lfs_action(client, content), content[:-1])
    body = HEADER + line("deletedFile", path=".gitattributes")
    cut_off("POST", f"{client.url}/api/kernels/{REPO}/commit/v1", body)
    deadline = time.monotonic() + 10
    while check(tmp_path / "hub") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert check(tmp_path / "hub") == []
    assert client.paths() == [".gitattributes"]


@pytest.mark.skipif(sys.platform == "win32", reason="sets a resource limit")
def test_full_disk_is_told(client: Client, tmp_path: Path) -> None:
    import resource

    content = os.urandom(2 << 20)
    href = lfs_action(client, content)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        answer = get_session().put(href, content=content)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (answer.status_code, answer.json()["error"]) == (
        500,
        "The Hub's disk failed: File too large",
    )
    assert check(tmp_path / "hub") == []
    assert get_session().put(href, content=content).status_code == 200


def test_one_of_eight_wins(tmp_path: Path) -> None:
    """Two servers of one folder, four clients each, all on the same parent."""
    folder = tmp_path / "hub"
    with running(folder) as one, running(folder) as other:
        clients = [Client(url) for url in (one, other) for _ in range(4)]
        prepare(clients[0])
        for number in range(5):
            parent = clients[0].heads()["refs/heads/v1"]
            barrier = threading.Barrier(len(clients))
            outcomes: dict[int, object] = {}

            def publish(
                index: int,
                number: int = number,
                parent: str = parent,
                barrier: threading.Barrier = barrier,
                outcomes: dict[int, object] = outcomes,
            ) -> None:
                content = f"{number} {index}".encode()
                operations = [Add(f"{name}.so", content) for name in "abc"]
                clients[index].preupload_lfs_files(
                    REPO, operations, repo_type="kernel", revision="v1"
                )
                barrier.wait()
                try:
                    outcomes[index] = clients[index].push(list(operations), parent_commit=parent)
                except HfHubHTTPError as error:
                    outcomes[index] = error.response.status_code

            threads = [threading.Thread(target=publish, args=(index,)) for index in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            won = [index for index, outcome in outcomes.items() if outcome != 412]
            assert len(outcomes) == 8
            assert len(won) == 1
            assert clients[7].heads()["refs/heads/v1"] == outcomes[won[0]]
            for name in "abc":
                assert clients[0].get(f"{name}.so")[2] == f"{number} {won[0]}".encode()
        history = clients[0].list_repo_commits(REPO, repo_type="kernel", revision="v1")
        assert len(history) == 6
    assert {finding.kind for finding in check(folder)} == {"leftover"}
    check(folder, repair=True)
    assert check(folder) == []


@contextlib.contextmanager
def server_process(folder: Path, code: str = SERVE, *arguments: str) -> Iterator[tuple[str, int]]:
    """Serve from a process of its own; yields its URL and its process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.kill()
        process.communicate()


# Ends the server right before the nth rename of a commit, or when it syncs the new ref.
CRASHING = """
import os, sys
step = int(sys.argv[2])
seen = 0
def crash(name, arguments):
    global seen
    if name == "os.rename" and armed:
        seen += 1
    ref = name == "open" and str(arguments[0]).endswith("/heads")
    if armed and (seen == step or (ref and seen == step - 1 == 4)):
        os._exit(9)
armed = False
sys.addaudithook(crash)
import pathlib, kernel_ci.hub.server as server, kernel_ci.hub.store as store
folder = pathlib.Path(sys.argv[1])
store.Store(folder)
armed = True
server.serve(folder)
"""


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_server_dies_while_committing(step: int, tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    with running(folder) as url:
        prepare(Client(url))
        old = Client(url).push([Add("a.so", b"\0old"), Add("a.py", b"old")])

    def publish(url: str) -> str:
        operations = [Add("a.so", b"\0new"), Add("a.py", b"new")]
        return Client(url).push(list(operations), parent_commit=old)

    with server_process(folder, CRASHING, str(step)) as (url, _):
        retries = "huggingface_hub.utils._http"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{retries}.time.sleep", lambda _: None)
            with pytest.raises(Exception, match=r"disconnected|refused|uploading"):
                publish(url)
    assert [finding for finding in check(folder) if finding.kind == "damage"] == []
    with running(folder) as url:
        client = Client(url)
        text = (client.get("a.so")[2], client.get("a.py")[2])
        # Before the ref got its name, the old state; after it, the new one.
        assert text == ((b"\0old", b"old") if step < 5 else (b"\0new", b"new"))
        if step < 5:
            assert publish(url) == client.heads()["refs/heads/v1"]
        else:
            assert client.heads()["refs/heads/v1"] != old
        assert client.get("a.so")[2] == b"\0new"
    check(folder, repair=True)
    assert check(folder) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_bounded_and_the_port_is_told(tmp_path: Path) -> None:
    """An upload and a download of 96 MiB cost the server less than 24 MiB of memory."""
    folder, source = tmp_path / "hub", tmp_path / "large.so"
    with source.open("wb") as file:
        for _ in range(96):
            file.write(os.urandom(1 << 20))

    def peak(pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        [found] = [entry for entry in status.splitlines() if entry.startswith("VmHWM")]
        return int(found.split()[1]) >> 10

    with server_process(folder) as (url, pid):
        client = Client(url)
        prepare(client)
        client.push([Add("small.so", b"x"), Add("small.py", b"x")])
        client.get("small.so")
        before = peak(pid)
        client.push([Add("large.so", source)])
        assert len(client.get("large.so")[2]) == 96 << 20
        assert peak(pid) - before < 24
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1 port"):
            serve(folder, port=urlsplit(url).port or 0)
        os.kill(pid, signal.SIGINT)


def test_running_ends_quickly_with_open_connections(tmp_path: Path) -> None:
    with running(tmp_path / "hub") as url:
        prepare(Client(url))
        idle = http.client.HTTPConnection(urlsplit(url).netloc)
        idle.request("GET", "/api/whoami-v2")
        assert idle.getresponse().read()
        start = time.monotonic()
    assert time.monotonic() - start < 2
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))
