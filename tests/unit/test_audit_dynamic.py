"""Which releases are tried, and what is concluded from how processes end."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_ci import abi
from kernel_ci.abi.window import RuntimeWindow
from kernel_ci.audit import judge
from kernel_ci.audit.dynamic import choose, judge_probe
from kernel_ci.audit.report import DynamicReport, RuntimeRun
from kernel_ci.errors import InputError

OPEN = RuntimeWindow.model_validate({"built-with": "0.1.15.post2", "floor": "0.1.8"})
LOADED = [{"step": "runtime"}, {"step": "loaded"}]
RAISED = [*LOADED, {"step": "calls", "function": "f"}, {"step": "raised", "function": "f"}]
DONE = [*RAISED, {"step": "done"}]


def test_choice() -> None:
    assert choose("floor", OPEN) == ("0.1.8",)
    assert choose("newest", OPEN) == (abi.table().newest,)
    assert choose("epochs", OPEN) == abi.epoch_runtimes(OPEN)
    assert choose("floor,newest", OPEN) == ("0.1.8", abi.table().newest)
    assert choose("all", OPEN) == abi.table().versions
    assert choose(" 0.1.15 , 0.1.9,0.1.9", OPEN) == ("0.1.9", "0.1.15")
    assert choose("0.1.99", OPEN) == ("0.1.99",)


def test_floor_that_the_table_does_not_know() -> None:
    later = RuntimeWindow.model_validate({"built-with": "0.1.99", "floor": "0.1.99"})
    assert choose("floor,epochs,newest", later) == ("0.1.99",)


def test_choice_without_a_window() -> None:
    assert choose("floor,epochs,newest", None) == ()
    assert choose("all,floor", None) == abi.table().versions


@pytest.mark.parametrize("wanted", ["", ",", "newes", "0.1.x", "none"])
def test_no_choice(wanted: str) -> None:
    with pytest.raises(InputError):
        choose(wanted, OPEN)


@pytest.mark.parametrize(
    ("events", "status", "stderr", "fault"),
    [
        (DONE, -11, "", "the process died by SIGSEGV while ending, after every call was right"),
        (RAISED[:3], -6, "", "the process died by SIGABRT in f, which was called"),
        (LOADED[:1], -11, "", "the process died by SIGSEGV while the library was loaded"),
        ([], 1, "x\nImportError: y\n", "status 1 before tvm_ffi was imported: ImportError: y"),
        (RAISED[:3], 127, "python: symbol lookup error: z", "status 127 in f, which"),
        (RAISED, 0, "", "the process ended early, after a call"),
        ([], 0, "", "the process ended early, before tvm_ffi was imported"),
        ([LOADED[0], {"step": "refused", "error": "RuntimeError: no\nmore"}], 0, "",
         "cannot be loaded: RuntimeError: no"),
        ([LOADED[0], {"step": "refused", "error": "RuntimeError: Check failed: Failed to load"
          " dynamic shared library /a/b.so /a/b.so: undefined symbol: S"}], 0, "",
         "cannot be loaded: undefined symbol: S"),
        (DONE, 3, "", "status 3 while ending"),
    ],
)  # fmt: skip
def test_faults(events: list[dict[str, str]], status: int, stderr: str, fault: str) -> None:
    faults, _ = judge_probe(events, status, stderr)
    assert len(faults) == 1
    assert fault in faults[0]


def test_good_end() -> None:
    assert judge_probe(DONE, 0, "a warning") == ((), ())


def test_function_that_raises_nothing() -> None:
    events = [*LOADED, {"step": "calls", "function": "g"}, {"step": "returned", "function": "g"}]
    assert judge_probe([*events, {"step": "done"}], 0, "") == ((), ("g",))


def run(outcome: str, **changes: Any) -> RuntimeRun:
    values = {"version": "0.1.9", "predicted": "fits", "admitted": True, "outcome": outcome}
    return RuntimeRun.model_validate(values | changes)


def levels(*runs: RuntimeRun, suite: bool = True) -> list[str]:
    found = judge.ran(DynamicReport(where="v", suite=suite, runs=runs))
    assert {finding.check for finding in found} <= {"runtime"}
    return [finding.level for finding in found]


def test_failure_where_it_is_promised() -> None:
    bad = run("failed", faults=("died",))
    assert levels(run("passed"), bad) == ["error"]
    assert levels(run("failed", predicted="breaks")) == ["error"]
    assert levels(run("failed", admitted=None)) == ["error"]


def test_failure_where_nothing_is_promised() -> None:
    assert levels(run("failed", admitted=False)) == ["note"]
    assert levels(run("failed", admitted=None, predicted="breaks")) == ["note"]
    assert levels(run("failed", admitted=None, predicted="unproven")) == ["warning"]
    assert levels(run("failed", admitted=None, predicted=None)) == ["warning"]


def test_what_was_not_learnt_is_told() -> None:
    assert levels(run("unavailable", faults=("no wheel",))) == ["warning"]
    assert levels(run("passed", predicted="breaks")) == ["note"]
    assert levels(run("passed"), suite=False) == ["note"]
    assert levels(run("passed", silent=("f",))) == ["warning"]
    (finding,) = judge.ran(DynamicReport(where="v", not_run="no device"))
    assert (finding.level, "no device" in finding.message) == ("note", True)


def test_agreement() -> None:
    assert run("passed").agrees is True
    assert run("failed").agrees is False
    assert run("failed", predicted="breaks").agrees is True
    assert run("passed", predicted="breaks").agrees is False
    for unknown in (
        run("unavailable"), run("passed", predicted="unproven"), run("failed", predicted=None)
    ):  # fmt: skip
        assert unknown.agrees is None


def test_verified_needs_tests() -> None:
    runs = (
        run("passed", tests=3), run("passed"), run("passed", tests=0), run("failed", tests=3),
    )  # fmt: skip
    assert DynamicReport(where="v", suite=True, runs=runs).verified == ("0.1.9",)
