"""Every example of docs/workflows.md runs, and its tables are those of the workflows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kernel_ci.github import callers
from tests.workflows.harness import ROOT, Caller
from tests.workflows.test_build import VARIANT

PAGE = (ROOT / "docs" / "workflows.md").read_text()
EXAMPLES = dict(re.findall(r"```yaml\n# example: (\S+)\n(.*?)```", PAGE, re.DOTALL))


def test_all_examples_are_run() -> None:
    assert set(EXAMPLES) == {"hosted", "collection", "hf-jobs", "old-runner"}
    assert PAGE.count("```yaml") == len(EXAMPLES)


def test_hosted(caller: Caller) -> None:
    caller.kernel(at=".")
    caller.workflow(EXAMPLES["hosted"])
    caller.commit()
    run = caller.run()
    assert run.exit_code == 0, run
    assert run.verdict()["accepted"]


def test_collection(caller: Caller) -> None:
    caller.kernel("one")
    caller.kernel("two")
    caller.workflow(EXAMPLES["collection"])
    base = caller.commit()
    (caller.folder / "kernels" / "two" / "CARD.md").write_text("# two\n")
    caller.commit()
    head = {"sha": "f" * 40, "repo": {"full_name": "acme/caller"}}
    payload = {
        "pull_request": {"head": head, "base": {"sha": base, "repo": {"full_name": "acme/caller"}}}
    }
    run = caller.run("pull_request", payload, runners=("ubuntu-24.04", "linux"))
    # ROCm and XPU have no toolchain on this machine; the CPU's variant is proved all the same.
    assert f"two/{VARIANT}" in run.cells("build-0")
    assert not any(str(cell).startswith("one/") for cell in run.cells("build-0"))
    proved = {cell["id"]: cell["proved"] for cell in run.verdict()["cells"]}
    assert proved[f"two/{VARIANT}"]
    declared = {cell["id"]: cell["declared"] for cell in run.verdict()["cells"]}
    assert declared["two/tvm-ffi01-rocm72-x86_64-linux"] == "declared by the caller: no AMD GPU yet"


def test_old_runner(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(EXAMPLES["old-runner"])
    caller.commit()
    run = caller.run()
    assert run.exit_code == 0, run
    assert run.ran() == {"plan", "build", "test", "gate"}
    assert run.verdict()["accepted"]


@pytest.mark.parametrize("name", ["build", "release"])
def test_tables(name: str) -> None:
    section = PAGE.partition(f"\n## {name}.yml\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `([\w:-]+(?: \w+)?)` \|", section, re.M))
    text = Path(ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    # YAML 1.1 reads the key `on` as true.
    call = yaml.safe_load(text)[True]["workflow_call"]
    permissions = {f"{scope}: {level}" for scope, (level, _) in callers.NEEDS[name].items()}
    assert rows == {*call["inputs"], *call["outputs"], *call["secrets"], *permissions}
    for key, item in call["inputs"].items():
        default = item["default"]
        shown = f"`{str(default).lower() if item['type'] == 'boolean' else default}`"
        row = f"| `{key}` | {shown if default != '' else ''} | {item['description']} |"
        assert row in section, row
    for kind in ("outputs", "secrets"):
        for key, item in call[kind].items():
            assert f"| `{key}` | {item['description']} |" in section, key
    for key, (level, why) in callers.NEEDS[name].items():
        assert f"| `{key}: {level}` | {why} |" in section, key
