"""What the local Hub's server decides without a connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.errors import InputError
from kernel_ci.hub.server import (
    LFS_THRESHOLD,
    card_faults,
    serve,
    tree_entries,
    upload_mode,
)
from kernel_ci.hub.store import EntryNotFound, StoredFile


@pytest.mark.parametrize(
    ("path", "size", "sample", "mode"),
    [
        ("build/x/__init__.py", 10, b"x = 1", "regular"),
        ("build/x/_relu.so", 10, b"x", "lfs"),
        ("build/x/_RELU.DLL", 10, b"x", "lfs"),
        ("notes", 10, b"a\0b", "lfs"),
        ("notes", LFS_THRESHOLD, b"text", "regular"),
        ("notes", LFS_THRESHOLD + 1, b"text", "lfs"),
        ("so", 10, b"text", "regular"),
    ],
)
def test_upload_mode(path: str, size: int, sample: bytes, mode: str) -> None:
    assert upload_mode(path, size, sample) == mode


@pytest.mark.parametrize(
    ("card", "errors", "warnings"),
    [
        ("---\nlicense: mit\ntags: [kernel]\n---\n# Relu\n", 0, 0),
        ("---\r\nlicense: mit\r\n---\r\n", 0, 0),
        ("# Relu\n", 0, 1),
        ("", 0, 1),
        ("---\n---\n", 0, 1),
        ("---\n\n---\n", 0, 1),
        ("---\nlicense: [\n---\n", 1, 0),
        ("---\n- a\n---\n", 1, 0),
    ],
)
def test_card_faults(card: str, errors: int, warnings: int) -> None:
    found = card_faults(card)
    assert (len(found[0]), len(found[1])) == (errors, warnings)


def files(*paths: str) -> dict[str, StoredFile]:
    return {path: StoredFile(sha256="0" * 64, size=1, oid="0" * 40, lfs=False) for path in paths}


def test_tree_entries() -> None:
    tree = files("README.md", "build/a/x.py", "build/a/y/z.py", "build/b.py", "builder/c")

    def names(folder: str, recursive: bool) -> list[str]:
        entries = tree_entries(tree, folder, recursive=recursive)
        return [entry["path"] + ("/" if entry["type"] == "directory" else "") for entry in entries]

    assert names("", False) == ["README.md", "build/", "builder/"]
    assert names("build", False) == ["build/a/", "build/b.py"]
    assert names("build", True) == [
        *("build/a/", "build/a/x.py", "build/a/y/", "build/a/y/z.py", "build/b.py"),
    ]
    assert len(names("", True)) == 9
    for missing in ("buil", "README.md", "build/c"):
        with pytest.raises(EntryNotFound):
            tree_entries(tree, missing, recursive=True)
    assert tree_entries({}, "", recursive=True) == []


def test_folder_ids_follow_the_content() -> None:
    def oid(tree: dict[str, StoredFile]) -> str:
        return str(tree_entries(tree, "", recursive=False)[0]["oid"])

    one = files("build/a", "build/b")
    other = {**one, "build/b": StoredFile(sha256="1" * 64, size=1, oid="1" * 40, lfs=False)}
    assert oid(one) == oid(files("build/b", "build/a"))
    assert len({oid(one), oid(other), oid(files("build/a"))}) == 3


def test_other_machines_cannot_write_without_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InputError, match="could replace kernels"):
            serve(tmp_path / "hub", host=host)
    assert not (tmp_path / "hub").exists()
