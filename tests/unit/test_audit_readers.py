"""A library's marks are found wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.abi.table import notes
from kernel_ci.audit import readers

TEXTS = [(marker.feature, text) for marker in notes().marker for text in marker.text]


@pytest.mark.parametrize(("feature", "text"), TEXTS)
def test_mark_across_two_pieces(
    feature: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_PIECE", 64)
    file = tmp_path / "library.so"
    for before in range(64 - len(text), 65):
        file.write_bytes(b"x" * before + text.encode() + b"x" * 200)
        assert readers.find_features(file) == (feature,), before


def test_marks_of_all(tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(b"\0".join(text.encode() for _, text in TEXTS))
    assert readers.find_features(file) == tuple(marker.feature for marker in notes().marker)


def test_no_marks(tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(b"")
    assert readers.find_features(file) == ()
    file.write_bytes(b"ffi" * 1000)
    assert readers.find_features(file) == ()
