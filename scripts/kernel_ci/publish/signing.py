"""Signatures: `metadata.json` with sigstore, by the identity of a workflow.

What is signed is exactly `metadata.json`, which holds the digest of every other file of
its variant; the bundle is `metadata.json.sigstore` beside it (both as in kernels 0.17.2).
`release.json.sigstore` attests in the same way where the release was built.
Nobody holds a key: the workflow's OIDC identity gets a certificate for some minutes, and
the signature goes into a public log.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_ci.build.package import METADATA, SIGNATURE
from kernel_ci.errors import InfrastructureError, InputError, Rejected

if TYPE_CHECKING:
    from sigstore.models import Bundle
    from sigstore.oidc import IdentityToken
    from sigstore.sign import Signer as SigstoreSigner
    from sigstore.verify import Verifier

    from kernel_ci.publish.release import File

#: The kind of statement that tells where something was built.
PROVENANCE = "https://slsa.dev/provenance/v1"

_SIGNER = re.compile(
    r"https://github\.com/(?P<repository>[\w.-]+/[\w.-]+)/\.github/workflows/[^@\s]+\.ya?ml@\S+"
)


@dataclass(frozen=True)
class Signer:
    """Whose signature is accepted.

    Attributes:
        workflow: `https://github.com/<owner>/<name>/.github/workflows/<file>@<ref>`, the
            workflow whose job signs. Of a reusable workflow it is the reusable one.
        repository: `<owner>/<name>` of the repository that the run belongs to.
    """

    workflow: str
    repository: str


def signer_of(workflow: str, repository: str | None) -> Signer:
    """Return the signer that a publisher names.

    Args:
        workflow: The workflow's URI.
        repository: The repository of the run; by default GitHub's, when this runs there,
            and else the workflow's own.

    Raises:
        InputError: It is not the URI of a workflow at a ref.
    """
    found = _SIGNER.fullmatch(workflow)
    if found is None:
        raise InputError(
            f"{workflow!r} is not a workflow at a ref",
            where="--signed-by",
            fix="write https://github.com/OWNER/NAME/.github/workflows/FILE.yml@refs/heads/main",
        )
    default = os.environ.get("GITHUB_REPOSITORY") or found["repository"]
    return Signer(workflow, repository or default)


def identity() -> IdentityToken | None:
    """Return the identity of the workflow that this runs in, None where there is none.

    Raises:
        InfrastructureError: There is one, but it could not be had.
    """
    if "ACTIONS_ID_TOKEN_REQUEST_TOKEN" not in os.environ:
        return None
    from sigstore.errors import Error
    from sigstore.oidc import IdentityToken, detect_credential

    try:
        token = detect_credential()
        return IdentityToken(token) if token is not None else None
    except Error as error:
        raise InfrastructureError(
            f"the workflow's identity could not be had: {type(error).__name__}",
            where="signing",
            fix="run the job again",
        ) from None


def signer_in(token: IdentityToken) -> Signer:
    """Return the signer that an identity of GitHub Actions will be.

    Raises:
        InputError: It is no such identity.
    """
    claims = _claims(str(token))
    workflow, repository = claims.get("job_workflow_ref"), claims.get("repository")
    if not isinstance(workflow, str) or not isinstance(repository, str):
        raise InputError(
            "the identity is not one of GitHub Actions",
            where="signing",
            fix="sign in a workflow of GitHub, or publish with --unsigned",
        )
    return Signer(f"https://github.com/{workflow}", repository)


def _claims(token: str) -> dict[str, Any]:
    """Return what an identity says; whether it is true is checked by who issues the certificate."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sign_here(variants: Sequence[Path]) -> None:
    """Sign the metadata of variant directories as the workflow that this runs in.

    Raises:
        InfrastructureError: There is no identity any more, or no signature was to be had.
    """
    if variants:
        sign(variants, _identity_still())


def sign(variants: Iterable[Path], token: IdentityToken) -> None:
    """Sign the metadata of variant directories.

    Args:
        variants: The variant directories.
        token: The identity that signs.

    Raises:
        InfrastructureError: sigstore's services could not be reached, or refused.
    """
    with _signer(token) as signer:
        for variant in variants:
            bundle = signer.sign_artifact((variant / METADATA).read_bytes())
            (variant / SIGNATURE).write_text(bundle.to_json())


def _identity_still() -> IdentityToken:
    """Return the identity anew: it lasts for minutes, and an upload before may have been longer."""
    token = identity()
    if token is None:
        raise InfrastructureError(
            "the workflow's identity is gone", where="signing", fix="run the job again"
        )
    return token


@contextmanager
def _signer(token: IdentityToken) -> Iterator[SigstoreSigner]:
    """Sign with sigstore's public services."""
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

    try:
        context = SigningContext.from_trust_config(ClientTrustConfig.production())
        with context.signer(token) as signer:
            yield signer
    except Exception as error:
        # The errors of sigstore's clients have no class in common (4.5). What a service
        # said is left out: it may repeat the identity that it was sent.
        raise InfrastructureError(
            f"could not sign: {type(error).__name__}",
            where="sigstore",
            fix="run it again; nothing was published",
        ) from None


def attest_here(files: Mapping[str, File], bundle: Path) -> None:
    """Attest, as the workflow that this runs in, that it built a release.

    The statement is SLSA's provenance (slsa.dev/spec/v1.0/provenance) as GitHub's workflows
    give it; what it says is what the identity says, which the certificate repeats.

    Args:
        files: The files of the release by path.
        bundle: Where the attestation goes.

    Raises:
        InfrastructureError: There is no identity any more, or no signature was to be had.
    """
    token = _identity_still()
    claims = {name: str(value) for name, value in _claims(str(token)).items()}
    repository = f"https://github.com/{claims.get('repository')}"
    path, _, ref = claims.get("workflow_ref", "").partition("@")
    predicate = {
        "buildDefinition": {
            "buildType": "https://actions.github.io/buildtypes/workflow/v1",
            "externalParameters": {
                "workflow": {
                    "ref": ref,
                    "repository": repository,
                    "path": path.removeprefix(f"{claims.get('repository')}/"),
                }
            },
            "resolvedDependencies": [
                {
                    "uri": f"git+{repository}@{claims.get('ref')}",
                    "digest": {"gitCommit": claims.get("sha", "")},
                }
            ],
        },
        "runDetails": {
            "builder": {"id": f"https://github.com/{claims.get('job_workflow_ref')}"},
            "metadata": {
                "invocationId": f"{repository}/actions/runs/{claims.get('run_id')}"
                f"/attempts/{claims.get('run_attempt')}"
            },
        },
    }
    with _signer(token) as signer:
        from sigstore.dsse import StatementBuilder, Subject

        statement = StatementBuilder(
            [
                Subject(name=path, digest={"sha256": file.sha256})
                for path, file in sorted(files.items())
            ],
            PROVENANCE,
            predicate,
        ).build()
        bundle.write_text(signer.sign_dsse(statement).to_json())


def trusted() -> Verifier:
    """Return a verifier with the roots of sigstore's public services, refreshed.

    Raises:
        InfrastructureError: They could not be had.
    """
    from sigstore.errors import Error
    from sigstore.verify import Verifier

    try:
        return Verifier.production()
    except (Error, OSError) as error:
        raise InfrastructureError(
            f"sigstore's roots of trust could not be had: {type(error).__name__}: {error}",
            where="sigstore",
            fix="run it again where the network reaches sigstore",
        ) from None


def verify(variants: Iterable[Path], signer: Signer, verifier: Verifier) -> None:
    """Refuse variant directories that a signer has not signed as they are.

    Args:
        variants: The variant directories.
        signer: Who must have signed them.
        verifier: Whom to trust.

    Raises:
        Rejected: A signature is missing, is no signature, is of other metadata or by somebody
            else; or a file is not what the metadata says.
    """
    reasons = [
        f"{variant.name}: {fault}"
        for variant in variants
        if (fault := _fault(variant, signer, verifier)) is not None
    ]
    if reasons:
        raise Rejected(
            "not every variant is signed as it must be\n  " + "\n  ".join(reasons),
            where="signatures",
            fix=f"publish from {signer.workflow} in {signer.repository}, which signs them",
        )


def verify_attestation(
    files: Mapping[str, File], bundle: Path, signer: Signer, verifier: Verifier
) -> None:
    """Refuse an attestation that is not a signer's, or not of a release.

    Args:
        files: The files of the release by path.
        bundle: The attestation.
        signer: Who must have made it.
        verifier: Whom to trust.

    Raises:
        Rejected: It is not as it must be.
    """
    from kernels.verify import GitHubWorkflowPolicy
    from sigstore.errors import VerificationError
    from sigstore.models import Bundle, InvalidBundle

    policy = GitHubWorkflowPolicy(repo_id=signer.repository, signer_uris=[signer.workflow])
    fault: str | None = None
    try:
        _, payload = verifier.verify_dsse(Bundle.from_json(bundle.read_bytes()), policy)
        statement = json.loads(payload)
        stated = {found["name"]: found["digest"]["sha256"] for found in statement["subject"]}
        if statement["predicateType"] != PROVENANCE:
            fault = "it is no provenance"
        elif stated != {path: file.sha256 for path, file in files.items()}:
            fault = "it is about other files"
    except (InvalidBundle, VerificationError, ValueError, KeyError, TypeError) as error:
        fault = _line(error)
    if fault is not None:
        raise Rejected(
            f"the attestation is not as it must be: {fault}",
            where=bundle.name,
            fix=f"publish from {signer.workflow} in {signer.repository}, which makes it",
        )


def _fault(variant: Path, signer: Signer, verifier: Verifier) -> str | None:
    """Return what is wrong with the signature of a variant directory, if anything is."""
    from kernels.verify import GitHubWorkflowPolicy
    from kernels_data import Digest, DigestValidationError, Metadata
    from sigstore.errors import VerificationError
    from sigstore.models import Bundle, InvalidBundle

    try:
        bundle = Bundle.from_json((variant / SIGNATURE).read_bytes())
    except FileNotFoundError:
        return "there is no signature"
    except (InvalidBundle, ValueError) as error:
        return f"the signature is not a sigstore bundle: {_line(error)}"
    try:
        metadata = (variant / METADATA).read_bytes()
    except FileNotFoundError:
        return f"there is a signature, and no {METADATA}"
    policy = GitHubWorkflowPolicy(repo_id=signer.repository, signer_uris=[signer.workflow])
    try:
        verifier.verify_artifact(metadata, bundle, policy)
    except VerificationError as error:
        return f"{_line(error)} (it says to be by {_names(bundle)})"
    # Only now, as the metadata is known to be what was signed.
    digest = Metadata.from_bytes(metadata).digest
    if digest is None:
        return "the metadata has no digest, so the signature says nothing about the files"
    try:
        digest.validate(Digest.hash_variant(digest.algorithm, variant))
    except DigestValidationError as error:
        return f"the files are not those that were signed: {_line(error)}"
    return None


def _names(bundle: Bundle) -> str:
    """Return whom a signature's certificate names, whether that is true or not."""
    from cryptography.x509 import (
        ExtensionNotFound,
        SubjectAlternativeName,
        UniformResourceIdentifier,
    )

    try:
        extensions = bundle.signing_certificate.extensions
        names = extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return "nobody"
    return ", ".join(names.get_values_for_type(UniformResourceIdentifier)) or "no workflow"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
