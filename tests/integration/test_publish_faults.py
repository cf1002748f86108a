"""Every answer of the Hub replaced in turn: it ends right, or with the right message."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import _http

from kernel_ci.publish.transport import Retry
from tests.integration.publish_kit import (
    FAST,
    IMPATIENT,
    TOKEN,
    VARIANTS,
    Between,
    Fault,
    Outcome,
    View,
    answers,
    cut,
    hub,
    hurry,
    look,
    make_run,
    publish_here,
    reset,
    silence,
)

#: What goes wrong once and may pass: it must end well.
PASSING: dict[str, Fault] = {
    "500": answers(500),
    "502": answers(502),
    "429": answers(429, headers={"retry-after": "1"}),
    "timeout": silence,
    "reset": reset,
    "truncated": cut(framed=False),
    "truncated JSON": cut(framed=True),
}

#: What the Hub means: exit code, and what the message says.
MEANT = {
    401: (2, "HF_TOKEN"),
    403: (2, "--pull-request"),
    409: (75, "run it again"),
    412: (75, "another publisher"),
    413: (2, "too large"),
}

#: Read with `look`, so that it is not told from an id which one is broken.
SMALL: dict[str, Any] = {"benchmark": False, "helper": False, "variants": VARIANTS[:1]}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


class Scenario:
    """A Hub before, and a run that changes it."""

    def __init__(self, tmp_path: Path, kind: str, retry: Retry = FAST):
        self.options: dict[str, Any] = {"replace": True, "retry": retry}
        self.start = tmp_path / "start"
        self.tmp_path = tmp_path
        old = make_run(tmp_path / "old", **SMALL)
        self.run = make_run(tmp_path / "new", **SMALL, text="second", card="# New\n")
        with hub(self.start) as (_, url):
            if kind == "update":
                assert publish_here(old, url).status == 0
            self.before = look(url)
        with hub(Path(shutil.copytree(self.start, tmp_path / "end"))) as (between, url):
            assert publish_here(self.run, url, **self.options).status == 0
            self.log = list(between.log)
            self.after = look(url)

    @property
    def numbers(self) -> list[int]:
        """The requests to replace the answer of: with KERNEL_CI_FAULTS=all, every one.

        Else each request once, of the files that are read back one; and of an update only
        what a first release does not have.
        """
        if os.environ.get("KERNEL_CI_FAULTS") == "all":
            return list(range(len(self.log)))
        if self.before.files is None:
            found: dict[str, int] = {}
            for number, line in enumerate(self.log):
                found.setdefault(line if "/resolve/" not in line else "read back", number)
            return list(found.values())
        first_write = next(n for n, line in enumerate(self.log) if line.startswith("POST"))
        return [n for n, line in enumerate(self.log) if n < first_write or line.endswith("/v1")]

    def case(self, between: Between) -> None:
        """Begin again with the Hub before."""
        folder = self.tmp_path / "case"
        shutil.rmtree(folder, ignore_errors=True)
        between.serve(Path(shutil.copytree(self.start, folder)))

    def publish(self, url: str) -> Outcome:
        done = publish_here(self.run, url, **self.options)
        assert TOKEN not in done.text
        assert "Traceback" not in done.text
        return done

    def check(self, between: Between, url: str, done: Outcome) -> None:
        """Check that clients see the old or the new, and that a re-run completes."""
        between.fault = lambda number, line: None
        seen = look(url)
        assert seen.files in (self.before.files, self.after.files), "a mixture"
        if done.status == 0:
            assert self.complete(seen), seen
        else:
            assert "fix: " in done.text
            assert self.publish(url).status == 0
            assert self.complete(look(url))

    def complete(self, seen: View) -> bool:
        """Tell whether all is there; a staging branch that could not be deleted may be left."""
        seen = replace(
            seen, branches=frozenset(b for b in seen.branches if not b.startswith("staging-"))
        )
        return seen == self.after


def patience(name: str) -> Retry:
    return IMPATIENT if name == "timeout" else FAST


def once(number: int, fault: Fault) -> Any:
    return lambda n, line: fault if n == number else None


@pytest.mark.parametrize("kind", ["first", "update"])
@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_sat_out(name: str, kind: str, tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, kind, patience(name))
    assert len(scenario.numbers) > 5
    with hub(tmp_path / "unused") as (between, url):
        for number in scenario.numbers:
            scenario.case(between)
            between.fault = once(number, PASSING[name])
            done = scenario.publish(url)
            try:
                assert done.status == 0, done.text
                scenario.check(between, url, done)
            except AssertionError as error:
                raise AssertionError(f"at {scenario.log[number]}: {error}") from error


@pytest.mark.parametrize("kind", ["first", "update"])
@pytest.mark.parametrize("status", MEANT)
@pytest.mark.parametrize("handled", [False, True], ids=["refused", "lost"])
def test_what_the_hub_means_is_told(handled: bool, status: int, kind: str, tmp_path: Path) -> None:
    """`lost`: the Hub did what it was asked to, and a proxy in between said something else."""
    scenario = Scenario(tmp_path, kind)
    code, words = MEANT[status]
    told = 0
    with hub(tmp_path / "unused") as (between, url):
        for number in scenario.numbers:
            if handled and scenario.log[number].startswith("GET"):
                continue  # Nothing is lost but the answer.
            scenario.case(between)
            between.fault = once(number, answers(status, handled=handled))
            done = scenario.publish(url)
            try:
                if done.status:
                    assert done.status == code, done.text
                    if "(404)" not in done.text:
                        assert words in done.text
                        told += 1
                scenario.check(between, url, done)
            except AssertionError as error:
                raise AssertionError(f"at {scenario.log[number]}: {error}\n{done.text}") from error
    assert told > (2 if kind == "first" else 0)


def endpoint(line: str) -> str:
    """Return the kind of a request."""
    line = re.sub(r"[0-9a-f]{40,64}|staging-\S+", "*", line.partition("?")[0])
    return re.sub(r"/(build|benchmarks|release)\b.*", "/*", line)


@pytest.mark.parametrize("kind", ["first", "update"])
@pytest.mark.parametrize("name", ["500", "timeout", "truncated JSON"])
def test_what_stays_is_given_up(name: str, kind: str, tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, kind, patience(name))
    wanted = dict.fromkeys(endpoint(scenario.log[n]) for n in scenario.numbers)
    if name == "timeout":
        wanted = dict.fromkeys(line for line in wanted if re.search("refs|batch|/commit/", line))
    given_up = 0
    with hub(tmp_path / "unused") as (between, url):
        for kept in wanted:
            scenario.case(between)
            between.fault = lambda n, line, kept=kept: (  # type: ignore[misc]
                PASSING[name] if endpoint(line) == kept else None
            )
            done = scenario.publish(url)
            try:
                # Some answers are not needed: what was lost is there, as a second look shows.
                # Content that is cut off and framed as if it were whole is wrong content.
                code = 1 if "/*" in kept and name == "truncated JSON" else 75
                assert done.status in (0, 75, code), done.text
                given_up += done.status != 0
                scenario.check(between, url, done)
            except AssertionError as error:
                raise AssertionError(f"at {kept}: {error}\n{done.text}") from error
    assert given_up >= len(wanted) // 2


# -- pauses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({}, 1.6, 2.4),
        ({"retry-after": "17"}, 17, 17),
        ({"retry-after": formatdate(4102444800)}, None, None),
        ({"ratelimit": '"api";r=0;t=41'}, 42, 42),
        ({"ratelimit": '"api";r=3;t=41'}, 1.6, 2.4),
        ({"retry-after": "never"}, 1.6, 2.4),
    ],
    ids=["none", "seconds", "a date in 2100", "the Hub's limit", "not at the limit", "nonsense"],
)
def test_the_hub_says_how_long_to_wait(
    headers: dict[str, str], least: float | None, most: float | None, tmp_path: Path
) -> None:
    pauses: list[float] = []
    retry = Retry(attempts=3, first=2, sleep=pauses.append)
    run = make_run(tmp_path / "run")
    with hub(tmp_path / "hub") as (between, url):
        between.fault = once(0, answers(429, headers=headers))
        done = publish_here(run, url, retry=retry)
    if least is None or most is None:
        # Nobody waits that long: it is told, and the exit code says to try again.
        assert done.status == 75
        assert re.search(r"asks to wait \d+ s", done.text)
        assert pauses == []
        return
    assert done.status == 0
    assert len(pauses) == 1
    assert least <= pauses[0] <= most
    assert "429 Too Many Requests; again in" in done.text


def test_an_upload_does_not_wait_for_ever_either(tmp_path: Path) -> None:
    with hub(tmp_path / "hub") as (between, url):
        between.fault = lambda number, line: (
            answers(429, headers={"retry-after": "100000"}) if line.startswith("PUT") else None
        )
        done = publish_here(make_run(tmp_path / "run"), url)
        assert done.status == 75, done.text
        assert "asks to wait 100000 s" in done.text
        assert "signature" not in done.text
        # One attempt each for the two libraries.
        assert len([line for line in between.log if line.startswith("PUT")]) <= 2


def test_pauses_grow(tmp_path: Path) -> None:
    pauses: list[float] = []
    retry = Retry(attempts=6, first=1, longest=5, sleep=pauses.append)
    run = make_run(tmp_path / "run")
    with hub(tmp_path / "hub") as (between, url):
        between.fault = lambda number, line: answers(503)
        done = publish_here(run, url, retry=retry)
    assert done.status == 75
    assert "503 Service Unavailable (6 attempts)" in done.text
    assert [round(pause / (1.25 * ideal) * 1.25, 0) for pause, ideal in
            zip(pauses, (1, 2, 4, 5, 5), strict=True)] == [1] * 5  # fmt: skip


def test_nobody_listens(tmp_path: Path) -> None:
    done = publish_here(make_run(tmp_path / "run"), "http://127.0.0.1:9")
    assert done.status == 75
    assert "no connection" in done.text


# -- secrets ---------------------------------------------------------------------------


def test_tokens_are_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The Hub here says the token back in each of its errors."""
    caplog.set_level(logging.DEBUG)
    run = make_run(tmp_path / "run")
    texts = []
    for status in (400, 401, 403, 409, 412, 413, 418, 429, 500):
        with hub(tmp_path / f"hub{status}", token=TOKEN) as (between, url):
            for method in ("GET", "POST", "PUT"):
                between.fault = lambda n, line, method=method, status=status: (  # type: ignore[misc]
                    answers(status) if line.startswith(method) else None
                )
                done = publish_here(run, url)
                assert done.status != 0
                texts.append(done.text)
    captured = capfd.readouterr()
    everything = "\n".join([*texts, captured.out, captured.err, caplog.text])
    assert "planted 401 for" in everything
    assert TOKEN not in everything
    # The address of an upload permits it.
    assert "signature=" not in everything.replace("signature=…", "")
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes()


def test_a_wrong_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ATokenOfSomebodyElse")
    with hub(tmp_path / "hub", token=TOKEN) as (_, url):
        done = publish_here(make_run(tmp_path / "run"), url)
    assert done.status == 2
    assert "(401)" in done.text
    assert "HF_OIDC_RESOURCE" in done.text
    assert "hf_" not in done.text


@pytest.mark.parametrize("token", ["hf_one\nhf_two", "hf_\N{LATIN SMALL LETTER U WITH DIAERESIS}"])
def test_what_can_be_no_token(token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with hub(tmp_path / "hub") as (_, url):
        done = publish_here(make_run(tmp_path / "run"), url)
    assert done.status == 2, done.text
    assert "HF_TOKEN: the token has characters" in done.text
    assert "hf_" not in done.text


def test_the_identity_of_a_workflow_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_ci.errors import InputError
    from kernel_ci.publish.hubclient import Hub
    from kernel_ci.publish.target import Target

    monkeypatch.setenv("HF_OIDC_RESOURCE", "kernels/acme/negate")
    monkeypatch.delenv("HF_OIDC_ID_TOKEN", raising=False)
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL", raising=False)
    with (
        hub(tmp_path / "hub") as (_, url),
        Hub(Target(url, None, local=True), "acme/negate", retry=FAST) as client,
        pytest.raises(InputError, match="identity was not accepted") as caught,
    ):
        client.refs()
    assert "id-token: write" in str(caught.value)


@pytest.fixture(autouse=True)
def _clean_session() -> Iterator[None]:
    """What huggingface_hub has afterwards is its own client again."""
    yield
    assert type(_http.get_session()).__module__.startswith("httpx2")
