"""A cell tested as a job on Hugging Face: the real client, against a server that runs jobs here."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.harness import Caller
from tests.workflows.test_build import RELU, refused
from tests.workflows.test_docs import EXAMPLES

JOB = "68f0000000000000000000ab"
TOKEN = "hf_test"

#: The container's Python: an environment that it makes finds the packages that are installed
#: here, so that pip has nothing to download.
PYTHON = """#!/bin/sh
{python} "$@" || exit $?
for last; do :; done
case "$*" in
  "-m venv"*) for site in "$last"/lib/python3*/site-packages; do echo {site} >"$site/here.pth"; done
esac
"""


class Hub:
    """What is kept between requests: a dataset's files, and the job."""

    def __init__(self, folder: Path):
        self.files = folder / "dataset"
        self.files.mkdir()
        self.spec: dict[str, Any] = {}
        self.log = ""
        self.forge = ""
        self.started = 0

    def run(self) -> None:
        """Run the job: its volume is a folder here, its container this machine."""
        if self.forge:
            self.log = self.forge
            return
        (volume,) = self.spec["volumes"]
        assert volume["readOnly"] is True
        environment = {
            key: str(value).replace(volume["mountPath"], str(self.files))
            for key, value in self.spec["environment"].items()
        }
        with tempfile.TemporaryDirectory() as home:
            python = Path(home) / "python3"
            python.write_text(PYTHON.format(python=sys.executable, site=_site()))
            python.chmod(0o755)
            done = subprocess.run(
                self.spec["command"],
                env={
                    "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
                    "HOME": os.environ.get("HOME", home),
                    "TMPDIR": home,
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        self.log = done.stdout


def _site() -> Path:
    import pydantic

    return Path(pydantic.__file__).parents[1]


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        if self.path == "/api/whoami-v2":
            self._json({"name": "me", "type": "user", "auth": {}})
        elif self.path.startswith(f"/api/jobs/my-organisation/{JOB}/logs"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for line in self.hub.log.splitlines():
                event = {"timestamp": "2026-01-01T00:00:00Z", "data": line}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        elif self.path.startswith(f"/api/jobs/my-organisation/{JOB}"):
            self._json(self._job("COMPLETED"))
        else:
            self._json({"error": "not found"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        if self.path == "/api/repos/create":
            request = json.loads(body)
            assert request["type"] == "dataset"
            assert request.get("private") or request.get("visibility") == "private"
            url = f"http://{self.headers['Host']}/datasets/my-organisation/kernel-ci-jobs"
            self._json({"url": url})
        elif "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for f in json.loads(body)["files"]
            ]
            self._json({"files": files})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    content = base64.b64decode(value["content"])
                    (self.hub.files / value["path"]).write_bytes(content)
            self._json(
                {
                    "commitOid": "a" * 40,
                    "commitUrl": f"http://{self.headers['Host']}/datasets/my-organisation/kernel-ci-jobs/commit/a",
                }
            )
        elif self.path == "/api/jobs/my-organisation":
            self.hub.spec = json.loads(body)
            self.hub.started += 1
            self.hub.run()
            self._json(self._job("RUNNING"))
        else:
            self._json({"error": "not found"}, 404)

    def _job(self, stage: str) -> dict[str, Any]:
        return {
            "id": JOB,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "flavor": self.hub.spec["flavor"],
            "status": {"stage": stage, "message": None},
            "owner": {"id": "1", "name": "my-organisation", "type": "org"},
        }

    def _json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def serve(hub: Hub) -> Iterator[str]:
    handler = type("Bound", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("forge", ["", "nothing was tested"], ids=["receipt", "none"])
def test_hf_jobs(caller: Caller, forge: str) -> None:
    caller.kernel()
    caller.workflow(EXAMPLES["hf-jobs"])
    caller.commit()
    hub = Hub(caller.scratch)
    hub.forge = forge
    with serve(hub) as url:
        run = caller.run(secrets={"HF_TOKEN": TOKEN}, environment={"HF_ENDPOINT": url})

    assert hub.spec["flavor"] == "cpu-basic"
    # A job that has run is paid for: without a receipt it is not run again.
    assert hub.started == 1
    # What runs a kernel's code gets no token.
    assert TOKEN not in json.dumps(hub.spec)
    if forge:
        refused(run)
        assert "left no receipt" in run.text
        return
    assert run.exit_code == 0, f"{run}\n{hub.log}"
    (cell,) = run.verdict()["cells"]
    assert cell["id"] == RELU
    assert cell["counts"]["passed"] == 4
