"""A process that publishes, or serves a Hub, in forked children (see `publish_kit.Driver`).

Everything is imported before the first fork, so that a child begins at once. For each line
of JSON on standard input it prints the child's process id, what the child has to say, and
then how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.hub.server import create_app, running_app
from kernel_ci.hub.store import Store
from tests.integration.publish_kit import hurry, publish_here, undelayed

#: Requests that make something visible.
_VISIBLE = ("/commit/", "/branch/", "/tag/")


def main() -> None:
    hurry(pytest.MonkeyPatch())
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(publish(job) if "run" in job else serve(job))
        print(child, flush=True)
        _, status, used = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_maxrss, flush=True)


def publish(job: dict[str, Any]) -> int:
    outcome = publish_here(Path(job["run"]), job["url"], **job["options"])
    Path(job["log"]).write_text(outcome.text)
    return outcome.status


def serve(job: dict[str, Any]) -> int:
    """Serve a Hub until SIGTERM, or until the step at which it kills itself."""
    steps = 0
    busy = False
    lock = threading.Lock()

    def step() -> None:
        nonlocal steps
        with lock:
            steps += busy
            Path(job["steps"]).write_text(str(steps))
            if busy and steps == job["last"]:
                os.kill(os.getpid(), signal.SIGKILL)

    def stepping(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def wrapped(*arguments: Any, **more: Any) -> Any:
            step()
            return plain(*arguments, **more)

        setattr(owner, name, wrapped)

    # fsync is no step, see `hurry`.
    for name in ("replace", "rename"):
        stepping(Path, name)
    app = create_app(Store(Path(job["folder"])))

    async def between(scope: Any, receive: Any, send: Any) -> None:
        nonlocal busy
        undelayed(send)
        busy = scope["method"] != "GET" and any(part in scope["path"] for part in _VISIBLE)

        async def answer(message: Any) -> None:
            step()
            await send(message)

        await app(scope, receive, answer)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with running_app(between) as url:
        # Only now, as the parent waits for the process id first.
        print(url, flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    main()
