"""A sigstore of our own: an identity provider, Fulcio, a transparency log, and their keys.

The real ones can be reached by nobody here, and give no certificate to a test. These give
what sigstore's own client asks for in their place, by the same interfaces, so that signing
and verifying run as they do in a workflow (sigstore 4.5; the log is Rekor v1).
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from sigstore.models import ClientTrustConfig

ISSUER = "https://token.actions.githubusercontent.com"
REPOSITORY = "acme/negate"
WORKFLOW = "acme/kernel-ci/.github/workflows/release.yml@refs/tags/v1"
SIGNER = f"https://github.com/{WORKFLOW}"

#: Fulcio's own extensions (github.com/sigstore/fulcio, docs/oid-info.md).
_FULCIO = "1.3.6.1.4.1.57264.1"
#: The list of signed certificate timestamps (RFC 6962).
_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _hash(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def _der(tag: int, content: bytes) -> bytes:
    """Return an element of DER with less than 256 bytes."""
    length = bytes([len(content)]) if len(content) < 128 else bytes([0x81, len(content)])
    return bytes([tag]) + length + content


def _utf8(text: str) -> bytes:
    return _der(0x0C, text.encode())


class Sigstore:
    """The services, served at `url`.

    Attributes:
        url: Where they are.
        claims: What the next identities say, besides what all say.
        refuse: Paths that are answered with 500.
        served: The paths of the requests so far.
    """

    def __init__(self) -> None:
        self.url = ""
        self.claims: dict[str, str] = {
            "job_workflow_ref": WORKFLOW,
            "repository": REPOSITORY,
            "workflow_ref": f"{REPOSITORY}/.github/workflows/kernels.yml@refs/tags/v1.0",
            "ref": "refs/tags/v1.0",
            "sha": "5" * 40,
            "run_id": "71",
            "run_attempt": "2",
        }
        self.refuse: set[str] = set()
        self.served: list[str] = []
        self._ca, self._ct, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in "123")
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a Fulcio for tests")])
        now = datetime.now(timezone.utc)
        usage = dict.fromkeys(
            (
                "digital_signature", "content_commitment", "key_encipherment", "key_agreement",
                "data_encipherment", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
            ),
            False,
        )  # fmt: skip
        self._usage = usage
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._ca.public_key())
        self._root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._ca.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage | {"key_cert_sign": True}), critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._ca, hashes.SHA256())
        )

    # -- what clients are configured with ----------------------------------------------

    def config(self) -> str:
        """Return what a client must know to use the services and to trust them."""
        since = {"start": "2020-01-01T00:00:00Z"}
        service = {"url": self.url, "majorApiVersion": 1, "validFor": since, "operator": "tests"}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = _public(key)
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _base64(public),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": since,
                },
                "logId": {"keyId": _base64(hashlib.sha256(public).digest())},
            }

        root = {"rawBytes": _base64(self._root.public_bytes(Encoding.DER))}
        authority = {
            "subject": {"organization": "tests", "commonName": "a Fulcio for tests"},
            "uri": self.url,
            "certChain": {"certificates": [root]},
            "validFor": since,
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
                "trustedRoot": {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [log(self._log)],
                    "ctlogs": [log(self._ct)],
                    "certificateAuthorities": [authority],
                    "timestampAuthorities": [],
                },
                "signingConfig": {
                    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                    "caUrls": [service],
                    "oidcUrls": [],
                    "rekorTlogUrls": [service],
                    "rekorTlogConfig": {"selector": "ANY"},
                    "tsaUrls": [],
                    "tsaConfig": {"selector": "ANY"},
                },
            }
        )

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Make this the sigstore of this process, and the process a job of GitHub Actions."""
        config = ClientTrustConfig.from_json(self.config())
        patch.setattr(ClientTrustConfig, "production", lambda **options: config)
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "request-token-of-the-job")
        patch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{self.url}/identity?x=1")

    # -- the services ------------------------------------------------------------------

    def identity(self, audience: str) -> dict[str, str]:
        """Answer a job that asks for its identity."""
        now = int(datetime.now(timezone.utc).timestamp())
        said = {"iss": ISSUER, "sub": "repo:acme/negate", "aud": audience, "iat": now, "nbf": now}
        key = "a key that nobody checks, as only Fulcio would"
        return {"value": jwt.encode({**said, "exp": now + 300, **self.claims}, key)}

    def certificate(self, asked: dict[str, str], token: str) -> dict[str, Any]:
        """Answer Fulcio's `signingCert`: certify the key for the identity."""
        said = jwt.decode(token, options={"verify_signature": False, "verify_aud": False})
        request = x509.load_pem_x509_csr(base64.b64decode(asked["certificateSigningRequest"]))
        signer = f"https://github.com/{said['job_workflow_ref']}"
        now = datetime.now(timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._root.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + timedelta(minutes=10))
        )
        added: list[tuple[x509.ExtensionType, bool]] = [
            (x509.KeyUsage(**self._usage | {"digital_signature": True}), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.public_key()),
                False,
            ),
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(signer)]), True),
        ]
        for number, value in (
            (1, ISSUER.encode()),
            (8, _utf8(ISSUER)),
            (9, _utf8(signer)),
            (12, _utf8(f"https://github.com/{said['repository']}")),
        ):
            own = ObjectIdentifier(f"{_FULCIO}.{number}")
            added.append((x509.UnrecognizedExtension(own, value), False))
        for extension, critical in added:
            builder = builder.add_extension(extension, critical=critical)
        # The log signs the certificate as it is without that signature.
        before = builder.sign(self._ca, hashes.SHA256()).tbs_certificate_bytes
        timestamps = x509.UnrecognizedExtension(_SCT_LIST, self._timestamps(before, now))
        made = builder.add_extension(timestamps, critical=False).sign(self._ca, hashes.SHA256())
        chain = [each.public_bytes(Encoding.PEM).decode() for each in (made, self._root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _timestamps(self, certificate: bytes, now: datetime) -> bytes:
        """Return the extension's value: one timestamp by the certificate log."""
        moment = int(now.timestamp() * 1000)
        issuer = hashlib.sha256(_public(self._ca)).digest()
        entry = issuer + len(certificate).to_bytes(3, "big") + certificate
        signature = _sign(self._ct, struct.pack("!BBQH", 0, 0, moment, 1) + entry + b"\0\0")
        log = hashlib.sha256(_public(self._ct)).digest()
        one = b"\0" + log + struct.pack("!QHBBH", moment, 0, 4, 3, len(signature)) + signature
        return _der(0x04, struct.pack("!HH", len(one) + 2, len(one)) + one)

    def entry(self, body: bytes) -> dict[str, Any]:
        """Answer Rekor's `log/entries`: the only entry of its log."""
        asked = json.loads(body)
        if asked["kind"] == "dsse":
            # Of an envelope, the log keeps hashes and signatures only.
            proposed = asked["spec"].pop("proposedContent")
            envelope = json.loads(proposed["envelope"])
            payload = base64.b64decode(envelope["payload"])
            asked["spec"] = {
                "envelopeHash": _hash(proposed["envelope"].encode()),
                "payloadHash": _hash(payload),
                "signatures": [
                    {"signature": found["sig"], "verifier": verifier}
                    for found, verifier in zip(
                        envelope["signatures"], proposed["verifiers"], strict=True
                    )
                ],
            }
            body = json.dumps(asked).encode()
        identity = hashlib.sha256(_public(self._log)).digest()
        root = hashlib.sha256(b"\0" + body).digest()
        promised: dict[str, str | int] = {
            "body": _base64(body),
            "integratedTime": int(datetime.now(timezone.utc).timestamp()),
            "logID": identity.hex(),
            "logIndex": 0,
        }
        note = f"log.tests - 1\n1\n{_base64(root)}\n"
        signed = _base64(identity[:4] + _sign(self._log, note.encode()))
        proof = {
            "checkpoint": f"{note}\n\N{EM DASH} log.tests {signed}\n",
            "hashes": [],
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
        }
        promise = _base64(_sign(self._log, rfc8785.dumps(promised)))
        verification = {"signedEntryTimestamp": promise, "inclusionProof": proof}
        return {"0": {**promised, "verification": verification}}


@contextmanager
def sigstore() -> Iterator[Sigstore]:
    """Serve a sigstore from a thread."""
    services = Sigstore()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            services.served.append(parts.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            status = 500 if parts.path in services.refuse else 200
            found: dict[str, Any] = {"message": f"planted for {token}"}
            if status == 200 and parts.path == "/identity":
                found = services.identity(parse_qs(parts.query)["audience"][0])
            elif status == 200 and parts.path == "/api/v2/signingCert":
                found = services.certificate(json.loads(body), token)
            elif status == 200 and parts.path == "/api/v1/log/entries":
                found = services.entry(body)
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    services.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield services
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
