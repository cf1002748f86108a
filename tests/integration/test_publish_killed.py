"""Kills at every step: clients see the former state or the new one, and a re-run completes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.hub.check import check
from kernel_ci.publish.release import Release
from tests.integration.publish_kit import (
    VARIANTS,
    Between,
    Driver,
    download,
    hub,
    hurry,
    kills,
    look,
    make_run,
    publish_here,
)

#: One variant changes, one goes, one is new: all that a commit can do.
OLD = VARIANTS
NEW = (VARIANTS[0], "tvm-ffi01-cu130-x86_64-linux")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


class Scenario:
    """A Hub before, and a run that changes it.

    Attributes:
        start: The folder of the Hub before.
        run: The run to publish.
        options: How.
        before: What clients see before.
        after: What they see when all is done.
    """

    def __init__(self, tmp_path: Path, kind: str):
        self.start = tmp_path / "start"
        self.options = {"replace": True, "drop": True}
        # Few files, as each is a request.
        small: dict[str, Any] = {"benchmark": False, "helper": False}
        old = make_run(tmp_path / "old", variants=OLD, **small)
        self.run = make_run(
            tmp_path / "new", variants=NEW, changed={VARIANTS[0]: "second"}, card="# New\n", **small
        )
        with hub(self.start) as (_, url):
            if kind == "update":
                assert publish_here(old, url).status == 0
            self.before = look(url)
        with hub(Path(shutil.copytree(self.start, tmp_path / "end"))) as (between, url):
            assert publish_here(self.run, url, **self.options).status == 0
            self.requests = len(between.log)
            self.after = look(url)
            download(url, tmp_path / "cache")  # each variant is what its metadata says
        release = Release.read(self.run / "negate" / "release" / "release.json")
        assert (self.after.files or {}).keys() == {*release.files, "release.json"}

    def check(self, url: str) -> str:
        """Check what clients see after something went wrong; return `old` or `new`."""
        seen = look(url)
        assert seen.files in (self.before.files, self.after.files), "a mixture"
        # The card comes when the version is there, and not before.
        if seen.files != self.after.files:
            assert seen.card == self.before.card
        return "new" if seen.files == self.after.files else "old"

    def complete(self, between: Between, url: str) -> None:
        """Run it again: it completes, and once more: nothing is left to do."""
        assert publish_here(self.run, url, **self.options).status == 0
        assert look(url) == self.after
        between.log.clear()
        assert publish_here(self.run, url, **self.options).status == 0
        assert between.writes == []


@pytest.mark.parametrize("kind", ["first", "update"])
@pytest.mark.parametrize("handled", [False, True], ids=["before", "after"])
def test_publisher_killed_at_every_request(
    kind: str, handled: bool, tmp_path: Path, driver: Driver
) -> None:
    scenario = Scenario(tmp_path, kind)
    assert scenario.requests > 15
    seen = []
    with hub(tmp_path / "unused") as (between, url):
        for number in range(scenario.requests):
            folder = tmp_path / "case"
            between.serve(Path(shutil.copytree(scenario.start, folder)))
            fault = kills(driver.pid, handled=handled)
            between.fault = lambda n, _, number=number, fault=fault: (  # type: ignore[misc]
                fault if n == number else None
            )
            driver.publish(scenario.run, url, tmp_path / "log", **scenario.options)
            assert driver.wait() == -9, f"request {number} was not made"
            where = between.log[number]
            between.fault = lambda number, line: None
            try:
                seen.append(scenario.check(url))
                scenario.complete(between, url)
            except AssertionError as error:
                raise AssertionError(f"killed at {where}: {error}") from error
            assert [found for found in check(folder) if found.kind == "damage"] == []
            shutil.rmtree(folder)
    # There is one moment at which the old becomes the new.
    assert seen == sorted(seen, reverse=True)
    assert {"old", "new"} == set(seen)


@pytest.mark.parametrize("kind", ["first", "update"])
def test_server_killed_while_committing(kind: str, tmp_path: Path, driver: Driver) -> None:
    scenario = Scenario(tmp_path, kind)
    steps = tmp_path / "steps"
    url = driver.serve(Path(shutil.copytree(scenario.start, tmp_path / "whole")), steps, 0)
    assert publish_here(scenario.run, url, **scenario.options).status == 0
    os.kill(driver.pid(), signal.SIGTERM)
    assert driver.wait() == 0
    count = int(steps.read_text())
    assert count > 8
    seen = []
    for last in range(1, count + 1):
        folder = Path(shutil.copytree(scenario.start, tmp_path / "case"))
        url = driver.serve(folder, steps, last)
        done = publish_here(scenario.run, url, **scenario.options)
        assert driver.wait() == -9
        assert done.status == 75, done.text
        assert "run it again" in done.text
        assert [found for found in check(folder) if found.kind == "damage"] == []
        with hub(folder) as (between, url):
            seen.append(scenario.check(url))
            scenario.complete(between, url)
        shutil.rmtree(folder)
    assert seen == sorted(seen, reverse=True)
    assert {"old", "new"} == set(seen)
