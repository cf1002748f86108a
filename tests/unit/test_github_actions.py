"""What GitHub gives a step, and what a step gives back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernel_ci.errors import InputError
from kernel_ci.github import actions
from tests.helpers import ROOT


def event(tmp_path: Path, name: str, payload: Any, **environ: str) -> actions.Event:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(payload))
    return actions.read_event(
        {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": "acme/kernels",
            "GITHUB_SHA": "c" * 40,
            **environ,
        }
    )


def pull(head: Any) -> dict[str, Any]:
    return {
        "pull_request": {
            "head": {"sha": "a" * 40, "repo": head},
            "base": {"sha": "b" * 40, "repo": {"full_name": "acme/kernels"}},
        }
    }


@pytest.mark.parametrize(
    ("head", "fork"),
    [
        ({"full_name": "acme/kernels"}, False),
        ({"full_name": "stranger/kernels"}, True),
        (None, True),
    ],
    ids=["own", "fork", "deleted"],
)
@pytest.mark.parametrize("name", ["pull_request", "pull_request_review"])
def test_pull_requests(tmp_path: Path, name: str, head: Any, fork: bool) -> None:
    found = event(tmp_path, name, pull(head))
    assert found.fork is fork
    assert (found.head, found.base) == ("a" * 40, "b" * 40)


@pytest.mark.parametrize("name", ["pull_request_target", "workflow_run"])
def test_events_with_secrets_for_a_forks_code_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="on: pull_request"):
        event(tmp_path, name, pull({"full_name": "stranger/kernels"}))


def test_pushes(tmp_path: Path) -> None:
    found = event(tmp_path, "push", {"before": "d" * 40}, GITHUB_REF="refs/heads/main")
    assert (found.fork, found.head, found.base, found.tag) == (False, "c" * 40, "d" * 40, None)
    assert event(tmp_path, "push", {"before": "0" * 40}).base is None
    assert event(tmp_path, "push", {}, GITHUB_REF="refs/tags/v1.0").tag == "v1.0"
    # A branch may be called like a tag.
    assert event(tmp_path, "push", {}, GITHUB_REF="refs/heads/refs/tags/v1").tag is None


def test_merge_groups(tmp_path: Path) -> None:
    payload = {"merge_group": {"head_sha": "e" * 40, "base_sha": "f" * 40}}
    found = event(tmp_path, "merge_group", payload)
    assert (found.head, found.base) == ("e" * 40, "f" * 40)


def test_desk() -> None:
    assert actions.read_event({}) == actions.Event()


def test_broken_event(tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text("{")
    with pytest.raises(InputError, match="the event cannot be read"):
        actions.read_event({"GITHUB_EVENT_PATH": str(tmp_path / "event.json")})


def test_commands_are_escaped() -> None:
    text = actions.command("error", "100%\nnext", file="a,b:c.cc", line=3, title="x")
    assert text == "::error file=a%2Cb%3Ac.cc,line=3,title=x::100%25%0Anext"
    assert actions.command("notice", "plain") == "::notice::plain"


def test_outputs_cannot_be_forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(file))
    actions.outputs(plan_id="sha256:1\nverdict=accepted\nEOF")
    lines = file.read_text().splitlines()
    name, mark = lines[0].split("<<")
    assert name == "plan-id"
    assert lines[1:] == ["sha256:1", "verdict=accepted", "EOF", mark]
    actions.outputs(plan_id="x")
    assert mark not in file.read_text().splitlines()[5:]


@pytest.mark.parametrize(
    ("call", "value", "message"),
    [
        (lambda: actions.flag("CHANGED_ONLY"), "yes", "input changed-only: is 'yes'"),
        (lambda: actions.choice("TIER", ("full", "quick")), "fast", "input tier: is 'fast'"),
        (lambda: actions.required("CELL"), "  ", "input cell: is missing"),
    ],
)
def test_inputs(monkeypatch: pytest.MonkeyPatch, call: Any, value: str, message: str) -> None:
    for name in ("CHANGED_ONLY", "TIER", "CELL"):
        monkeypatch.setenv(f"IN_{name}", value)
    with pytest.raises(InputError, match=message):
        call()


def test_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IN_KERNELS", " a\n  b\tc ")
    assert actions.words("KERNELS") == ("a", "b", "c")
    assert actions.words("NOTHING") == ()


def test_a_former_name_works_on_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(actions, "former_names", lambda: {"gpu-runners": "runners"})
    monkeypatch.setenv("IN_RUNNERS", "new.toml")
    assert actions.text("RUNNERS") == "new.toml"
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("IN_GPU_RUNNERS", "old.toml")
    assert actions.text("RUNNERS") == "old.toml"
    assert "`gpu-runners` is deprecated: use `runners`" in capsys.readouterr().out
    assert actions.text("KERNELS", "none") == "none"


#: Of every version that was released; new ones are added, none is taken away before v2.
INPUTS = Path(__file__).parent / "golden" / "inputs.json"


def test_no_input_goes_away() -> None:
    files = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("actions/*/action.yml")]
    now = {}
    for path in files:
        content = yaml.safe_load(path.read_text())
        # YAML 1.1 reads the key `on` as true.
        call = content.get(True, {}).get("workflow_call", {})
        if inputs := content.get("inputs") or call.get("inputs"):
            now[path.relative_to(ROOT).as_posix()] = sorted(inputs)
    released: dict[str, list[str]] = json.loads(INPUTS.read_text())
    for name, inputs in released.items():
        assert set(inputs) <= set(now[name]), "deprecate it in data/github.toml instead"
    assert now == released, f"a new input; once released it stays: add it to {INPUTS.name}"
    for former in actions.former_names():
        given = f"${{{{ inputs.{former} }}}}"
        assert any(given in path.read_text() for path in files), f"nothing hands on {former}"


def test_an_error_is_shown_at_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (tmp_path / "build.toml").touch()
    actions.annotate_error(InputError("is wrong", where="build.toml: general.name", fix="change"))
    actions.annotate_error(InputError("is wrong", where="nowhere"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=build.toml,title=kernel-ci%3A bad input::")
    assert second.startswith("::error title=")


def test_a_summary_is_no_larger_than_github_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    actions.summary("first")
    assert file.read_bytes() == b"first\n"
    for _ in range(2):
        actions.summary("\n".join(["ä" * 500] * 3000))
        size = file.stat().st_size
        assert size <= actions.SUMMARY_LIMIT
    text = file.read_text(encoding="utf-8")
    assert size > actions.SUMMARY_LIMIT - 2000
    assert "The rest is left out" in text
    assert {line for line in text.splitlines()[1:-2] if "left out" not in line} == {"ä" * 500, ""}
