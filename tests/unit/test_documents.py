"""Documents: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.documents import canonical_digest, write_atomic
from kernel_ci.errors import InputError
from kernel_ci.receipts import Counts, Receipt, this_machine


def receipt() -> Receipt:
    return Receipt(
        plan="sha256:0",
        run="local-1",
        cell="k/tvm-ffi01-cpu-x86_64-linux",
        stage="test",
        digest="sha256:1",
        outcome="passed",
        counts=Counts(passed=3),
        machine=this_machine(),
        started="2026-01-01T00:00:00+00:00",
        seconds=1.5,
        reproduce="kernel-ci test plan.json .",
    )


def test_round_trip(tmp_path: Path) -> None:
    receipt().write(tmp_path / "deep" / "receipt.json")
    assert Receipt.read(tmp_path / "deep" / "receipt.json") == receipt()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["receipt.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "kernel-ci plan"}, "kind is 'kernel-ci plan', expected 'kernel-ci receipt'"),
        ({"kind": None}, "kind is None"),
        ({"format": 2}, "format is 2, expected 1"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"outcome": "maybe"}, "outcome: Input should be 'passed' or 'failed'"),
        ({"seconds": "long"}, "seconds: "),
        ({"counts": {"passed": 1, "lost": 2}}, "counts.lost: Extra inputs are not permitted"),
    ],
)
def test_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(json.loads(receipt().to_json()) | change))
    with pytest.raises(InputError) as error:
        Receipt.read(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'"text"'])
def test_not_a_document(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"receipt\.json: is not"):
        Receipt.read(file)


def test_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Receipt.read(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        Receipt.read(tmp_path)


def test_a_failing_write_leaves_the_former_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_atomic(file, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_canonical_digest_ignores_order_and_sees_content() -> None:
    assert canonical_digest({"a": 1, "b": [2]}) == canonical_digest({"b": [2], "a": 1})
    assert canonical_digest({"a": 1}) != canonical_digest({"a": 2})
