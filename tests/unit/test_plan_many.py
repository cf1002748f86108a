"""Planning many kernels: git is asked once a repository, and the table stays readable."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from kernel_ci import source
from kernel_ci.matrix import Matrix
from kernel_ci.plan import Selection, make_plan
from kernel_ci.report import show_plan
from kernel_ci.source import Source, inspect, inspect_all
from tests.helpers import REFERENCE, commit


def test_git_is_asked_as_often_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "ab", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.cc").write_text(name)
    commit(tmp_path)
    # Its name begins with that of `a`, which must not become dirty by it.
    (tmp_path / "ab" / "new.cc").write_text("")
    folders = [tmp_path / name for name in ("a", "ab", "b")]
    alone = [inspect(folder) for folder in folders]
    assert [state.dirty for state in alone] == [False, True, False]
    asked = []
    ask = source._git

    def count(folder: Path, *arguments: str) -> str | None:
        asked.append(arguments)
        return ask(folder, *arguments)

    monkeypatch.setattr(source, "_git", count)
    assert inspect_all([(folder, ()) for folder in folders]) == alone
    assert len(asked) == 5


def test_many_cells_are_counted() -> None:
    from dataclasses import replace

    from kernel_ci.kernel import Kernel

    kernel = Kernel.read(REFERENCE)
    general = kernel.general
    kernels = []
    for number in range(40):
        hub = general.hub.model_copy(update={"repo_id": f"a/b{number}"})
        update = {"name": f"k{number:02}", "hub": hub}
        kernels.append(replace(kernel, general=general.model_copy(update=update)))
    made = make_plan(
        [(kernel, Source(digest="sha256:0"), kernel.name) for kernel in kernels],
        Matrix.read(),
        Selection(),
        run="r",
    )
    console = Console(record=True, width=200, file=io.StringIO())
    show_plan(console, made, explain=False)
    text = console.export_text()
    assert "k07" not in text
    assert f"{len(made.cells)} planned, of 40 kernels" in text
    show_plan(console, made, explain=True)
    assert "k07/" in console.export_text()
