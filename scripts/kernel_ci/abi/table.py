"""The ABI table: what each release of `apache-tvm-ffi` exports and how it lays out types.

`data/abi.json` is generated from the published wheels (`kernel_ci.abi.update`), the
judgements that no wheel can tell are written by hand in `data/abi_notes.toml`.
"""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Literal

import tomli
from packaging.version import InvalidVersion, Version
from pydantic import Field

from kernel_ci.documents import Document, Model
from kernel_ci.errors import InputError

#: C functions of tvm-ffi, and C++ names that live in namespace tvm::ffi (Itanium and
#: Microsoft mangling). A name that only mentions a tvm::ffi type in its arguments is not
#: one of them.
_TVM_FFI = re.compile(r"TVMFFI|_Z(?:T[VTISC]|G[VR])?NK?3tvm3ffi|\?.*@ffi@tvm@@")


def is_tvm_ffi(symbol: str) -> bool:
    """Tell whether only libtvm_ffi can provide a symbol (no leading underscore on macOS)."""
    return _TVM_FFI.match(symbol) is not None


class Release(Model):
    """A release of the package.

    Attributes:
        version: The package's version, post-release included.
        yanked: Withdrawn from the index; `==` still installs it.
        header_macro: What `TVM_FFI_VERSION_*` in its headers say, which is not always the
            release.
        dlpack: Version of DLPack that its headers hold.
        platforms: `<arch>-<os>` for which there is a wheel.
    """

    version: str
    yanked: bool
    header_macro: str
    dlpack: str
    platforms: tuple[str, ...]

    @cached_property
    def key(self) -> Version:
        """The version, comparable."""
        return Version(self.version)


class Span(Model):
    """Consecutive releases, both ends included; `last` is None for "up to the newest"."""

    first: str
    last: str | None = None


class SizeChange(Model):
    """A type has this size from a release on."""

    since: str
    bytes: int | None


class TypeIndex(Model):
    """A built-in type that the runtime knows by number."""

    name: str
    value: int
    spans: tuple[Span, ...]


class Table(Document):
    """The content of `data/abi.json`."""

    kind: Literal["abi-table"] = "abi-table"
    format: Literal[1] = 1
    package: Literal["apache-tvm-ffi"] = "apache-tvm-ffi"
    releases: tuple[Release, ...]
    sizes: dict[str, tuple[SizeChange, ...]]
    type_indices: tuple[TypeIndex, ...]
    exports: dict[str, dict[str, tuple[Span, ...]]]

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """All releases, oldest first."""
        return tuple(release.version for release in self.releases)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {version: index for index, version in enumerate(self.versions)}

    @property
    def newest(self) -> str:
        """The newest release in the table."""
        return self.versions[-1]

    def release(self, version: str) -> Release | None:
        """Return a release, or None for one that the table does not know."""
        index = self._position.get(version)
        return None if index is None else self.releases[index]

    def expand(self, spans: tuple[Span, ...]) -> frozenset[str]:
        """Return the releases in some spans."""
        found: set[str] = set()
        for span in spans:
            last = self._position[span.last] if span.last else len(self.versions) - 1
            found.update(self.versions[self._position[span.first] : last + 1])
        return frozenset(found)

    def exporting(self, symbol: str, platform: str) -> frozenset[str]:
        """Return the releases whose libtvm_ffi for a platform exports a symbol."""
        return self.expand(self.exports.get(platform, {}).get(symbol, ()))

    def size(self, layout: str, version: str) -> int | None:
        """Return the size of a type in bytes in a release's headers; None: no such type."""
        value = None
        for change in self.sizes[layout]:
            if self._position[change.since] > self._position[version]:
                break
            value = change.bytes
        return value

    @cached_property
    def epochs(self) -> tuple[tuple[str, ...], ...]:
        """Releases grouped by what the headers and C exports let a kernel rely on.

        A new epoch begins where a `TVMFFI*` export, a size or a type index differs from
        the release before. Within an epoch only C++ symbols can differ, which a library's
        imports show.
        """
        groups: list[list[str]] = []
        before: object = None
        for version in self.versions:
            now = (
                frozenset(
                    (platform, symbol)
                    for platform, symbols in self.exports.items()
                    for symbol, spans in symbols.items()
                    if symbol.startswith("TVMFFI") and version in self.expand(spans)
                ),
                tuple(self.size(layout, version) for layout in sorted(self.sizes)),
                tuple(t.name for t in self.type_indices if version in self.expand(t.spans)),
            )
            if now != before:
                groups.append([])
            groups[-1].append(version)
            before = now
        return tuple(tuple(group) for group in groups)

    def epoch(self, version: str) -> tuple[str, ...]:
        """Return the epoch that a release of the table belongs to."""
        return next(group for group in self.epochs if version in group)

    def representative(self, epoch: tuple[str, ...]) -> str:
        """Return the release to test for an epoch: the newest that is not yanked."""
        for version in reversed(epoch):
            release = self.release(version)
            if release is not None and not release.yanked:
                return version
        return epoch[-1]

    def order(self, version: str) -> int:
        """Return a release's position in the table, oldest 0."""
        return self._position[version]


class Marker(Model):
    """Text in a library's bytes that tells that it uses a feature of tvm-ffi.

    Attributes:
        feature: Name of the feature, e.g. `List`.
        text: Any of these, as bytes anywhere in the file.
    """

    feature: str
    text: tuple[str, ...] = Field(min_length=1)


class Risk(Model):
    """A break between headers and runtime that no missing symbol shows.

    Attributes:
        id: Short name.
        use: What a library does that runs into it, as people say it.
        why: What happens, as one clause.
        layout: The break is there where this type's size in the headers differs from the
            one in the runtime.
        only_if_larger: With `layout`: only where the headers' type is the larger one.
        type_index: The break is there where the runtime lacks this type.
        features: The library is concerned only if it has one of these markers ...
        imports: ... or imports one of these functions.
        words: Text that sources which run into it must contain one of, if there is any.
        certain: The use breaks wherever the library is concerned (true), or it may or may
            not, which only a test can tell (false).
    """

    id: str
    use: str
    why: str
    layout: str | None = None
    only_if_larger: bool = False
    type_index: str | None = None
    features: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    certain: bool


class BadHeaders(Model):
    """Releases whose headers nothing should be built with."""

    versions: tuple[str, ...]
    refuse: bool
    why: str


class Notes(Model):
    """The content of `data/abi_notes.toml`."""

    marker: tuple[Marker, ...]
    risk: tuple[Risk, ...]
    headers: tuple[BadHeaders, ...]


@lru_cache(maxsize=1)
def table() -> Table:
    """Return the checked-in table."""
    path = files("kernel_ci") / "data" / "abi.json"
    return Table.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))


@lru_cache(maxsize=1)
def notes() -> Notes:
    """Return the hand-written judgements."""
    path = files("kernel_ci") / "data" / "abi_notes.toml"
    return Notes.model_validate(tomli.loads(path.read_text(encoding="utf-8")))


def parse_version(text: str, *, where: str) -> Version:
    """Return a comparable version.

    Raises:
        InputError: The text is not a version.
    """
    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(
            f"{text!r} is not a version", where=where, fix="write e.g. 0.1.15.post2"
        ) from None
