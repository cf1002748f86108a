"""Progress of an upload: a line now and then in a log, a bar on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kernel_ci.publish.report import Meter


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """Return what is printed of an upload of ten MB, one each six seconds, three of them known."""
    moment = 1000.0
    monkeypatch.setattr("kernel_ci.publish.report.time.monotonic", lambda: moment)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    meter = Meter(console)
    meter.sent(10**6)  # the sample of a file, before the upload
    with meter.upload(4, 10 * 10**6):
        for _ in range(7):
            moment += 6
            meter.sent(10**6)
    meter.sent(10**6)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_gets_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False).splitlines() == [
        "   3.0 MB of 10.0 MB",
        "   6.0 MB of 10.0 MB",
        "   4 files of 10.0 MB: 7.0 MB had to be uploaded (42.0 s)",
    ]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "10.0 MB" in text
    assert "━" in text
    assert "7.0 MB had to be uploaded" in text
