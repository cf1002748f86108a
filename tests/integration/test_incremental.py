"""A second run takes over what nothing has changed of, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_ci import reuse, toolchains
from kernel_ci.errors import Rejected
from kernel_ci.gate import Verdict
from kernel_ci.plan import Plan, Selection, host_platform, plan_folders
from kernel_ci.publish import Options, prepare
from kernel_ci.publish.target import Target
from kernel_ci.receipts import Receipt
from kernel_ci.toolchains import zig
from tests.conftest import BINDING, write_tiny
from tests.helpers import HOST_VARIANT, Done, kernel_ci

NAMES = ("negate", "second")


class Workplace:
    """Two kernels, a run of both, and a compiler that tells when it is used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = root / "run"
        self.log = root / "compiled"
        self.compiler = root / "c++"
        target, _ = zig.TARGETS[host_platform()]
        self.compiler.write_text(
            f'#!/bin/sh\ncase " $* " in *" -c "*) echo "$@" >> {self.log};; esac\n'
            f'exec {zig.executable()} c++ -target {target} "$@"\n'
        )
        self.compiler.chmod(0o755)
        for name in NAMES:
            changes = {
                "binding.cc": f'#include "limit.h"\n{BINDING}',
                "limit.h": "#define LIMIT 1\n",
            }
            write_tiny(root / name, changes, name)

    def pipeline(self, *arguments: str) -> Done:
        """Run the pipeline; afterwards `compiled` has what this run compiled."""
        self.log.write_text("")
        folders = [self.root / name for name in NAMES]
        return kernel_ci(
            "pipeline", *folders, "--only", HOST_VARIANT, "-o", self.run,
            "--compiler", self.compiler, *arguments,
        )  # fmt: skip

    def compiled(self) -> set[str]:
        """Return the kernels of which something was compiled."""
        return set(re.findall(rf"{self.root}/(\w+)/\w+\.cc", self.log.read_text()))

    def receipts(self) -> list[Receipt]:
        return [Receipt.read(file) for file in sorted(self.run.glob("*/receipts/*/*.json"))]

    def plan(self) -> Plan:
        folders = [self.root / name for name in NAMES]
        return plan_folders(folders, Selection(only=(HOST_VARIANT,), provable_here=True))

    def taken_over(self) -> set[str]:
        """Return the kernels that a run would take over now."""
        plan = self.plan()
        keys = {
            cell.id: reuse.key(plan, cell, toolchains.find(cell, str(self.compiler)))
            for cell in plan.cells
        }
        return {cell.partition("/")[0] for cell in reuse.find(plan, self.run, keys)}

    @contextmanager
    def changed(self, path: str, content: bytes) -> Iterator[None]:
        """Change a file for a while."""
        file = self.root / path
        before, stat = file.read_bytes(), file.stat()
        try:
            file.write_bytes(content)
            yield
        finally:
            file.write_bytes(before)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    made = Workplace(tmp_path_factory.mktemp("incremental"))
    done = made.pipeline()
    assert done.status == 0, done.out + done.err
    assert made.compiled() == set(NAMES)
    return made


def test_unchanged_run_compiles_nothing(workplace: Workplace) -> None:
    first = workplace.receipts()
    clock = time.monotonic()
    done = workplace.pipeline()
    seconds = time.monotonic() - clock
    assert done.status == 0, done.out + done.err
    assert workplace.compiled() == set()
    assert done.out.count("nothing has changed") == 3 * len(NAMES)

    again = workplace.receipts()
    verdict = Verdict.read(workplace.run / "verdict.json")
    assert verdict.accepted
    for before, after in zip(first, again, strict=True):
        assert after.run == verdict.run != before.run
        assert after.plan == verdict.plan
        assert after.reused == (before.reused or before.run)
        assert (after.digest, after.started, after.counts) == (
            before.digest, before.started, before.counts,
        )  # fmt: skip
    # By far: it is a second against half a minute.
    assert seconds < sum(receipt.seconds for receipt in first)

    # Those who did the work are named, however often it is taken over.
    assert workplace.pipeline().status == 0
    assert [receipt.reused for receipt in workplace.receipts()] == [r.reused for r in again]


@pytest.mark.parametrize("file", ["limit.h", "negate.cc", "build.toml", "tests/test_negate.py"])
def test_any_file_of_the_kernel_counts(workplace: Workplace, file: str) -> None:
    assert workplace.taken_over() == set(NAMES)
    content = (workplace.root / "second" / file).read_bytes()
    mark = b"\n# changed\n" if file.endswith(("toml", "py")) else b"\n// changed\n"
    with workplace.changed(f"second/{file}", content + mark):
        assert workplace.taken_over() == {"negate"}
    assert workplace.taken_over() == set(NAMES)


def test_only_what_changed_is_compiled(workplace: Workplace) -> None:
    content = (workplace.root / "second/limit.h").read_bytes()
    with workplace.changed("second/limit.h", content + b"// changed\n"):
        done = workplace.pipeline()
        assert done.status == 0, done.out + done.err
        assert workplace.compiled() == {"second"}
    # And back again, for the other tests.
    assert workplace.pipeline().status == 0


def test_a_compiler_replaced_in_its_place_counts(workplace: Workplace) -> None:
    with workplace.changed("c++", workplace.compiler.read_bytes() + b"# new\n"):
        assert workplace.taken_over() == set()


def test_what_builds_and_tests_counts(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reuse, "_own_code", lambda: "sha256:other")
        assert workplace.taken_over() == set()
    with monkeypatch.context() as patch:
        patch.setattr(reuse, "version", lambda name: "0.0.1")
        assert workplace.taken_over() == set()
    with monkeypatch.context() as patch:
        patch.setattr(reuse, "installed", lambda: {"numpy": "0.0.1"})
        assert workplace.taken_over() == set()
    plan, find = workplace.plan(), toolchains.find
    with monkeypatch.context() as patch:
        cells = tuple(c.model_copy(update={"tvm_ffi": "0.1.9"}) for c in plan.cells)
        patch.setattr(workplace, "plan", lambda: plan.model_copy(update={"cells": cells}))
        assert workplace.taken_over() == set()
    with monkeypatch.context() as patch:
        patch.setattr(toolchains, "find", lambda cell, _: find(cell, None))
        assert workplace.taken_over() == set()
    assert workplace.taken_over() == set(NAMES)


@pytest.mark.parametrize(
    ("glob", "content"),
    [
        ("second/build/*/*.so", b"no library"),
        ("second/build/*/__init__.py", b"raise SystemExit\n"),
        ("second/build/*/metadata.json", b"{"),
        ("second/receipts/*/test.json", b"{}"),
    ],
)
def test_what_was_tampered_with_is_made_again(
    workplace: Workplace, glob: str, content: bytes
) -> None:
    (file,) = workplace.run.glob(glob)
    with workplace.changed(str(file.relative_to(workplace.root)), content):
        assert workplace.taken_over() == {"negate"}


def test_failed_or_missing_evidence_is_not_taken_over(workplace: Workplace) -> None:
    (file,) = workplace.run.glob("second/receipts/*/audit.json")
    receipt = json.loads(file.read_bytes())
    for change in ({"outcome": "failed"}, {"key": None}, {"cell": "negate/other"}):
        content = json.dumps({**receipt, **change}).encode()
        with workplace.changed(str(file.relative_to(workplace.root)), content):
            assert workplace.taken_over() == {"negate"}
    aside = file.rename(file.with_suffix(".aside"))
    assert workplace.taken_over() == {"negate"}
    aside.rename(file)


def test_fresh_does_everything(workplace: Workplace, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(workplace.run, copy)
    workplace.log.write_text("")
    done = kernel_ci(
        "pipeline", workplace.root / "negate", "--only", HOST_VARIANT, "-o", copy,
        "--compiler", workplace.compiler, "--fresh",
    )  # fmt: skip
    assert done.status == 0, done.out + done.err
    assert workplace.compiled() == {"negate"}
    assert not (copy / "second").exists()


def test_a_real_hub_gets_nothing_that_was_taken_over(workplace: Workplace) -> None:
    assert workplace.pipeline().status == 0
    options = Options(allow_partial=True)
    with pytest.raises(Rejected, match=r"(?s)was taken over from the run .*--fresh"):
        prepare(workplace.run, Target("https://hub.invalid", "token", local=False), options)
    assert prepare(workplace.run, Target("http://127.0.0.1:9", "token", local=True), options)
