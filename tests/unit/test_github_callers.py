"""Whether callers grant what the workflows need."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kernel_ci.errors import InputError
from kernel_ci.github import callers

ROOT = Path(__file__).parents[2]


def workflow(called: str, permissions: str = "", top: str = "") -> str:
    return f"""
on: push
{top}
jobs:
  other:
    runs-on: ubuntu-24.04
  kernels:
    {permissions}
    uses: {called}
"""


BUILD = "acme/kernel-ci/.github/workflows/build.yml@v1"
RELEASE = "acme/kernel-ci/.github/workflows/release.yml@" + "a" * 40


@pytest.mark.parametrize(
    "text",
    [
        workflow(BUILD),
        workflow(BUILD, "permissions: {contents: read}", "permissions: {}"),
        workflow(BUILD, "permissions: read-all"),
        workflow(BUILD, top="permissions: {contents: write}"),
        workflow(RELEASE, "permissions: {contents: read, id-token: write}"),
        workflow(RELEASE, "permissions: write-all"),
        workflow("acme/other/.github/workflows/build.yml@v1", "permissions: {}"),
        "on: push",
    ],
)
def test_enough(text: str) -> None:
    assert callers.check_workflow(text, "x.yml") == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (workflow(BUILD, top="permissions: {}"), "contents"),
        (workflow(BUILD, "permissions: {id-token: write}"), "contents"),
        (workflow(RELEASE), "id-token"),
        (workflow(RELEASE, "permissions: read-all"), "id-token"),
        (workflow(RELEASE, "permissions: {}"), "contents, id-token"),
        (workflow("$/.github/workflows/release.yml"), "id-token"),
    ],
)
def test_too_little(text: str, missing: str) -> None:
    (finding,) = callers.check_workflow(text, "x.yml")
    assert f"does not grant {missing} to" in finding.message
    assert "uses:" in text.splitlines()[finding.line - 1]
    # The lines to add are right.
    added = "permissions:" + finding.message.partition("permissions:")[2]
    fixed = workflow("X").replace("uses: X", added.replace("\n  ", "\n  ") + "\n    uses: X")
    granted = yaml.safe_load(fixed)["jobs"]["kernels"]["permissions"]
    assert set(missing.split(", ")) <= set(granted)


def test_needs_are_those_of_the_workflows() -> None:
    for name, needs in callers.NEEDS.items():
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        asked: dict[str, str] = {}
        for job in yaml.safe_load(text)["jobs"].values():
            asked |= job["permissions"]
        assert asked == {scope: level for scope, (level, _) in needs.items()}


def test_this_repository() -> None:
    assert callers.check(ROOT) == []


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        callers.check(tmp_path / "missing")


def test_yaml_without_end() -> None:
    with pytest.raises(InputError, match="is not YAML: maximum recursion depth"):
        callers.check_workflow("[" * 3000, "w.yml")


def test_no_yaml() -> None:
    with pytest.raises(InputError, match=r"x.yml: is not YAML"):
        callers.check_workflow("a: [", "x.yml")
