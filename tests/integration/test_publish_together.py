"""Two publishers at once: one release is there in full, and the other publisher was told."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.publish.release import Release
from tests.integration.publish_kit import (
    VARIANTS,
    Between,
    Driver,
    Fault,
    download,
    hub,
    hurry,
    look,
    make_run,
    publish_here,
)

ROUNDS = 10
SMALL: dict[str, Any] = {"benchmark": False, "helper": False}
DARWIN, CUDA = "tvm-ffi01-cpu-aarch64-darwin", "tvm-ffi01-cu130-x86_64-linux"


@pytest.fixture(scope="module")
def drivers() -> Iterator[tuple[Driver, Driver]]:
    both = Driver(), Driver()
    yield both
    for driver in both:
        driver.close()


class Rendezvous:
    """Holds a request until its like has come from the other publisher, too.

    Without it, the faster publisher is often done before the other one looks.
    """

    def __init__(self, pattern: str):
        self.pattern = pattern
        self.waiting: list[asyncio.Event] = []
        self.met = False

    def fault(self, number: int, line: str) -> Fault | None:
        return self.meet if re.search(self.pattern, line) and not self.met else None

    async def meet(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        event = asyncio.Event()
        self.waiting.append(event)
        if len(self.waiting) == 2:
            self.met = True
            for each in self.waiting:
                each.set()
        await asyncio.wait_for(event.wait(), timeout=20)
        await app(scope, receive, send)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        # Each commits to a branch of its own, and only one gets the version's branch.
        ("first", r"POST .*/branch/v1$"),
        # Both name the same parent.
        ("update", r"POST .*/commit/v1$"),
    ],
)
def test_two_publishers_at_once(
    kind: str,
    pattern: str,
    tmp_path: Path,
    drivers: tuple[Driver, Driver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten rounds of each kind; every other one is left to chance."""
    hurry(monkeypatch)
    start = tmp_path / "start"
    with hub(start) as (_, url):
        if kind == "update":
            assert publish_here(make_run(tmp_path / "old", **SMALL), url).status == 0
    runs = [
        make_run(tmp_path / name, **SMALL, variants=[*VARIANTS, added], changed={added: name})
        if kind == "update"
        else make_run(tmp_path / name, **SMALL, text=name)
        for name, added in (("one", DARWIN), ("two", CUDA))
    ]
    met = 0
    with hub(tmp_path / "unused") as (between, url):
        for number in range(ROUNDS):
            folder = Path(shutil.copytree(start, tmp_path / "case"))
            between.serve(folder)
            together = Rendezvous(pattern)
            if number % 2 == 0:
                between.fault = together.fault
            _round(between, url, runs, drivers, tmp_path)
            met += together.met
            shutil.rmtree(folder)
    assert met == ROUNDS // 2


def _round(
    between: Between, url: str, runs: list[Path], drivers: tuple[Driver, Driver], tmp_path: Path
) -> None:
    logs = [tmp_path / "log0", tmp_path / "log1"]
    for driver, run, log in zip(drivers, runs, logs, strict=True):
        driver.publish(run, url, log)
    statuses = [driver.wait() for driver in drivers]
    texts = [log.read_text() for log in logs]
    between.fault = lambda number, line: None
    assert statuses.count(0) == 1, texts
    winner = statuses.index(0)
    # It came second to the commit, or looked when the other's release was there already.
    lost, text = statuses[1 - winner], texts[1 - winner]
    told = {
        75: ["another publisher changed it meanwhile"],
        1: ["which this release lacks", "published already with other content"],
    }
    assert any(words in text for words in told[lost]), text
    assert "fix: " in text
    release = Release.read(runs[winner] / "negate" / "release" / "release.json")
    view = look(url)
    assert (view.files or {}).keys() == {*release.files, "release.json"}
    assert view.card == release.card.git
    assert view.tags >= {release.tag}
    assert not [name for name in view.branches if name.startswith("staging-")]
    download(url, tmp_path / "cache")
    # The one that lost compares with what is there now, and is refused, or has nothing to do.
    assert publish_here(runs[1 - winner], url).status == 1
    assert look(url) == view


def test_a_slow_publisher_whose_staging_branch_another_one_cleared(tmp_path: Path) -> None:
    slow, fast = (make_run(tmp_path / text, text=text, **SMALL) for text in ("slow", "fast"))
    with hub(tmp_path / "hub") as (between, url):

        async def overtaken(app: Any, scope: Any, receive: Any, send: Any) -> None:
            between.fault = lambda number, line: None
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "kernel_ci", "publish", str(fast), "--hub", url,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert await process.wait() == 0
            await app(scope, receive, send)

        between.fault = lambda number, line: overtaken if "/commit/staging" in line else None
        done = publish_here(slow, url)
        assert done.status == 75, done.text
        assert "another publisher changed it meanwhile" in done.text
        assert look(url).branches == {"main", "v1"}
