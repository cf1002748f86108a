"""Predictions against runs: which releases a library works on, by its file and in fact.

By default the reference kernel under releases from each side of each change. With
`KERNEL_CI_MATRIX=all` (`nox -s abi`) that kernel and the probes under every release that can
be installed, with their tests; this takes some minutes, and proves the table in docs/abi.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from kernel_ci.abi import table
from kernel_ci.audit.dynamic import Suite, audit_dynamic
from kernel_ci.audit.report import RuntimeRun
from tests import probes
from tests.helpers import HOST_VARIANT, REFERENCE, ROOT, Run

EVERYTHING = os.environ.get("KERNEL_CI_MATRIX") == "all"
EDGES = "0.1.0,0.1.7,0.1.8.post2,0.1.12,0.1.13,0.1.13.post2,0.1.14.post0,newest"


class Kind(NamedTuple):
    """A library of the matrix: its source, the headers, and what a test of it asserts."""

    title: str
    source: str
    headers: str
    body: str


KINDS = {
    "plain": Kind("values and errors", probes.CHECKED, "0.1.15.post2",
                  "assert kernel.run(3) == 3\nwith pytest.raises(ValueError): kernel.run(-1)"),
    "old": Kind("values and errors", probes.CHECKED, "0.1.9",
                "assert kernel.run(3) == 3\nwith pytest.raises(ValueError): kernel.run(-1)"),
    "bad": Kind("values and errors", probes.CHECKED, "0.1.13",
                "assert kernel.run(3) == 3\nwith pytest.raises(ValueError): kernel.run(-1)"),
    "list": Kind("`List`", probes.LIST, "0.1.9", "assert list(kernel.run(2)) == [0, 1]"),
    "module": Kind("`Module` in C++", probes.MODULE, "0.1.9",
                   "ops = kernel._ops.ops\n"
                   "assert kernel.run(ops, 'run')\nassert not kernel.run(ops, 'no')"),
    "odd module": Kind("`Module` in C++", probes.MODULE, "0.1.13",
                       "ops = kernel._ops.ops\n"
                       "assert kernel.run(ops, 'run')\nassert not kernel.run(ops, 'no')"),
    "old json": Kind("`json::Stringify`", probes.JSON, "0.1.9",
                     "assert kernel.run([1, 2]) == '[1,2]'"),
    "json": Kind("`json::Stringify`", probes.JSON, "0.1.15.post2",
                 "assert kernel.run([1, 2]) == '[1,2]'"),
    "cause": Kind("an error's cause", probes.CAUSE, "0.1.15.post2",
                  "def bad():\n    raise ValueError('x')\nassert kernel.run(bad) is False"),
}  # fmt: skip


def spans(versions: Sequence[str]) -> str:
    """Return releases in words, e.g. `0.1.0 to 0.1.12, 0.1.13.post1`."""
    known = table().versions
    if tuple(versions) == known:
        return f"all {len(known)}"
    found: list[list[str]] = []
    for version in versions:
        if found and table().order(found[-1][-1]) + 1 == table().order(version):
            found[-1].append(version)
        else:
            found.append([version])
    return ", ".join(f"{s[0]} to {s[-1]}" if len(s) > 1 else s[0] for s in found) or "none"


def row(title: str, headers: str, runs: Sequence[RuntimeRun]) -> str:
    """Return a line of the table in docs/abi.md."""
    predicted = spans([run.version for run in runs if run.predicted == "fits"])
    doubtful = [run.version for run in runs if run.predicted == "unproven"]
    predicted += f"; unproven {spans(doubtful)}" if doubtful else ""
    measured = spans([run.version for run in runs if run.outcome == "passed"])
    return f"| {title} | {headers} | {predicted} | {measured} |"


def test_reference_kernel(reference_run: Run) -> None:
    directory = reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT
    suite = Suite(REFERENCE / "tests") if EVERYTHING else None
    report = audit_dynamic(directory, "all" if EVERYTHING else EDGES, suite=suite)
    runs = report.dynamic[0].runs
    assert report.ok
    assert len(runs) == (len(table().versions) if EVERYTHING else EDGES.count(",") + 1)
    assert {run.version: run.agrees for run in runs} == {run.version: True for run in runs}
    assert runs[0].version == table().versions[0]
    page = (ROOT / "docs" / "abi.md").read_text()
    headers = report.all_libraries()[0].window.headers
    assert headers is not None
    everywhere = f"all {len(table().versions)}"
    line = f"| the reference kernel | {headers} | {everywhere} | {everywhere} |"
    assert line in page
    if EVERYTHING:
        assert row("the reference kernel", headers, runs) == line


@pytest.mark.skipif(not EVERYTHING, reason="KERNEL_CI_MATRIX=all runs it")
@pytest.mark.parametrize("name", KINDS)
def test_every_release(name: str, forge: Path, tmp_path: Path) -> None:
    kind = KINDS[name]
    library = probes.compile_library(
        forge, kind.source, "-Wl,-z,nodelete", compiler=probes.ZIG, headers=kind.headers
    )
    directory = probes.assemble(tmp_path / "build", library, floor=None)
    suite = Suite(probes.write_suite(tmp_path / "tests", kind.body))
    runs = audit_dynamic(directory, "all", suite=suite).dynamic[0].runs
    assert [run.version for run in runs] == list(table().versions)
    wrong = [run for run in runs if run.agrees is False]
    assert not wrong
    assert row(kind.title, kind.headers, runs) in (ROOT / "docs" / "abi.md").read_text()
