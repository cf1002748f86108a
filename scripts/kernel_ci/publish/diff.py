"""What a release changes on the Hub, and what must not be changed. Pure.

The rules, for a version that is published already:

* What it has stays as it is, unless the publisher says `--replace`.
* A variant that it has stays, unless the publisher says `--drop`.
* Its API stays: users who have an older build of the same major version rely on it, and
  code written for a newer one must run on it. Nothing overrides this but a new major
  version. Version 0 promises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_ci.build.package import SIGNATURE
from kernel_ci.errors import Rejected
from kernel_ci.publish.release import ATTESTATION, FILE, File, Release

_OURS = re.compile(
    rf"build/.+|benchmarks/benchmark[^/]*\.py|{re.escape(FILE)}|{re.escape(ATTESTATION)}"
)
_MOST_NAMED = 5


@dataclass(frozen=True)
class Served:
    """A file as the Hub lists it.

    Attributes:
        size: Bytes.
        git: Git's id of the file, or of the LFS pointer to it.
        sha256: Digest of the content where it is an LFS file.
    """

    size: int
    git: str
    sha256: str | None

    def holds(self, file: File) -> bool:
        """Tell whether this is a file's content."""
        if self.size != file.size:
            return False
        return self.sha256 == file.sha256 if self.sha256 is not None else self.git == file.git


@dataclass(frozen=True)
class Remote:
    """What the Hub has for a kernel.

    Attributes:
        main: The commit of the main branch.
        card: The card there, if any.
        head: The commit of the version's branch, None where the version is not published.
        files: Files of the version's branch; of the main branch where there is none yet,
            because a new branch starts from it.
        newest: The highest version that is published, None if none is.
        tags: Names of the tags.
        staging: Branches of this version that broken-off runs left behind.
    """

    main: str
    card: Served | None
    head: str | None
    files: Mapping[str, Served]
    newest: int | None
    tags: Collection[str]
    staging: Collection[str] = ()


@dataclass(frozen=True)
class Api:
    """What users of a published version rely on.

    Attributes:
        public: `__all__` of each published variant, None for one without.
        functions: Functions that the libraries export, None where this is not known.
    """

    public: Mapping[str, frozenset[str] | None]
    functions: frozenset[str] | None


@dataclass(frozen=True)
class Changes:
    """What publishing a release changes.

    Attributes:
        add: Paths to add or replace on the version's branch, the signatures left out.
        delete: Paths to delete there.
        new: Variants that the published version lacks.
        changed: Variants with another content than the published ones.
        dropped: Variants that the release lacks.
        kept: Variants that are published as they are.
        unsigned: Variants of `kept` without a signature on the Hub.
        attested: Whether the Hub has an attestation of this very release.
        rewritten: Published files that get another content or go, in no variant.
        card: Whether the card changes.
        tag: Whether the release has no tag yet.
    """

    add: tuple[str, ...]
    delete: tuple[str, ...]
    new: tuple[str, ...]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    kept: tuple[str, ...]
    unsigned: tuple[str, ...]
    attested: bool
    rewritten: tuple[str, ...]
    card: bool
    tag: bool

    @property
    def branch(self) -> bool:
        """Whether the version's branch changes."""
        return bool(self.add or self.delete)

    def __bool__(self) -> bool:
        return self.branch or self.card or self.tag


def variant_of(path: str) -> str | None:
    """Return the variant that a path on the Hub belongs to, if any."""
    parts = path.split("/")
    return parts[1] if parts[0] == "build" and len(parts) > 2 else None


def compare(release: Release, manifest: File, remote: Remote) -> Changes:
    """Return what publishing a release changes.

    A signature is no content: signing again gives another one each time. One that is there
    stays with its variant, and goes when the variant changes; the attestation with the release.

    Args:
        release: The release.
        manifest: Its own manifest's digests.
        remote: What the Hub has.
    """
    wanted = {**release.files, FILE: manifest}
    ours = {path: served for path, served in remote.files.items() if _OURS.fullmatch(path)}
    add = {path for path, file in wanted.items() if path not in ours or not ours[path].holds(file)}
    touched = {variant_of(path) for path in add}
    gone = {
        path
        for path in ours
        if path not in wanted and path != ATTESTATION and not path.endswith(f"/{SIGNATURE}")
    }
    touched |= {variant_of(path) for path in gone}
    variants = {build.variant for build in release.builds}
    signed = {variant_of(path) for path in ours if path.endswith(f"/{SIGNATURE}")}
    stale_signatures = {
        path
        for path in ours
        if path.endswith(f"/{SIGNATURE}")
        and (variant_of(path) in touched or variant_of(path) not in variants)
    }
    attested = ATTESTATION in ours and FILE not in add
    if ATTESTATION in ours and not attested:
        stale_signatures.add(ATTESTATION)
    published = {variant_of(path) for path in ours} - {None} if remote.head else set()
    return Changes(
        add=tuple(sorted(add)),
        delete=tuple(sorted(gone | stale_signatures)),
        new=_sorted(variants - published),
        changed=_sorted(variants & published & touched),
        dropped=_sorted(published - variants),
        kept=_sorted((variants & published) - touched),
        unsigned=_sorted((variants & published) - touched - signed),
        attested=attested,
        rewritten=tuple(
            path
            for path in sorted((add | gone) & ours.keys())
            if remote.head and variant_of(path) is None and path != FILE
        ),
        # The card tells about the newest version.
        card=(remote.newest is None or release.version >= remote.newest)
        and not (remote.card is not None and remote.card.holds(release.card)),
        tag=release.tag not in remote.tags,
    )


def refuse(
    release: Release,
    changes: Changes,
    api: Api | None,
    *,
    replace: bool,
    drop: bool,
) -> None:
    """Refuse changes that a published version must not see.

    Args:
        release: The release.
        changes: What it changes.
        api: What users of the published version rely on, None if it is not published.
        replace: The publisher wants other content in place of what is published.
        drop: The publisher wants variants to vanish that are published.

    Raises:
        Rejected: It must not be published like this; all reasons are told at once.
    """
    reasons, fixes = [], []
    if changes.dropped and not drop:
        reasons.append(
            f"the published version has {_named(changes.dropped)}, which this release lacks;"
            " builds of a version are never removed"
        )
        fixes.append("build them too (see `kernel-ci plan --explain`), or say --drop")
    rewritten = changes.changed + changes.rewritten
    if rewritten and not replace:
        reasons.append(
            f"the version is published already with other content for {_named(rewritten)}"
        )
        fixes.append("raise `version` in build.toml, or say --replace")
    if api is not None and release.version > 0:
        broken = api_changes(release, api)
        if broken:
            reasons.append("the API differs from the published one: " + "; ".join(broken))
            fixes.append(
                "raise `version` in build.toml: within a major version an API neither loses"
                " nor gains a name (_private ones do not count)"
            )
    if reasons:
        raise Rejected(
            "\n  ".join(reasons),
            where=f"{release.repo_id} {release.branch}",
            fix="\n       ".join(fixes),
        )


def api_changes(release: Release, api: Api) -> list[str]:
    """Return how the API of a release differs from the published one, by symbol."""
    found: dict[str, None] = {}
    ours = _named_public(release.public)
    for theirs in api.public.values():
        if theirs is None or ours is None:
            continue
        for name in sorted(ours ^ _visible(theirs)):
            change = "adds" if name in ours else "lacks"
            found[f"it {change} `{name}` in `__all__`"] = None
    if api.functions is not None:
        mine, published = _visible(release.functions), _visible(api.functions)
        for name in sorted(mine ^ published):
            change = "adds" if name in mine else "lacks"
            found[f"it {change} the exported function `{name}`"] = None
    return list(found)


def _named_public(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else _visible(names)


def _visible(names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_"))


def _sorted(names: Collection[str | None]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name is not None))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def functions_of(manifest: Any) -> frozenset[str] | None:
    """Return the functions that a published manifest names, None where it names none."""
    try:
        return frozenset(str(name) for build in manifest["builds"] for name in build["functions"])
    except (KeyError, TypeError):
        return None
