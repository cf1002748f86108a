"""Signatures: made by a workflow's identity, checked before publishing, checked by anyone."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants
from kernels.verify import GitHubWorkflowPolicy, VerificationResult, verify_variant
from sigstore.models import Bundle

from kernel_ci.errors import InfrastructureError, InputError, Rejected
from kernel_ci.publish import signing
from kernel_ci.publish.release import digest_file
from kernel_ci.publish.signing import Signer
from tests.integration.publish_kit import (
    REPO,
    TOKEN,
    VARIANTS,
    Between,
    client_environment,
    hub,
    hurry,
    make_run,
    publish_here,
)
from tests.integration.sigstore_kit import REPOSITORY, SIGNER, Sigstore, sigstore

US = Signer(SIGNER, REPOSITORY)
SIGNATURE = f"build/{VARIANTS[0]}/metadata.json.sigstore"


@pytest.fixture(scope="module")
def services() -> Iterator[Sigstore]:
    with sigstore() as found:
        yield found


@pytest.fixture(autouse=True)
def _job(services: Sigstore, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a job of GitHub Actions, and the Hub there takes a token."""
    hurry(monkeypatch)
    services.install(monkeypatch)
    services.claims, services.refuse = Sigstore().claims, set()
    services.served.clear()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[tuple[Between, str]]:
    with hub(tmp_path / "hub") as found:
        yield found


def variant(tmp_path: Path, name: str = "run") -> Path:
    """Return a variant directory that is not signed."""
    return make_run(tmp_path / name) / "negate" / "build" / VARIANTS[0]


def sign(*variants: Path) -> None:
    token = signing.identity()
    assert token is not None
    signing.sign(variants, token)


def test_what_is_signed_is_accepted(tmp_path: Path) -> None:
    one = variant(tmp_path)
    sign(one)
    signing.verify([one], US, signing.trusted())
    # As the kernels client does.
    policy = GitHubWorkflowPolicy(repo_id=REPOSITORY, signer_uris=[SIGNER])
    assert isinstance(verify_variant(one, policies=[policy]), VerificationResult.Success)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("no signature", "there is no signature"),
        ("no bundle", "the signature is not a sigstore bundle"),
        ("half a bundle", "the signature is not a sigstore bundle"),
        ("of another variant", "ignature"),
        ("of other metadata", "ignature"),
        ("another file", "the files are not those that were signed"),
        ("a file more", "the files are not those that were signed"),
        ("no metadata", "there is a signature, and no metadata.json"),
        ("of another workflow", "by https://github.com/mallory/x/"),
        ("at another ref", "release.yml@refs/heads/x)"),
        ("in another repository", "OIDCSourceRepositoryURI"),
        ("of another sigstore", "certificate chain"),
    ],
)
def test_what_is_wrong_is_refused(
    wrong: str, told: str, tmp_path: Path, services: Sigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = variant(tmp_path, "one"), variant(tmp_path, "two").with_name(VARIANTS[1])
    metadata, bundle = one / "metadata.json", one / "metadata.json.sigstore"
    if wrong == "of another workflow":
        services.claims["job_workflow_ref"] = "mallory/x/.github/workflows/x.yml@refs/heads/main"
    elif wrong == "at another ref":
        services.claims["job_workflow_ref"] = SIGNER[19:].replace("tags/v1", "heads/x")
    elif wrong == "in another repository":
        services.claims["repository"] = "mallory/fork"
    elif wrong == "of another sigstore":
        with sigstore() as other, pytest.MonkeyPatch.context() as patch:
            other.install(patch)
            sign(one)
    if wrong not in ("no signature", "of another sigstore"):
        sign(one, two)
    if wrong == "no bundle":
        bundle.write_text("signed, really\n")
    elif wrong == "half a bundle":
        bundle.write_text(bundle.read_text()[:-200])
    elif wrong == "of another variant":
        bundle.write_bytes((two / bundle.name).read_bytes())
    elif wrong == "of other metadata":
        metadata.write_text(metadata.read_text().replace("Apache-2.0", "MIT"))
    elif wrong == "another file":
        (one / "__init__.py").write_text("import mallory\n")
    elif wrong == "a file more":
        (one / "more.py").write_text("")
    elif wrong == "no metadata":
        metadata.unlink()
    with pytest.raises(Rejected) as caught:
        signing.verify([one], US, signing.trusted())
    text = str(caught.value)
    assert f"{VARIANTS[0]}: " in text
    assert told in text
    assert f"publish from {SIGNER} in {REPOSITORY}" in text


@pytest.mark.parametrize("path", ["/identity", "/api/v2/signingCert", "/api/v1/log/entries"])
def test_a_service_that_is_down(
    path: str, services: Sigstore, tmp_path: Path, local: tuple[Between, str]
) -> None:
    """Nothing is published, it is told to try again, and no identity is shown."""
    between, url = local
    services.refuse = {path}
    done = publish_signed(tmp_path, url)
    assert done.status == 75, done.text
    assert "fix: run " in done.text
    assert between.writes == [] or path != "/identity"
    assert not [line for line in between.log if "/commit/" in line]
    assert "eyJ" not in done.text
    assert "request-token-of-the-job" not in done.text


def test_sigstore_cannot_be_reached(
    tmp_path: Path, services: Sigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = variant(tmp_path)
    token = signing.identity()
    assert token is not None
    there, services.url = services.url, "http://127.0.0.1:9"
    try:
        services.install(monkeypatch)
    finally:
        services.url = there
    with pytest.raises(InfrastructureError, match="could not sign") as caught:
        signing.sign([one], token)
    assert "eyJ" not in str(caught.value)
    with pytest.raises(InfrastructureError, match="identity could not be had"):
        signing.identity()


def test_an_identity_of_somebody_else(services: Sigstore) -> None:
    services.claims = {"job_workflow_ref": SIGNER[19:], "repository": 7}  # type: ignore[dict-item]
    token = signing.identity()
    assert token is not None
    with pytest.raises(InputError, match="not one of GitHub Actions"):
        signing.signer_in(token)


@pytest.mark.parametrize("text", ["", "release.yml", "https://github.com/a/b", "http://x/y@z"])
def test_signers_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="not a workflow at a ref"):
        signing.signer_of(text, None)


# -- publishing ------------------------------------------------------------------------


def publish_signed(tmp_path: Path, url: str, **more: Any) -> Any:
    """Publish a run as a job that signs; a Hub on this machine counts as a real one."""
    options = more.pop("options", {})
    run = make_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", **more)
    return publish_here(run, url, real=True, **options)


def served(url: str, path: str) -> bytes:
    """Return a published file."""
    from huggingface_hub import get_session

    answer = get_session().get(f"{url}/kernels/{REPO}/resolve/v1/{path}")
    return bytes(answer.content) if answer.status_code == 200 else b""


def test_a_signed_release(
    tmp_path: Path, services: Sigstore, local: tuple[Between, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    between, url = local
    done = publish_signed(tmp_path, url)
    assert done.status == 0, done.text
    commits = HfApi(endpoint=url).list_repo_commits(REPO, repo_type="kernel", revision="v1")
    assert len(commits) == 2  # one, and the repository's first
    # A certificate for the variants, and one for the attestation; each is in the log.
    assert services.served.count("/api/v2/signingCert") == 2
    assert services.served.count("/api/v1/log/entries") == len(VARIANTS) + 1
    first = served(url, SIGNATURE)
    assert json.loads(first)["messageSignature"]
    card = next(tmp_path.glob("run*")) / "run" / "negate" / "release" / "README.md"
    assert f"Signed by the workflow `{SIGNER}`" in card.read_text()
    # The same again: nothing is sent, though a new signature would be another one.
    between.log.clear()
    services.served.clear()
    done = publish_signed(tmp_path, url)
    assert (done.status, between.writes) == (0, [])
    assert "/api/v1/log/entries" not in services.served
    # One variant changes: its signature is another one, and the other one stays.
    second = f"build/{VARIANTS[1]}/metadata.json.sigstore"
    kept = served(url, second)
    done = publish_signed(
        tmp_path, url, changed={VARIANTS[0]: "repaired"}, options={"replace": True}
    )
    assert done.status == 0, done.text
    assert served(url, SIGNATURE) not in (b"", first)
    assert served(url, second) == kept
    verified_by_clients(url, tmp_path, monkeypatch)


def verified_by_clients(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what docs/publishing.md says that a consumer does."""
    root = Path(
        HfApi(endpoint=url, token=TOKEN).snapshot_download(
            REPO, repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache"
        )
    )
    policy = GitHubWorkflowPolicy(repo_id=REPOSITORY, signer_uris=[SIGNER])
    for name in VARIANTS:
        result = verify_variant(root / "build" / name, policies=[policy])
        assert isinstance(result, VerificationResult.Success)


def test_an_attestation(tmp_path: Path, services: Sigstore, local: tuple[Between, str]) -> None:
    """It names every file, and where they were built; it goes with its release."""
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    first = served(url, "release.json.sigstore")
    # As anybody can: by sigstore's own client, with the policy of docs/publishing.md.
    policy = GitHubWorkflowPolicy(repo_id=REPOSITORY, signer_uris=[SIGNER])
    kind, payload = signing.trusted().verify_dsse(Bundle.from_json(first), policy)
    assert kind == "application/vnd.in-toto+json"
    statement = json.loads(payload)
    found = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    manifest = json.loads(served(url, "release.json"))
    assert found.keys() == {*manifest["files"], "release.json"}
    for path, digest in found.items():
        assert hashlib.sha256(served(url, path)).hexdigest() == digest
    said = statement["predicate"]
    repository = f"https://github.com/{REPOSITORY}"
    assert said["buildDefinition"]["externalParameters"]["workflow"] == {
        "ref": "refs/tags/v1.0",
        "repository": repository,
        "path": ".github/workflows/kernels.yml",
    }
    assert said["buildDefinition"]["resolvedDependencies"] == [
        {"uri": f"git+{repository}@refs/tags/v1.0", "digest": {"gitCommit": "5" * 40}}
    ]
    assert said["runDetails"]["builder"]["id"] == SIGNER
    assert said["runDetails"]["metadata"]["invocationId"].endswith("/actions/runs/71/attempts/2")
    # An update has another one; without signing, it has none.
    again = {"text": "second", "options": {"replace": True}}
    assert publish_signed(tmp_path, url, **again).status == 0
    assert served(url, "release.json.sigstore") not in (b"", first)
    done = publish_signed(tmp_path, url, text="third", options={"replace": True, "unsigned": True})
    assert done.status == 0, done.text
    assert served(url, "release.json.sigstore") == b""
    # What is there without one gets one.
    assert publish_signed(tmp_path, url, text="third").status == 0
    assert served(url, "release.json.sigstore")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("no bundle", "failed to load bundle"),
        ("of a variant", "without a DSSE envelope"),
        ("about other files", "it is about other files"),
        ("of another workflow", "0 of 1 policies succeeded"),
    ],
)
def test_attestations_that_are_refused(
    wrong: str, told: str, tmp_path: Path, services: Sigstore
) -> None:
    one = variant(tmp_path)
    files = {"release.json": digest_file(one / "metadata.json")}
    bundle = tmp_path / "release.json.sigstore"
    if wrong == "of another workflow":
        services.claims["job_workflow_ref"] = "mallory/x/.github/workflows/x.yml@refs/heads/main"
    signing.attest_here(files, bundle)
    if wrong == "no bundle":
        bundle.write_text("{}")
    elif wrong == "of a variant":
        sign(one)
        bundle = one / "metadata.json.sigstore"
    elif wrong == "about other files":
        files["more"] = files["release.json"]
    with pytest.raises(Rejected, match="the attestation is not as it must be") as caught:
        signing.verify_attestation(files, bundle, US, signing.trusted())
    assert told in str(caught.value)
    assert f"publish from {SIGNER}" in str(caught.value)


def test_variants_that_are_there_unsigned_get_signed(
    tmp_path: Path, local: tuple[Between, str]
) -> None:
    _, url = local
    done = publish_signed(tmp_path, url, options={"unsigned": True})
    assert done.status == 0, done.text
    assert served(url, SIGNATURE) == b""
    done = publish_signed(tmp_path, url)
    assert done.status == 0, done.text
    assert served(url, SIGNATURE)


def test_a_signature_that_somebody_deleted_comes_back(
    tmp_path: Path, local: tuple[Between, str]
) -> None:
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    for path in (SIGNATURE, "release.json.sigstore"):
        HfApi(endpoint=url, token=TOKEN).create_commit(
            REPO,
            [CommitOperationDelete(path)],
            commit_message="x",
            repo_type="kernel",
            revision="v1",
        )
        assert publish_signed(tmp_path, url).status == 0
        assert served(url, path)


def test_a_wanted_signer_that_did_not_sign(tmp_path: Path, local: tuple[Between, str]) -> None:
    between, url = local
    other = Signer(SIGNER.replace("kernel-ci", "other"), REPOSITORY)
    done = publish_signed(tmp_path, url, options={"signer": other})
    assert done.status == 1, done.text
    assert "not every variant is signed as it must be" in done.text
    done = publish_signed(tmp_path, url, options={"signer": US, "unsigned": True})
    assert done.status == 1, done.text
    assert "there is no signature" in done.text
    assert not [line for line in between.log if "/commit/" in line]
    # Nor does what is published already without a signature pass for signed.
    assert publish_signed(tmp_path, url, options={"unsigned": True}).status == 0
    done = publish_signed(tmp_path, url, options={"signer": US, "unsigned": True})
    assert done.status == 1, done.text
    assert "there is no signature" in done.text


def test_a_signature_does_not_outlive_its_variant(
    tmp_path: Path, local: tuple[Between, str]
) -> None:
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    done = publish_signed(tmp_path, url, text="second", options={"replace": True, "unsigned": True})
    assert done.status == 0, done.text
    assert served(url, SIGNATURE) == b""


# -- keyless ---------------------------------------------------------------------------


def keyless(between: Between, monkeypatch: pytest.MonkeyPatch, url: str, status: int) -> list[str]:
    """Make the Hub exchange the job's identity for a token (RFC 8693); return the identities."""
    seen: list[str] = []
    hub = between.app

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/oauth/token":
            await hub(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        assert asked["resource"] == f"kernels/{REPO}"
        assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        seen.append(asked["subject_token"])
        answer = (
            {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}
            if status == 200
            else {"error": "invalid_grant", "error_description": f"for {asked['subject_token']}"}
        )
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    between.app = app
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_OIDC_RESOURCE", f"kernels/{REPO}")
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.utils._auth._OIDC_TOKEN_CACHE", None)
    return seen


def test_keyless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity becomes a token of this one repository, once, and is shown nowhere."""
    with hub(tmp_path / "hub", token=TOKEN) as (between, url):
        seen = keyless(between, monkeypatch, url, 200)
        done = publish_signed(tmp_path, url)
        assert done.status == 0, done.text
        assert len(seen) == 1
        assert seen[0].startswith("eyJ")
        assert "eyJ" not in done.text
        assert TOKEN not in done.text
        assert served(url, SIGNATURE)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_workflow_that_the_hub_does_not_trust(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub(tmp_path / "hub", token=TOKEN) as (between, url):
        keyless(between, monkeypatch, url, status)
        done = publish_signed(tmp_path, url)
        assert done.status == 2, done.text
        assert "trusted publisher" in done.text
        assert "docs/publishing.md" in done.text
        assert "eyJ" not in done.text
        assert between.writes == ["POST /oauth/token"]


def test_somebody_replaces_a_signature(tmp_path: Path, local: tuple[Between, str]) -> None:
    """A signature on the Hub is not part of the release's digest: clients must verify it."""
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    HfApi(endpoint=url, token=TOKEN).create_commit(
        REPO,
        [CommitOperationAdd(SIGNATURE, b"forged")],
        commit_message="x",
        repo_type="kernel",
        revision="v1",
    )
    root = HfApi(endpoint=url, token=TOKEN).snapshot_download(
        REPO, repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache"
    )
    result = verify_variant(Path(root) / "build" / VARIANTS[0])
    assert isinstance(result, VerificationResult.SignatureBundleInvalid)


#: Puts a sigstore of our own in the place of the public one.
OUR_SIGSTORE = """
import sys
from sigstore.models import ClientTrustConfig
config = ClientTrustConfig.from_json(sys.stdin.read())
ClientTrustConfig.production = lambda **options: config
"""


def as_client(
    code: str, *arguments: str, services: Sigstore, url: str, home: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python as a user of the kernel, who trusts our sigstore."""
    return subprocess.run(
        [sys.executable, "-c", OUR_SIGSTORE + code, *arguments],
        input=services.config(),
        env=client_environment(url, home),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_client_tells_why_it_does_not_trust(
    tmp_path: Path, services: Sigstore, local: tuple[Between, str]
) -> None:
    """`kernels verify-signature` trusts the workflows of Hugging Face only (kernels 0.17.2)."""
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    code = "from kernels import cli\ncli.main()\n"
    arguments = ("verify-signature", "--all-variants", REPO, "1")
    done = as_client(code, *arguments, services=services, url=url, home=tmp_path)
    assert done.returncode == 1, done.stderr
    for name in VARIANTS:
        assert f"{name}: metadata signature verification failed:\n0 of 1 pol" in done.stdout


def test_what_the_docs_say_to_verify_with(
    tmp_path: Path, services: Sigstore, local: tuple[Between, str]
) -> None:
    """The Python of docs/publishing.md, with the names that are used here."""
    _, url = local
    assert publish_signed(tmp_path, url).status == 0
    page = (Path(__file__).parents[2] / "docs" / "publishing.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    for ours, theirs in (
        (REPOSITORY, "my-organisation/my-kernels"),
        (REPO, "my-organisation/my-kernel"),
        (SIGNER, "https://github.com/OWNER/kernel-ci/.github/workflows/release.yml@refs/tags/v1"),
    ):
        assert theirs in code
        code = code.replace(theirs, ours)
    done = as_client(code, services=services, url=url, home=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in VARIANTS:
        assert f"{name} VerificationResult.Success()" in done.stdout
    assert SIGNER in done.stdout
