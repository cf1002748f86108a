"""How a suite's events and its process's exit status are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_ci.testing.suite import judge

VARIANT = Path("/run/variant")
START: dict[str, Any] = {"event": "start", "test": "a"}
FINISH: dict[str, Any] = {"event": "finish", "status": 0, "loaded": [str(VARIANT)]}


def end(outcome: str, test: str = "a", reason: str = "", when: str = "call") -> dict[str, Any]:
    return {"event": "end", "test": test, "when": when, "outcome": outcome, "reason": reason}


@pytest.mark.parametrize(
    ("events", "status", "finding"),
    [
        ([START, end("passed"), FINISH], 0, None),
        ([START, end("passed"), end("skipped", "b", "why"), FINISH], 0, None),
        ([], 4, "the suite did not start: exit status 4"),
        ([FINISH], 5, "no test was run"),
        ([START, end("skipped", reason="why"), FINISH], 0, "no test was run to its end"),
        ([START, end("failed", reason="boom\nmore"), FINISH], 1, "a: boom"),
        ([START, end("passed"), end("failed", reason="late", when="teardown"), FINISH], 1,
         "a: late"),
        ([START], -11, "the process died by SIGSEGV after a began"),
        ([], -6, "the process died by SIGABRT before the first test"),
        ([START, end("passed"), FINISH], -11, "the process died by SIGSEGV while ending"),
        ([START, end("passed"), FINISH], 3, "pytest ended with exit status 3"),
        ([START, end("passed"), FINISH | {"loaded": []}], 0,
         "the suite never loaded the variant under test"),
        ([START, end("passed"), FINISH | {"loaded": ["/run/other"]}], 0,
         "the suite never loaded the variant under test"),
    ],
)  # fmt: skip
def test_findings(events: list[dict[str, Any]], status: int, finding: str | None) -> None:
    result = judge(events, status, VARIANT, "")
    assert result.findings == (() if finding is None else (finding,))


def test_a_test_that_passed_and_failed_counts_once() -> None:
    events = [START, end("passed"), end("failed", when="teardown"), FINISH]
    counts = judge(events, 1, VARIANT, "").counts
    assert (counts.passed, counts.failed) == (0, 1)


def test_without_a_variant_nothing_must_be_loaded() -> None:
    assert judge([START, end("passed"), FINISH | {"loaded": []}], 0, None, "").passed
