"""Publishing to a Hub that works: what is sent, what is refused, and what clients see."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

from kernel_ci.cli import main
from kernel_ci.publish.release import Release
from kernel_ci.publish.target import Target, connect
from tests.integration.publish_kit import (
    REPO,
    TOKEN,
    VARIANTS,
    Between,
    Outcome,
    View,
    download,
    hub,
    hurry,
    look,
    make_run,
    publish_here,
)

OTHER = "tvm-ffi01-cpu-aarch64-darwin"


class Hub:
    """A local Hub, and a publisher who tries several runs on it."""

    def __init__(self, between: Between, url: str, tmp_path: Path):
        self.between = between
        self.url = url
        self.tmp_path = tmp_path
        self._runs = 0

    def publish(self, *, options: dict[str, Any] | None = None, **wanted: Any) -> Outcome:
        """Make a run and publish it; the log then has the requests of this one only."""
        self._runs += 1
        self.run = make_run(self.tmp_path / f"run{self._runs}", **wanted)
        self.between.log.clear()
        return publish_here(self.run, self.url, **(options or {}))

    def look(self, **more: str) -> View:
        log = list(self.between.log)
        try:
            return look(self.url, **more)
        finally:
            self.between.log[:] = log

    @property
    def release(self) -> Release:
        """The release of the last run."""
        return Release.read(self.run / "negate" / "release" / "release.json")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hurry(monkeypatch)
    with hub(tmp_path / "hub") as (between, url):
        yield Hub(between, url, tmp_path)


def sent(between: Between) -> list[str]:
    """Return what was uploaded and committed, in short."""
    return [
        re.sub(r"staging-(\w+)-\w+", r"staging-\1", line.partition("?")[0])
        .removeprefix("POST /api/kernels/acme/negate/")
        .removeprefix("POST /kernels/acme/negate.git/")
        for line in between.writes
        if not re.search(r"lfs|preupload|validate", line)
    ]


def test_a_first_release(local: Hub, tmp_path: Path) -> None:
    done = local.publish()
    assert done.status == 0, done.text
    release = local.release
    # The version's branch appears when its commit is complete; the card comes last.
    assert [line.rpartition("/")[0] for line in sent(local.between)] == [
        "POST /api/repos",
        "branch",
        "commit",
        "branch",
        "DELETE /api/kernels/acme/negate/branch",
        "tag",
        "commit",
    ]
    assert sent(local.between)[2] == "commit/staging-v1"
    assert sent(local.between)[-1] == "commit/main"
    view = local.look()
    assert view.branches == {"main", "v1"}
    assert view.tags == {release.tag}
    assert view.files is not None
    assert view.files.keys() == {*release.files, "release.json"}
    assert view.card == release.card.git
    contents = download(local.url, tmp_path / "cache")
    for path, file in release.files.items():
        assert hashlib.sha256(contents[path]).hexdigest() == file.sha256
    assert done.published is not None
    assert done.published.changed
    assert done.published.tag == release.tag


def test_large_files_come_before_the_commit_that_names_them(local: Hub) -> None:
    assert local.publish().status == 0
    log = local.between.log
    uploads = [n for n, line in enumerate(log) if line.startswith("PUT ")]
    commits = [n for n, line in enumerate(log) if "/commit/" in line]
    assert len(uploads) == len(VARIANTS)
    assert max(uploads) < min(commits)


def test_the_same_again_sends_nothing(local: Hub) -> None:
    assert local.publish().status == 0
    before = local.look()
    # Built and proved again from the same sources, in another folder.
    done = local.publish()
    assert done.status == 0
    assert local.between.writes == []
    assert "published already; nothing to send" in done.text
    assert done.published is not None
    assert not done.published.changed
    assert local.look() == before


def test_an_update_is_one_commit(local: Hub, tmp_path: Path) -> None:
    assert local.publish().status == 0
    head = HfApi(endpoint=local.url).list_repo_commits(REPO, repo_type="kernel", revision="v1")[0]
    done = local.publish(text="second", options={"replace": True})
    assert done.status == 0, done.text
    assert [line.split("/")[0] for line in sent(local.between)] == ["commit", "tag", "commit"]
    assert sent(local.between)[0] == "commit/v1"
    commits = HfApi(endpoint=local.url).list_repo_commits(REPO, repo_type="kernel", revision="v1")
    assert commits[1].commit_id == head.commit_id
    assert commits[0].title == f"negate {local.release.tag}"
    assert local.release.digest in commits[0].message
    # The library has another name now, and the former one is gone.
    files = local.look().files
    assert files is not None
    assert files.keys() == {*local.release.files, "release.json"}
    assert not any("first" in path for path in files)
    download(local.url, tmp_path / "cache")


def test_a_changed_variant_alone_is_sent(local: Hub) -> None:
    assert local.publish().status == 0
    done = local.publish(changed={VARIANTS[0]: "repaired"}, options={"replace": True})
    assert done.status == 0, done.text
    assert len([line for line in local.between.log if line.startswith("PUT ")]) == 1
    assert "kept      1 variants" in done.text
    assert f"changed   {VARIANTS[0]}" in done.text


def test_a_new_variant_needs_no_permission(local: Hub) -> None:
    assert local.publish().status == 0
    done = local.publish(variants=[*VARIANTS, OTHER])
    assert done.status == 0, done.text
    assert f"new       {OTHER}" in done.text
    assert len([line for line in local.between.log if line.startswith("PUT ")]) == 1


def test_other_content_is_refused(local: Hub) -> None:
    assert local.publish().status == 0
    before = local.look()
    done = local.publish(text="second")
    assert done.status == 1
    assert "published already with other content for" in done.text
    assert VARIANTS[0] in done.text
    assert "--replace" in done.text
    assert local.between.writes == []
    assert local.look() == before


def test_a_missing_variant_is_refused(local: Hub) -> None:
    assert local.publish(variants=[*VARIANTS, OTHER]).status == 0
    before = local.look()
    for options in ({}, {"replace": True}):
        done = local.publish(options=options)
        assert done.status == 1
        assert f"has {OTHER}, which this release lacks" in done.text
        assert "--drop" in done.text
        assert local.between.writes == []
    assert local.look() == before
    assert local.publish(options={"drop": True}).status == 0
    files = local.look().files
    assert files is not None
    assert not any(OTHER in path for path in files)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"public": ["negate", "negate_into"]}, "it adds `negate_into` in `__all__`"),
        ({"public": ["other"]}, "it lacks `negate` in `__all__`"),
        ({"functions": ("negate", "invert")}, "it adds the exported function `invert`"),
        ({"functions": ("invert",)}, "it lacks the exported function `negate`"),
    ],
)
def test_another_api_needs_a_new_version(local: Hub, now: dict[str, Any], told: str) -> None:
    assert local.publish().status == 0
    before = local.look()
    done = local.publish(text="second", **now, options={"replace": True, "drop": True})
    assert done.status == 1
    assert told in done.text
    assert "raise `version` in build.toml" in done.text
    assert local.between.writes == []
    assert local.look() == before
    assert local.publish(text="second", **now, version=2).status == 0
    assert local.look(branch="v2").files
    assert local.look().files == before.files


def test_what_is_private_may_change(local: Hub) -> None:
    assert local.publish(public=["negate", "_a"], functions=("negate", "_a")).status == 0
    done = local.publish(
        text="second",
        public=["negate", "_b"],
        functions=("negate", "_b"),
        options={"replace": True},
    )
    assert done.status == 0, done.text


def test_version_zero_promises_nothing(local: Hub) -> None:
    assert local.publish(version=0).status == 0
    done = local.publish(version=0, public=["other"], options={"replace": True})
    assert done.status == 0, done.text


def test_everything_wrong_is_told_at_once(local: Hub) -> None:
    assert local.publish(variants=[*VARIANTS, OTHER]).status == 0
    done = local.publish(text="second", public=["other"])
    assert done.status == 1
    for word in ("--replace", "--drop", "`other`", "`negate`"):
        assert word in done.text


def test_a_version_that_others_published(local: Hub) -> None:
    """Another tool published v1: no manifest, no functions, a variant of another framework."""
    api = HfApi(endpoint=local.url, token=TOKEN)
    api.create_repo(REPO, repo_type="kernel")
    api.create_branch(REPO, branch="v1", repo_type="kernel")
    torch = "build/torch28-cxx11-cu126-x86_64-linux"
    api.create_commit(
        REPO,
        [
            CommitOperationAdd(f"{torch}/__init__.py", b'__all__ = ["negate", "more"]\n'),
            CommitOperationAdd(f"{torch}/metadata.json", b"{}"),
            CommitOperationAdd("build/stray.txt", b""),
            CommitOperationAdd("notes.md", b"not ours"),
        ],
        commit_message="by hand",
        repo_type="kernel",
        revision="v1",
    )
    done = local.publish()
    assert done.status == 1
    for word in ("torch28", "build/stray.txt", "it lacks `more` in `__all__`"):
        assert word in done.text
    done = local.publish(public=["negate", "more"], options={"replace": True, "drop": True})
    assert done.status == 0, done.text
    assert set(api.list_repo_files(REPO, repo_type="kernel", revision="v1")) == {
        ".gitattributes",
        "notes.md",
        "release.json",
        *local.release.files,
    }


def test_builds_on_main_do_not_get_into_a_new_version(local: Hub) -> None:
    api = HfApi(endpoint=local.url, token=TOKEN)
    api.create_repo(REPO, repo_type="kernel")
    old = CommitOperationAdd(f"build/{VARIANTS[0]}/old.py", b"")
    api.create_commit(REPO, [old], commit_message="legacy", repo_type="kernel")
    assert local.publish().status == 0
    assert "old.py" not in "".join(local.look().files or ())


def test_gitignore_on_the_hub_hides_nothing(local: Hub) -> None:
    api = HfApi(endpoint=local.url, token=TOKEN)
    api.create_repo(REPO, repo_type="kernel")
    ignore = CommitOperationAdd(".gitignore", b"build/\n*.so\n")
    api.create_commit(REPO, [ignore], commit_message="ignore", repo_type="kernel")
    done = local.publish()
    assert done.status == 0, done.text
    assert (local.look().files or {}).keys() == {*local.release.files, "release.json"}


def test_somebody_deletes_a_file_by_hand(local: Hub) -> None:
    assert local.publish().status == 0
    whole = local.look()
    HfApi(endpoint=local.url, token=TOKEN).create_commit(
        REPO,
        [CommitOperationDelete(f"build/{VARIANTS[0]}/_ops.py")],
        commit_message="oops",
        repo_type="kernel",
        revision="v1",
    )
    assert local.publish(options={"replace": True}).status == 0
    assert local.look() == whole


def test_the_card_tells_about_the_newest_version(local: Hub) -> None:
    assert local.publish(version=2).status == 0
    card = local.look().card
    done = local.publish(version=1)
    assert done.status == 0, done.text
    assert local.look().files
    assert local.look().card == card


def test_a_new_card_is_no_new_content(local: Hub) -> None:
    assert local.publish(card="# One\n").status == 0
    done = local.publish(card="# Two\n")
    assert done.status == 0, done.text
    assert "# Two" in str(
        Path(
            HfApi(endpoint=local.url).hf_hub_download(
                REPO, "README.md", repo_type="kernel", local_dir=local.tmp_path / "card"
            )
        ).read_text()
    )


def test_dry_run_sends_nothing(local: Hub) -> None:
    done = local.publish(options={"dry_run": True})
    assert done.status == 0
    assert local.between.writes == []
    assert f"new       {VARIANTS[0]}" in done.text
    assert done.published is not None
    assert (done.published.changed, done.published.commit) == (True, None)
    # It refuses what publishing would refuse.
    assert local.publish().status == 0
    assert local.publish(text="second", options={"dry_run": True}).status == 1


def test_pull_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub(tmp_path / "hub", token=TOKEN, reader_token="hf_AReadersToken") as (between, url):
        owner = Hub(between, url, tmp_path / "owner")
        reader = Hub(between, url, tmp_path / "reader")
        monkeypatch.setenv("HF_TOKEN", "hf_AReadersToken")
        done = reader.publish(options={"pull_request": True})
        assert done.status == 2
        assert "no branch v1 yet" in done.text
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert owner.publish().status == 0
        before = owner.look()
        monkeypatch.setenv("HF_TOKEN", "hf_AReadersToken")
        update = {"text": "second"}
        done = reader.publish(**update, options={"replace": True})
        assert done.status == 2
        assert "(403)" in done.text
        assert "--pull-request" in done.text
        done = reader.publish(**update, options={"replace": True, "pull_request": True})
        assert done.status == 0, done.text
        assert done.published is not None
        assert "/discussions/" in done.published.url
        assert owner.look() == before
        proposed = HfApi(endpoint=url).list_repo_files(
            REPO, repo_type="kernel", revision="refs/pr/1"
        )
        assert {*reader.release.files, "release.json"} <= set(proposed)
        # A second time it is open already.
        again = reader.publish(**update, options={"replace": True, "pull_request": True})
        assert again.status == 0
        assert between.writes == []
        assert again.published is not None
        assert again.published.url == done.published.url


@pytest.mark.parametrize("what", ["listed", "served"])
def test_what_the_hub_serves_is_compared(local: Hub, what: str) -> None:
    """A Hub that stores something else than it was sent is found out before anybody sees it."""

    async def wrong(app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def change(message: Any) -> None:
            if message["type"] == "http.response.body":
                body = message.get("body", b"")
                body = body.replace(b"first", b"wrong").replace(b'"size":', b'"size": 1')
                message = {**message, "body": body}
            elif what == "listed":
                headers = [(k, v) for k, v in message["headers"] if k != b"content-length"]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, change)

    mark = "/tree/" if what == "listed" else "_ops.py"

    def fault(_: int, line: str) -> Any:
        committed = any("/commit/staging" in earlier for earlier in local.between.log)
        return wrong if committed and mark in line else None

    local.between.fault = fault
    done = local.publish()
    assert done.status == 1
    assert "the Hub does not serve what was published" in done.text
    assert "other content" in done.text
    local.between.fault = lambda number, line: None
    assert local.look().files is None
    assert local.publish().status == 0
    assert local.look().branches == {"main", "v1"}


# -- what is wrong with the run --------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ("no verdict", 2, "write the kernel-ci verdict first"),
        ("not accepted", 1, "the gate did not accept this run"),
        ("of another plan", 1, "the verdict is of another plan"),
        ("without a variant", 1, "the verdict says nothing about it"),
        ("no place", 2, "the release cannot be laid out here: Not a directory"),
        ("a byte of a library", 1, "the variant directory changed after the verdict"),
        ("a file more", 1, "the variant directory changed after the verdict"),
        ("no directory", 1, "the variant directory changed after the verdict"),
        ("stale metadata", 1, "not those that its metadata.json is about"),
        ("other sources", 2, "the files are not those that the plan was made for"),
        ("no sources", 2, "run this in the folder where the plan was made"),
        ("no repository", 2, "general.hub.repo-id"),
        ("card is no template", 2, "CARD.md:1: cannot be rendered"),
        ("card is not YAML", 2, "the metadata at its top is not YAML"),
        ("no kernels library", 2, "library_name"),
    ],
)
def test_a_run_that_must_not_be_published(
    change: str, status: int, told: str, tmp_path: Path
) -> None:
    wanted: dict[str, Any] = {}
    if change == "no repository":
        wanted["repo"] = None
    elif change == "card is no template":
        wanted["card"] = "{% for x in %}"
    elif change == "card is not YAML":
        wanted["card"] = "---\nlicense: [\n---\n"
    elif change == "no kernels library":
        wanted["card"] = "---\nlibrary_name: transformers\n---\n"
    run = make_run(tmp_path / "run", **wanted)
    verdict = run / "verdict.json"
    variant = run / "negate" / "build" / VARIANTS[0]

    def edit(**values: object) -> None:
        verdict.write_text(json.dumps(json.loads(verdict.read_bytes()) | values))

    if change == "no verdict":
        verdict.unlink()
    elif change == "not accepted":
        edit(accepted=False)
    elif change == "of another plan":
        edit(plan="sha256:0")
    elif change == "without a variant":
        edit(cells=json.loads(verdict.read_bytes())["cells"][:1])
    elif change == "no place":
        (run / "negate" / "release").write_text("a file")
    elif change == "a byte of a library":
        library = next(variant.glob("*.so"))
        library.write_bytes(library.read_bytes() + b"\0")
    elif change == "a file more":
        (variant / "extra.py").write_text("")
    elif change == "no directory":
        variant.rename(variant.with_name("gone"))
    elif change == "stale metadata":
        metadata = json.loads((variant / "metadata.json").read_bytes())
        metadata["digest"]["files"]["_ops.py"] = "AAAA"
        (variant / "metadata.json").write_text(json.dumps(metadata))
        from kernel_ci.build import package

        cells = json.loads(verdict.read_bytes())["cells"]
        for cell in cells:
            if cell["id"].endswith(variant.name):
                cell["digest"] = package.digest(variant)
        edit(cells=cells)
    elif change == "other sources":
        (tmp_path / "run" / "kernel" / "negate.cc").write_text("// other\n")
    elif change == "no sources":
        (tmp_path / "run" / "kernel").rename(tmp_path / "elsewhere")
    done = publish_here(run, "http://127.0.0.1:9")  # refused before anybody is asked
    assert (done.status, told in done.text) == (status, True), done.text


def test_the_evidence_is_not_touched(local: Hub) -> None:
    run = make_run(local.tmp_path / "kept")
    build = run / "negate" / "build"
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    receipt = run / "negate" / "receipts" / VARIANTS[0] / "test.json"
    receipt.parent.mkdir(parents=True)
    receipt.write_text(
        json.dumps(
            {
                "kind": "kernel-ci receipt", "format": 1, "plan": "p", "run": "r", "cell": "c",
                "stage": "test", "digest": "d", "outcome": "passed", "findings": [],
                "tools": {"apache-tvm-ffi": "0.1.15.post2"}, "seconds": 1, "started": "now",
                "machine": {"platform": "x86_64-linux", "system": "Linux", "python": "3.11"},
                "reproduce": "again",
            }
        )
    )  # fmt: skip
    assert publish_here(run, local.url).status == 0
    assert {path: path.read_bytes() for path in build.rglob("*") if path.is_file()} == before
    published = json.loads(
        (run / "negate" / "release" / "build" / VARIANTS[0] / "metadata.json").read_bytes()
    )
    assert published["kernel-ci"]["tvm-ffi"]["verified"] == ["0.1.15.post2"]
    card = (run / "negate" / "release" / "README.md").read_text()
    assert f"| `{VARIANTS[0]}` | CPU, x86_64-linux | ≥ 0.1.0 | 0.1.15.post2 | - |" in card


def test_a_partial_run_stays_off_the_real_hub(tmp_path: Path) -> None:
    from kernel_ci.errors import Rejected
    from kernel_ci.publish import Options, prepare

    run = make_run(tmp_path / "run", excluded=[OTHER])
    real = Target("https://hub.invalid", TOKEN, local=False)
    with pytest.raises(Rejected, match="left out 1 variants") as caught:
        prepare(run, real, Options())
    assert "--allow-partial" in str(caught.value)
    assert prepare(run, real, Options(allow_partial=True))
    assert prepare(run, Target("http://127.0.0.1:9", TOKEN, local=True), Options())


# -- where to --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hub", "told"),
    [
        ("http://hub.example", "would carry the token in clear"),
        ("ftp://hub.example", "is no Hub's address"),
        ("https://user:secret@hub.example", "is no Hub's address"),
        ("https://", "is no Hub's address"),
    ],
)
def test_addresses_that_are_refused(
    hub: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "nowhere", "--hub", hub]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "secret" not in error


def test_a_local_hub_gets_no_token_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with connect(str(tmp_path / "hub")) as target:
        assert target.token != TOKEN
        assert target.environment()["HF_TOKEN"] != TOKEN


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run is of no platform that this machine could load, so nothing is loaded."""
    run = make_run(tmp_path / "run", variants=["tvm-ffi01-cpu-aarch64-darwin"])
    arguments = ["publish", str(run), "--hub", str(tmp_path / "hub")]
    assert main([*arguments, "--dry-run", "--json"]) == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["changed"], done["commit"]) == (True, None)
    assert main([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    (done,) = json.loads(output.out)
    assert re.fullmatch("[0-9a-f]{40}", done["commit"])
    assert "not on this machine" in output.err
    assert main([*arguments, "--json"]) == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert not done["changed"]


def test_the_folder_of_a_hub_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    folder = tmp_path / "hub"
    run = make_run(tmp_path / "run")
    with hub(folder) as (_, url):
        assert publish_here(run, url).status == 0
    command = ["hub", "check", str(folder)]
    assert main(command) == 0
    assert capsys.readouterr().out == "0 damaged, 0 of no use, 0 removed\n"
    # What an upload leaves that was broken off harms nobody.
    stray = folder / "blobs" / hashlib.sha256(b"stray").hexdigest()
    stray.write_bytes(b"stray")
    assert main(command) == 0
    assert "0 damaged, 1 of no use, 0 removed" in capsys.readouterr().out
    assert main([*command, "--repair"]) == 0
    assert "0 damaged, 0 of no use, 1 removed" in capsys.readouterr().out
    assert not stray.exists()
    blob = next((folder / "blobs").iterdir())
    blob.write_bytes(b"other")
    assert main([*command, "--repair"]) == 1
    assert f"damage: blobs/{blob.name}" in capsys.readouterr().out
