"""The release of one kernel: what the Hub will hold, every file with its digests.

`assemble` lays it out beside the run's evidence, which stays as it is::

    <folder>/<kernel>/release/release.json            the manifest: every digest
    <folder>/<kernel>/release/README.md               the card
    <folder>/<kernel>/release/build/<variant>/…
    <folder>/<kernel>/release/benchmarks/benchmark*.py

The same sources, built and proved again, give the same release: the manifest holds no
times, no run and no machine.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_ci.abi import RuntimeWindow
from kernel_ci.abi.table import parse_version
from kernel_ci.audit.directory import read_python
from kernel_ci.audit.readers import library_format, read_library
from kernel_ci.build import package
from kernel_ci.checkout import open_kernel
from kernel_ci.documents import Document, Model, canonical_digest
from kernel_ci.errors import InputError, Rejected
from kernel_ci.gate import CellVerdict, Verdict
from kernel_ci.kernel import Kernel
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.matrix import Evidence
from kernel_ci.plan import Cell, Plan, PlannedKernel
from kernel_ci.publish import card
from kernel_ci.receipts import Receipt
from kernel_ci.source import Source

FILE = "release.json"
#: sigstore's bundle that attests where the release was built.
ATTESTATION = "release.json.sigstore"
CARD = "README.md"
LAYERS = "layers"

#: The Hub takes larger files through LFS only; git's id of such a file is never needed.
GIT_LIMIT = 10 << 20

_CHUNK = 1 << 20


class File(Model):
    """A file of a release.

    Attributes:
        size: Bytes.
        sha256: Digest of the content (hex); the Hub's id of an LFS file.
        git: Git's id of the content; the Hub's id of any other file. None for a large one.
    """

    size: int
    sha256: str
    git: str | None


class Build(Model):
    """A variant of a release.

    Attributes:
        variant: Its name.
        backend: Its backend.
        archs: The GPU architectures that it was built for.
        evidence: `tested`, or `build-only` where that was declared.
        declared: Who declared `build-only`, and why.
        functions: The tvm-ffi functions that its library exports.
        runtimes: The tvm-ffi runtimes that it works with, None where it states none.
    """

    variant: str
    backend: str
    archs: tuple[str, ...]
    evidence: Evidence
    declared: str | None
    functions: tuple[str, ...]
    runtimes: RuntimeWindow | None


class Release(Document):
    """The manifest of a release; it is published with it.

    Attributes:
        digest: Digest of `files`, which names the release.
        kernel: The kernel's name.
        version: Its major version.
        license: Its license, verbatim.
        repo_id: The Hub repository.
        branch: The branch that holds this version.
        source: The state of the sources that it was built from.
        public: `__all__` of the kernel, None where it has none.
        layers: The layers that it offers.
        builds: The variants, sorted.
        files: Every file of the branch by path, but for this one and the signatures.
        card: The card, which goes to the main branch.
    """

    kind: Literal["kernel-ci release"] = "kernel-ci release"
    format: Literal[1] = 1
    digest: str
    kernel: str
    version: int
    license: str
    repo_id: str
    branch: str
    source: Source
    public: tuple[str, ...] | None
    layers: tuple[str, ...]
    builds: tuple[Build, ...]
    files: dict[str, File]
    card: File

    @property
    def tag(self) -> str:
        """The Hub tag of the release, e.g. `v1-3f9c0a52d1e7`."""
        return tag_of(self.branch, self.digest)

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its libraries export."""
        return frozenset(name for build in self.builds for name in build.functions)

    @property
    def size(self) -> int:
        """Bytes of all files of the branch."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True)
class Prepared:
    """A release that is laid out on disk.

    Attributes:
        release: The manifest.
        folder: Where the files are, with the paths they have on the Hub.
    """

    release: Release
    folder: Path


def tag_of(branch: str, digest: str) -> str:
    """Return the Hub tag of a release from its branch and digest."""
    return f"{branch}-{digest.partition(':')[2][:12]}"


def assemble(
    plan: Plan,
    planned: PlannedKernel,
    verdict: Verdict,
    folder: Path,
    *,
    signer: str | None = None,
) -> Prepared:
    """Lay out the release of a kernel.

    Args:
        plan: The plan.
        planned: The kernel.
        verdict: The accepted verdict on the plan.
        folder: The run's folder.
        signer: The workflow that signs it, for the card.

    Raises:
        InputError: The kernel names no repository, its sources are not those of the plan,
            or its card cannot be rendered.
        Rejected: The variants are not of one kernel, or a file is not what its metadata says.
    """
    if planned.repo_id is None:
        raise InputError(
            "names no repository",
            where=f"{planned.path}/build.toml: general.hub.repo-id",
            fix='add [general.hub] with repo-id = "<organisation>/<name>"',
        )
    kernel = open_kernel(planned)
    cells = [cell for cell in plan.cells if cell.kernel == planned.name]
    target = folder / planned.name / "release"
    staging = target.with_name(".release.new")
    shutil.rmtree(staging, ignore_errors=True)
    for cell in cells:
        _place_variant(cell, folder, staging / "build" / cell.variant)
    for path in sorted((kernel.path / "benchmarks").glob("benchmark*.py")):
        _place(path, staging / "benchmarks" / path.name)
    files = {
        name: digest_file(staging / name)
        for name in package.files(staging)
        if not name.endswith(f"/{package.SIGNATURE}")
    }
    judged = {cell.id: cell for cell in verdict.cells}
    builds = tuple(_build(cell, judged[cell.id], files, staging) for cell in cells)
    public = _same_public(builds, staging)
    layers = _layers(staging / "build" / builds[0].variant) if LAYERS in (public or ()) else ()
    digest = canonical_digest({path: file.sha256 for path, file in sorted(files.items())})
    text = _card(
        kernel,
        planned,
        builds,
        judged,
        public=public,
        layers=layers,
        tag=tag_of(planned.branch, digest),
        signer=signer,
    )
    (staging / CARD).write_text(text)
    release = Release(
        digest=digest,
        kernel=planned.name,
        version=planned.version,
        license=planned.license,
        repo_id=planned.repo_id,
        branch=planned.branch,
        source=planned.source,
        public=public,
        layers=layers,
        builds=builds,
        files=files,
        card=digest_file(staging / CARD),
    )
    release.write(staging / FILE)
    shutil.rmtree(target, ignore_errors=True)
    staging.rename(target)
    return Prepared(release, target)


def digest_file(path: Path) -> File:
    """Return the digests of a file, which is read once and in pieces."""
    size = path.stat().st_size
    sha256 = hashlib.sha256()
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if size <= GIT_LIMIT else None
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            if git is not None:
                git.update(chunk)
    return File(size=size, sha256=sha256.hexdigest(), git=git.hexdigest() if git else None)


def digest_bytes(content: bytes) -> File:
    """Return the digests of a small file's content."""
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    sha256 = hashlib.sha256(content)
    return File(size=len(content), sha256=sha256.hexdigest(), git=git.hexdigest())


def verified_runtimes(receipts: Iterable[Receipt]) -> tuple[str, ...]:
    """Return the tvm-ffi runtimes under which a variant's tests passed, oldest first."""
    found = {
        version
        for receipt in receipts
        if receipt.outcome == "passed"
        for version in _runtimes_of(receipt)
    }
    return tuple(sorted(found, key=lambda version: parse_version(version, where="receipt")))


def _runtimes_of(receipt: Receipt) -> Sequence[str]:
    if receipt.stage == "test" and "apache-tvm-ffi" in receipt.tools:
        return [receipt.tools["apache-tvm-ffi"]]
    return receipt.runtimes if receipt.stage == "audit" else []


def with_verified(metadata: bytes, verified: Sequence[str]) -> bytes:
    """Return a `metadata.json` that names the runtimes its variant was verified under."""
    content = json.loads(metadata)
    stated = content.get(package.OWN_KEY, {}).get("tvm-ffi")
    if stated is None:
        return metadata
    stated["verified"] = list(verified)
    return (json.dumps(content, indent=2) + "\n").encode()


def _place_variant(cell: Cell, folder: Path, target: Path) -> None:
    """Lay out a variant; only its metadata differs, by the runtimes it was verified under."""
    directory = variant_directory(folder, cell)
    for name in package.files(directory):
        _place(directory / name, target / name)
    if (directory / package.SIGNATURE).exists():
        return  # Signed by whoever built it: not a byte of the metadata may change.
    receipts = [
        Receipt.read(file)
        for stage in cell.stages
        if (file := receipt_file(folder, cell, stage)).exists()
    ]
    filled = with_verified((directory / package.METADATA).read_bytes(), verified_runtimes(receipts))
    (target / package.METADATA).unlink()
    (target / package.METADATA).write_bytes(filled)


def _place(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _build(cell: Cell, judged: CellVerdict, files: Mapping[str, File], staging: Path) -> Build:
    directory = staging / "build" / cell.variant
    metadata = json.loads((directory / package.METADATA).read_bytes())
    _check_digest(cell, metadata, files)
    functions: set[str] = set()
    for name in package.files(directory):
        if library_format(directory / name) is not None:
            functions.update(read_library(directory / name, f"{cell.variant}/{name}").functions)
    return Build(
        variant=cell.variant,
        backend=cell.backend,
        archs=tuple(metadata["backend"].get("archs", ())),
        evidence=judged.evidence,
        declared=judged.declared,
        functions=tuple(sorted(functions)),
        runtimes=RuntimeWindow.from_metadata(metadata),
    )


def _check_digest(cell: Cell, metadata: dict[str, object], files: Mapping[str, File]) -> None:
    """Compare what was hashed now with what the build wrote into the metadata."""
    prefix = f"build/{cell.variant}/"
    found = {
        path.removeprefix(prefix): base64.b64encode(bytes.fromhex(file.sha256)).decode()
        for path, file in files.items()
        if path.startswith(prefix) and path != prefix + package.METADATA
    }
    stated = metadata.get("digest")
    if not isinstance(stated, dict) or stated.get("files") != found:
        raise Rejected(
            "its files are not those that its metadata.json is about",
            where=cell.id,
            fix="build and test it again",
        )


def _same_public(builds: Sequence[Build], staging: Path) -> tuple[str, ...] | None:
    """Return the one `__all__` of all variants."""
    found = {
        build.variant: public_names(staging / "build" / build.variant / "__init__.py")
        for build in builds
    }
    first, *others = found
    for other in others:
        if set(found[other] or ()) != set(found[first] or ()):
            raise Rejected(
                f"{first} and {other} have different public names (`__all__`)",
                where=staging.parent.name,
                fix="build all variants from the same sources",
            )
    return found[first]


def public_names(init: Path) -> tuple[str, ...] | None:
    """Return the literal `__all__` of a kernel's `__init__.py`, None without one."""
    return read_python(init.parent, [init.name]).public


def _layers(variant: Path) -> tuple[str, ...]:
    """Return the classes of the module `layers`, which may be a package."""
    for file in (variant / LAYERS / "__init__.py", variant / f"{LAYERS}.py"):
        if file.is_file():
            body = ast.parse(file.read_bytes()).body
            return tuple(node.name for node in body if isinstance(node, ast.ClassDef))
    return ()


def _card(
    kernel: Kernel,
    planned: PlannedKernel,
    builds: Sequence[Build],
    judged: Mapping[str, CellVerdict],
    *,
    public: tuple[str, ...] | None,
    layers: tuple[str, ...],
    tag: str,
    signer: str | None,
) -> str:
    template = kernel.path / "CARD.md"
    rows = []
    for build in builds:
        machine = judged[f"{planned.name}/{build.variant}"].machine
        rows.append(
            card.Row(
                variant=build.variant,
                archs=build.archs,
                tested_on=None
                if machine is None
                else f"{machine.device or 'CPU'}, {machine.platform}",
                declared=build.declared,
                runtimes=build.runtimes,
            )
        )
    general = kernel.general
    return card.render(
        card.Facts(
            name=planned.name,
            repo_id=str(planned.repo_id),
            version=planned.version,
            branch=planned.branch,
            license=planned.license,
            upstream=general.upstream,
            source=general.source,
            commit=planned.source.commit,
            dirty=planned.source.dirty,
            functions=tuple(name for name in public or () if name != LAYERS),
            layers=layers,
            has_benchmark=(kernel.path / "benchmarks" / "benchmark.py").exists(),
            rows=tuple(rows),
            tag=tag,
            signer=signer,
        ),
        template.read_text() if template.is_file() else None,
        where=template,
    )
