"""Tags, caches, collecting, retries, environments, versions, and the problem matchers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from kernel_ci.errors import InfrastructureError, InputError, Rejected
from kernel_ci.github import cache, environments, summary, versions
from kernel_ci.github.collect import collect
from kernel_ci.github.legs import MATRICES, artifact
from kernel_ci.github.retry import TRIES, retry
from kernel_ci.github.tags import release_of
from tests.unit.test_github_legs import cell, plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("tag", "chosen"),
    [
        (None, {"relu", "gelu-fast"}),
        ("v1", {"relu", "gelu-fast"}),
        ("v1.2.3", {"relu", "gelu-fast"}),
        ("relu-v1.0", {"relu"}),
        ("gelu-fast/v1", {"gelu-fast"}),
    ],
)
def test_tags(tag: str | None, chosen: set[str]) -> None:
    assert release_of(tag, {"relu": 1, "gelu-fast": 1}) == chosen


@pytest.mark.parametrize("tag", ["1.0", "v", "relu", "v1-rc1", "v1.0/x", "swish-v1", "relu-1.0"])
def test_tags_of_another_form(tag: str) -> None:
    with pytest.raises(InputError):
        release_of(tag, {"relu": 1})


def test_a_tag_of_another_version() -> None:
    with pytest.raises(Rejected, match="relu says version = 1"):
        release_of("v2.0", {"relu": 1})
    with pytest.raises(Rejected, match="gelu says version = 2"):
        release_of("v1.0", {"relu": 1, "gelu": 2})


@pytest.mark.parametrize(
    "change",
    [
        {"tvm_ffi": "0.1.15.post1"},
        {"archs": ("9.0",)},
        {"backend_version": "13.0"},
        {"toolchain": "nvcc"},
        {"platform": "aarch64-linux"},
    ],
)
def test_cache_keys_hold_what_objects_depend_on(change: dict[str, Any]) -> None:
    base = cache.key_prefix(cell("a"), "zig 0.15", "x86_64-linux")
    assert cache.key_prefix(cell("a", **change), "zig 0.15", "x86_64-linux") != base
    assert cache.key_prefix(cell("a"), "zig 0.16", "x86_64-linux") != base
    assert cache.key_prefix(cell("a"), "zig 0.15", "x86_64-linux") == base


def test_launchers(tmp_path: Path) -> None:
    program = tmp_path / "ccache"
    program.touch(0o755)
    environ = {"PATH": str(tmp_path), "CMAKE_CXX_COMPILER_LAUNCHER": "mine"}
    found = cache.launchers("nvcc", environ)
    assert found["CMAKE_CUDA_COMPILER_LAUNCHER"] == "ccache"
    assert found["CCACHE_NOHASHDIR"] == "1"
    assert "CMAKE_CXX_COMPILER_LAUNCHER" not in found
    assert cache.launchers("zig", environ) == {}
    assert cache.launchers("nvcc", {"PATH": "/nowhere"}) == {}


def test_retry() -> None:
    pauses: list[float] = []
    calls = iter([InfrastructureError("x"), InfrastructureError("x"), None])

    def call() -> str:
        if (error := next(calls)) is not None:
            raise error
        return "done"

    assert retry(call, sleep=pauses.append) == "done"
    assert pauses == [5.0, 10.0]


@pytest.mark.parametrize(("error", "tries"), [(InfrastructureError, TRIES), (Rejected, 1)])
def test_retry_is_bounded_and_for_infrastructure_only(error: type[Exception], tries: int) -> None:
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        raise error("x")

    with pytest.raises(error):
        retry(call, sleep=lambda seconds: None)
    assert count == tries


def test_collect_takes_only_what_belongs_to_the_cell(tmp_path: Path) -> None:
    first, second = cell("a"), cell("b")
    made = plan(first, second)
    left = tmp_path / "artifacts" / artifact(made.id, "cell-test", first.id)
    variant = first.variant
    for name in (
        f"a/receipts/{variant}/test.json",
        f"a/receipts/{variant}/build.json",
        f"b/receipts/{variant}/test.json",
        f"a/build/{variant}/x.so",
    ):
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).write_text(name)
    folder = tmp_path / "run"
    ignored = collect(made, tmp_path / "artifacts", folder)
    assert [
        path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.is_file()
    ] == [f"a/receipts/{variant}/test.json"]
    assert len(ignored) == 3


def test_collect_takes_what_a_build_leaves(tmp_path: Path) -> None:
    first = cell("a")
    made = plan(first)
    left = tmp_path / "artifacts" / artifact(made.id, "cell-build", first.id)
    names = [
        f"a/build/{first.variant}/x.so",
        f"a/receipts/{first.variant}/build.json",
        f"a/wheels/{first.variant}/a.whl",
    ]
    for name in names:
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).write_text(name)
    folder = tmp_path / "run"
    assert collect(made, tmp_path / "artifacts", folder) == []
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*")) == names


def test_collect_refuses_links(tmp_path: Path) -> None:
    made = plan(cell("a"))
    left = tmp_path / artifact(made.id, "cell-build", made.cells[0].id)
    left.mkdir()
    (left / "link").symlink_to("/etc/passwd")
    with pytest.raises(Rejected, match="holds a link"):
        collect(made, tmp_path, tmp_path / "run")


class _Environments(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        rules = {
            "/repos/acme/k/environments/asks": [
                {"type": "required_reviewers", "reviewers": [{"type": "User"}]}
            ],
            "/repos/acme/k/environments/waits": [{"type": "wait_timer", "wait_timer": 5}],
            "/repos/acme/k/environments/nobody": [{"type": "required_reviewers", "reviewers": []}],
        }.get(self.path)
        self.send_response(404 if rules is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"protection_rules": rules}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), _Environments) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("asks", None), ("waits", "asks no"), ("nobody", "asks no"), ("../x", "does not exist")],
)
@pytest.mark.usefixtures("api")
def test_environments(name: str, reason: str | None) -> None:
    found = environments.why_not_reviewed("acme/k", name)
    assert found is None if reason is None else reason in str(found)


def test_an_environment_that_cannot_be_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    assert "cannot be read" in str(environments.why_not_reviewed("acme/k", "asks"))


CHANGES = "# Changelog\n\n## 1.2.0\n\nnew\n"


def moving(tag: str = "v1.2.0", *, tags: tuple[str, ...] = (), created: bool = True) -> str:
    return versions.check(tag, version="1.2.0", changelog=CHANGES, tags=tags, created=created)


def test_versions() -> None:
    assert moving(tags=("v1.1.9", "v1.2.0", "v2.0.0", "v1", "other")) == "v1"
    with pytest.raises(InputError):
        moving("v1.2")
    with pytest.raises(Rejected, match="was there before"):
        moving(created=False)
    with pytest.raises(Rejected, match="not the version of the package"):
        moving("v1.3.0")
    with pytest.raises(Rejected, match="is newer"):
        moving(tags=("v1.10.0",))
    with pytest.raises(Rejected, match=r"says nothing about 1\.2\.0"):
        versions.check("v1.2.0", version="1.2.0", changelog="", tags=(), created=True)


@pytest.mark.parametrize(
    ("matcher", "line", "file", "number"),
    [
        (
            "clang",
            "/w/cpu/relu.cc:81:24: error: use of undeclared identifier 'x'",
            "/w/cpu/relu.cc",
            "81",
        ),
        ("clang", "relu.cc:3:10: fatal error: 'no.h' file not found", "relu.cc", "3"),
        ("nvcc", '/w/relu.cu(7): error: identifier "x" is undefined', "/w/relu.cu", "7"),
        ("nvcc", "/w/relu.cu(7): warning #177-D: variable was declared", "/w/relu.cu", "7"),
    ],
)
def test_problem_matchers(matcher: str, line: str, file: str, number: str) -> None:
    path = ROOT / "actions" / "build-variant" / "matchers" / f"{matcher}.json"
    (pattern,) = json.loads(path.read_text())["problemMatcher"][0]["pattern"]
    found = re.match(pattern["regexp"], line)
    assert found is not None
    assert (found[pattern["file"]], found[pattern["line"]]) == (file, number)
    assert found[pattern["severity"]] in ("error", "warning")


def test_what_is_shown_is_not_markdown_of_a_kernels_author() -> None:
    assert summary._escape("a|b <img src=x>\n[x](y)") == r"a\|b \<img src=x\> \[x\](y)"


def test_the_end_of_a_long_output_is_shown_in_whole_lines() -> None:
    lines = [f"c++ {'x' * 200} {number}" for number in range(40)]
    first, *shown, last = summary._reason("\n".join(["build: failed", *lines])).splitlines()
    assert (first, shown[0], shown[1], last) == ("build: failed", "```", "…", "```")
    assert shown[2:] == lines[-len(shown[2:]) :]
    assert summary._reason("a\n" + "x" * 9000).splitlines()[3] == "x" * 1500


USES = re.compile(r"^\s*(?:- )?uses: (\S+)(?: # (\S+))?$", re.M)


def test_third_party_actions_are_few_and_pinned() -> None:
    files = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("actions/*/action.yml")]
    pinned = set()
    for path in files:
        for name, version in USES.findall(path.read_text()):
            if name.startswith("$/"):
                continue
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name), (path, name)
            assert re.fullmatch(r"v\d+\.\d+\.\d+", version), (path, name, version)
            pinned.add(name)
    # One commit for each action.
    assert len({name.partition("@")[0] for name in pinned}) == len(pinned)
    assert {name.partition("@")[0] for name in pinned} == {
        "actions/cache",
        "actions/checkout",
        "actions/download-artifact",
        "actions/setup-python",
        "actions/upload-artifact",
    }


@pytest.mark.parametrize("path", sorted(ROOT.glob("actions/*/action.yml")), ids=str)
def test_an_actions_readme_tells_its_interface(path: Path) -> None:
    action, page = yaml.safe_load(path.read_text()), path.with_name("README.md").read_text()
    for kind in ("Inputs", "Outputs"):
        section = page.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
        rows = dict(re.findall(r"^\| `([\w-]+)` \|.* (\S.*?) \|$", section, re.M))
        assert set(rows) == set(action.get(kind.lower(), {}))
        for name, item in action.get(kind.lower(), {}).items():
            assert f" {item['description']} |" in section, name
            default = item.get("default")
            assert not default or f"| `{name}` | `{default}` |" in section, name
            assert not item.get("required") or f"| `{name}` | required |" in section, name
    # Why each action of others is used.
    uses = {name.partition("@")[0] for name, _ in USES.findall(path.read_text())}
    assert set(re.findall(r"^- `([\w-]+/[\w-]+)`: \w", page, re.M)) == uses


def test_yaml_holds_no_expressions_in_scripts_and_keeps_no_credentials() -> None:
    files = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("actions/*/action.yml")]
    for path in files:
        content = yaml.safe_load(path.read_text())
        groups = [job.get("steps", []) for job in content.get("jobs", {}).values()]
        groups.append(content.get("runs", {}).get("steps", []))
        for step in [step for group in groups for step in group]:
            assert "${{" not in step.get("run", ""), path
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, path
        if "jobs" in content:
            assert content["permissions"] == {}, path


def test_all_matrices_of_a_stage_are_alike() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "build.yml").read_text())["jobs"]
    for stage in ("build", "test"):
        for number in range(1, MATRICES):
            text = json.dumps(jobs[f"{stage}-{number}"])
            alike = re.sub(rf"(build|test)-{number}\b", r"\1-0", text)
            assert json.loads(alike) == jobs[f"{stage}-0"]
    legs = [f"{stage}-{number}" for stage in ("build", "test") for number in range(MATRICES)]
    assert set(jobs) == {"plan", *legs, "gate"}
    assert set(jobs["gate"]["needs"]) == {"plan", *legs}
    assert set(legs) <= set(jobs["plan"]["outputs"])


def test_publishing_needs_an_accepted_verdict() -> None:
    """Act runs no job after a failed workflow, so what its `if` says is asserted here."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == jobs["rehearse"]["needs"] == ["tag", "build"]
    tagged, accepted = jobs["publish"]["if"].removeprefix("${{ ").removesuffix(" }}").split(" && ")
    assert tagged == "needs.tag.outputs.publish == 'true'"
    assert accepted == "needs.build.outputs.verdict == 'accepted'"
    # Without a status function, a job is skipped when one that it needs has failed.
    for name in ("build", "rehearse", "publish"):
        assert not re.search("always|failure|cancelled", jobs[name].get("if", ""))
