"""Breaking one thing at a time: the gate refuses, names the cell, and says why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_ci.cli import main
from tests.helpers import HOST_VARIANT, Run, kernel_ci

CELL = f"relu-tvm-ffi/{HOST_VARIANT}"


@pytest.fixture
def run(reference_run: Run, tmp_path: Path) -> Path:
    """A copy of a good run, to be broken."""
    return Path(shutil.copytree(reference_run.folder, tmp_path / "run"))


def judged(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Run the gate; return its exit code and the reasons for the cell."""
    status = main(["gate", str(run / "plan.json"), str(run)])
    output = capsys.readouterr().out
    verdict = json.loads((run / "verdict.json").read_bytes())
    (cell,) = verdict["cells"]
    assert cell["id"] == CELL
    assert verdict["accepted"] == (status == 0)
    for reason in cell["reasons"]:
        assert CELL in output
        assert reason[:30] in output
    return status, cell["reasons"]


def receipt(run: Path, stage: str) -> Path:
    return run / "relu-tvm-ffi" / "receipts" / HOST_VARIANT / f"{stage}.json"


def variant(run: Path) -> Path:
    return run / "relu-tvm-ffi" / "build" / HOST_VARIANT


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))


def test_a_good_run_is_accepted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(run, capsys) == (0, [])


@pytest.mark.parametrize("stage", ["build", "audit", "test"])
def test_receipt_missing(run: Path, stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    receipt(run, stage).unlink()
    status, reasons = judged(run, capsys)
    assert status == 1
    assert reasons == [f"{stage}: there is no receipt; the stage did not run"]


def test_a_byte_of_the_library_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (library,) = variant(run).glob("*.so")
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    status, reasons = judged(run, capsys)
    assert status == 1
    assert all("the variant directory is not the one" in reason for reason in reasons)
    assert [reason.partition(":")[0] for reason in reasons] == ["build", "audit", "test"]


@pytest.mark.parametrize("change", ["file added", "file removed", "metadata edited"])
def test_the_directory_changed(run: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    if change == "file added":
        (variant(run) / "extra.py").write_text("")
    elif change == "file removed":
        (variant(run) / "layers.py").unlink()
    else:
        edit(variant(run) / "metadata.json", license="MIT")
    status, reasons = judged(run, capsys)
    assert status == 1
    assert all("the variant directory is not the one" in reason for reason in reasons)


def test_nobody_built_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "relu-tvm-ffi")
    status, reasons = judged(run, capsys)
    assert status == 1
    assert reasons[0] == "nobody built it: there is no variant directory"


def test_metadata_is_not_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (variant(run) / "metadata.json").write_text("{")
    status, reasons = judged(run, capsys)
    assert status == 1
    assert reasons[0].startswith("cannot be read")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"run": "another"}, "test: the receipt is of another run"),
        ({"plan": "sha256:0"}, "test: the receipt is of another plan"),
        ({"cell": "other/cell"}, "test: the receipt is of another cell"),
        ({"stage": "build"}, "test: the receipt is of another stage"),
        ({"digest": "sha256:0"}, "test: the variant directory is not the one"),
        ({"counts": None}, "test: no test was run"),
        ({"counts": {"passed": 0, "skipped": 3}}, "test: no test was run"),
        ({"counts": {"passed": 3, "failed": 1}}, "test: 1 failed"),
        ({"outcome": "failed", "findings": ["boom"]}, "test: failed: boom"),
        ({"skips": ["test_a.py::test_x: not today"], "counts": {"passed": 1, "skipped": 1}},
         "test: skipped, and nobody declared it: test_a.py::test_x: not today"),
        ({"skips": [], "counts": {"passed": 1, "skipped": 2}},
         "test: tests were skipped that the receipt does not name"),
        ({"extra": 1}, "test: the receipt is not valid"),
        ({"format": 2}, "test: the receipt is not valid"),
        ({"kind": "kernel-ci plan"}, "test: the receipt is not valid"),
    ],
)  # fmt: skip
def test_receipt_is_no_evidence(
    run: Path, values: dict[str, object], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(receipt(run, "test"), **values)
    status, reasons = judged(run, capsys)
    assert status == 1
    assert len(reasons) == 1
    assert reasons[0].startswith(reason)


def test_receipt_that_is_not_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receipt(run, "audit").write_text("passed")
    status, reasons = judged(run, capsys)
    assert status == 1
    assert reasons[0].startswith("audit: the receipt is not valid: is not JSON")


def test_edited_plan_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads((run / "plan.json").read_bytes())
    plan["cells"][0]["evidence"] = "build-only"
    (run / "plan.json").write_text(json.dumps(plan))
    assert main(["gate", str(run / "plan.json"), str(run)]) == 2
    assert "was changed after it was made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        ("", "test: failed: no test was run"),
        ("def test_it(kernel):\n    assert not kernel\n", "test: failed: test_negate.py::test_it"),
    ],
    ids=["no test collected", "failing test"],
)
def test_suite_that_proves_nothing(
    suite: str, reason: str, tmp_path: Path, tiny_kernel: Callable[..., Path]
) -> None:
    run = tmp_path / "run"
    done = kernel_ci("pipeline", tiny_kernel(suite=suite), "--only", HOST_VARIANT, "-o", run)
    assert done.status == 1, done.out + done.err
    (cell,) = json.loads((run / "verdict.json").read_bytes())["cells"]
    assert not cell["proved"]
    assert any(found.startswith(reason) for found in cell["reasons"]), cell["reasons"]
    assert f"negate/{HOST_VARIANT}" in done.out


def test_declared_skip_is_accepted(tmp_path: Path, tiny_kernel: Callable[..., Path]) -> None:
    suite = (
        "import pytest\n\n\ndef test_it(kernel): ...\n\n\n@pytest.mark.skip(reason='later')\n"
        "def test_two(): ...\n"
    )
    done = kernel_ci(
        "pipeline", tiny_kernel(suite=suite), "--only", HOST_VARIANT, "-o", tmp_path / "run",
        "--allow-skip", "*::test_two",
    )  # fmt: skip
    assert done.status == 0, done.out + done.err


def test_compiler_error_is_told(tmp_path: Path, tiny_kernel: Callable[..., Path]) -> None:
    kernel = tiny_kernel(source="#error this is not finished\n")
    done = kernel_ci("pipeline", kernel, "--only", HOST_VARIANT, "-o", tmp_path / "run")
    assert done.status == 1
    assert "this is not finished" in done.out
    assert "Traceback" not in done.out + done.err


def test_sources_changed_after_the_plan(tmp_path: Path, tiny_kernel: Callable[..., Path]) -> None:
    kernel = tiny_kernel()
    plan = tmp_path / "run" / "plan.json"
    assert kernel_ci("plan", kernel, "--only", HOST_VARIANT, "-o", plan).status == 0
    (kernel / "negate.cc").write_text("// something else\n")
    done = kernel_ci("build", plan)
    assert done.status == 2
    assert "not those that the plan was made for" in done.err
