"""Which tvm-ffi runtimes a library fits: judged from its facts, pure.

A library's window is every release that exports all the symbols it imports, less those
that break it in a way no symbol shows (`data/abi_notes.toml`). The lower end is its floor.
The upper end is open unless a release that is known already lacks something it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from pydantic import Field, ValidationError

from kernel_ci.abi.table import Notes, Risk, Table, is_tvm_ffi, notes, parse_version, table
from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError, Rejected

Status = Literal["fits", "unproven", "breaks"]


class Judged(Model):
    """How a library fits one release of the runtime.

    Attributes:
        version: The release.
        status: `fits`; `breaks`; or `unproven`: it may break in a way that only a test
            under a runtime of that epoch can tell.
        reasons: Why, where it does not simply fit.
    """

    version: str
    status: Status
    reasons: tuple[str, ...] = ()


class Window(Model):
    """How a library fits each release of the table, oldest first.

    Attributes:
        headers: The release whose headers it was compiled with, None if it is not known.
        releases: One judgement a release.
        unknown_symbols: Imports that belong to tvm-ffi and that no release exports.
    """

    headers: str | None
    releases: tuple[Judged, ...]
    unknown_symbols: tuple[str, ...] = ()

    def with_status(self, *status: Status) -> tuple[str, ...]:
        """Return the releases with one of some statuses, oldest first."""
        return tuple(entry.version for entry in self.releases if entry.status in status)

    @property
    def floor(self) -> str | None:
        """The oldest release that fits, None if none does."""
        return next(iter(self.with_status("fits")), None)

    @property
    def import_floor(self) -> str | None:
        """The oldest release that does not break it for certain."""
        return next(iter(self.with_status("fits", "unproven")), None)

    @property
    def ceiling(self) -> str | None:
        """The newest release that fits, None if that is the newest release there is."""
        fits = self.with_status("fits")
        return fits[-1] if fits and fits[-1] != self.releases[-1].version else None

    def judged(self, version: str) -> Judged | None:
        """Return the judgement on a release, None for one that the table does not know."""
        return next((entry for entry in self.releases if entry.version == version), None)


def judge(
    imports: Collection[str],
    features: Collection[str],
    headers: str | None,
    platform: str,
    *,
    ruled_out: Collection[str] = (),
    known: Table | None = None,
    judgements: Notes | None = None,
) -> Window:
    """Return how a library fits each release.

    Args:
        imports: Names of the symbols that it needs from elsewhere (weak ones left out).
        features: Features of tvm-ffi whose marks it carries.
        headers: The release it was compiled with. Where this is not known, or newer than
            the table, the newest release's layouts are assumed.
        platform: `<arch>-<os>`; without wheels there, x86_64-linux stands in.
        ruled_out: Risks that its sources cannot run into, by its stamp.
        known: The ABI table; the checked-in one by default.
        judgements: The hand-written notes; the checked-in ones by default.
    """
    known = known or table()
    judgements = judgements or notes()
    if platform not in known.exports:
        platform = "x86_64-linux"
    layouts = headers if headers and known.release(headers) else known.newest
    providers = {
        symbol: known.exporting(symbol, platform)
        for symbol in sorted(imports)
        if symbol in known.exports[platform] or is_tvm_ffi(symbol)
    }
    concerned = [
        risk
        for risk in judgements.risk
        if risk.id not in ruled_out
        and (set(risk.features) & set(features) or set(risk.imports) & set(imports))
    ]
    released = []
    for version in known.versions:
        breaks = [
            f"it does not export {symbol}"
            for symbol, exporting in providers.items()
            if version not in exporting
        ]
        doubts: list[str] = []
        for risk in concerned:
            if applies(risk, layouts, version, known):
                (breaks if risk.certain else doubts).append(risk.why)
        status: Status = "breaks" if breaks else "unproven" if doubts else "fits"
        released.append(Judged(version=version, status=status, reasons=tuple(breaks + doubts)))
    return Window(
        headers=headers,
        releases=tuple(released),
        unknown_symbols=tuple(symbol for symbol, found in providers.items() if not found),
    )


def applies(risk: Risk, headers: str, runtime: str, known: Table) -> bool:
    """Tell whether a risk exists between some headers and a runtime, both of the table."""
    if risk.layout is not None:
        built, there = known.size(risk.layout, headers), known.size(risk.layout, runtime)
        if built is None or there is None:
            return built != there
        return built > there if risk.only_if_larger else built != there
    return not any(
        index.name == risk.type_index and runtime in known.expand(index.spans)
        for index in known.type_indices
    )


def check_headers(version: str, *, known: Table | None = None) -> str | None:
    """Judge a release to build with, before anything is built.

    Returns:
        A warning, or None.

    Raises:
        Rejected: The headers of this release are known to give broken libraries.
        InputError: It is not a version.
    """
    known = known or table()
    wanted = parse_version(version, where="tvm-ffi version")
    for entry in notes().headers:
        if wanted not in {parse_version(bad, where="abi_notes.toml") for bad in entry.versions}:
            continue
        if entry.refuse:
            raise Rejected(
                f"nothing may be built with the headers of apache-tvm-ffi {version}: {entry.why}",
                where="tvm-ffi version",
                fix=f"build with another release, e.g. {recommended(known)}",
            )
        return f"headers of apache-tvm-ffi {version}: {entry.why}"
    release = next((r for r in known.releases if r.key == wanted), None)
    if release is None:
        return (
            f"the ABI table does not know apache-tvm-ffi {version};"
            " run `nox -s abi-update` and read the difference"
        )
    if release.yanked:
        return f"apache-tvm-ffi {version} was yanked; build with another release"
    return None


def recommended(known: Table | None = None) -> str:
    """Return the newest release that is neither yanked nor bad to build with."""
    known = known or table()
    bad = {version for entry in notes().headers for version in entry.versions}
    return next(
        release.version
        for release in reversed(known.releases)
        if not release.yanked and release.version not in bad
    )


class Denied(Model):
    """A runtime that a library must not meet."""

    version: str
    reason: str


class RuntimeWindow(Model):
    """What a library promises: stated in `metadata.json`, enforced by `_ops.py`.

    Attributes:
        built_with: The release of tvm-ffi it was compiled with.
        floor: The oldest runtime it works with.
        newest: The newest one, or None. None does not mean "every later release": one of
            another major or minor version is refused all the same. It means that no later
            release of this line is known to break the library. Those releases cannot have
            been tested, and are allowed, else each release of tvm-ffi would disable every
            kernel that is published.
        denied: Runtimes between the two that it does not work with.
        verified: Runtimes under which its tests ran.
    """

    built_with: str = Field(alias="built-with")
    floor: str
    newest: str | None = None
    denied: tuple[Denied, ...] = ()
    verified: tuple[str, ...] = ()

    def to_metadata(self) -> dict[str, object]:
        """Return the value for `kernel-ci.tvm-ffi` in `metadata.json`."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> RuntimeWindow | None:
        """Return what a `metadata.json` states, None if it states nothing.

        Raises:
            InputError: The statement is malformed, or names something that is no version.
        """
        own = metadata.get("kernel-ci")
        if not isinstance(own, dict) or "tvm-ffi" not in own:
            return None
        where = "metadata.json: kernel-ci.tvm-ffi"
        try:
            stated = cls.model_validate(own["tvm-ffi"])
        except ValidationError as error:
            raise InputError(describe(error), where=where) from None
        for version in (stated.built_with, stated.floor, stated.newest, *stated.verified):
            if version is not None:
                parse_version(version, where=where)
        for entry in stated.denied:
            parse_version(entry.version, where=where)
        return stated

    def admits(self, version: str) -> bool:
        """Tell whether `_ops.py` lets a runtime pass."""
        at = parse_version(version, where="runtime")
        floor = parse_version(self.floor, where="floor")
        return (
            at >= floor
            and at.release[:2] == floor.release[:2]
            and (self.newest is None or at <= parse_version(self.newest, where="newest"))
            and at not in {parse_version(entry.version, where="denied") for entry in self.denied}
        )


def runtime_window(
    window: Window,
    built_with: str,
    *,
    at_least: str | None = None,
    verified: Iterable[str] = (),
    known: Table | None = None,
) -> RuntimeWindow:
    """Return the window to state for a library.

    Args:
        window: How the library fits each release.
        built_with: The release it was compiled with.
        at_least: A floor that the author sets; it can only raise the one found.
        verified: Runtimes under which its tests ran and passed. A release that was
            unproven counts as proven where one of the same epoch is among these.
        known: The ABI table; the checked-in one by default.

    Raises:
        Rejected: No release fits the library.
    """
    known = known or table()
    verified = sorted(set(verified), key=lambda version: parse_version(version, where="verified"))
    proven = {
        version
        for runtime in verified
        if known.release(runtime)
        for version in known.epoch(runtime)
    }
    fitting = [
        entry.version
        for entry in window.releases
        if (entry.status == "fits" or (entry.status == "unproven" and entry.version in proven))
        and (
            at_least is None
            or parse_version(entry.version, where="release")
            >= parse_version(at_least, where="floor")
        )
    ]
    if not fitting:
        reasons = "; ".join(window.releases[-1].reasons) or f"none is as new as {at_least}"
        raise Rejected(
            f"no release of apache-tvm-ffi fits the library (with {known.newest}: {reasons})",
            fix="remove what it needs, or run `nox -s abi-update` if a newer release is out",
        )
    first, last = known.order(fitting[0]), known.order(fitting[-1])
    return RuntimeWindow(
        **{"built-with": built_with},
        floor=fitting[0],
        newest=None if fitting[-1] == known.newest else fitting[-1],
        denied=tuple(
            Denied(version=entry.version, reason="; ".join(entry.reasons))
            for entry in window.releases[first : last + 1]
            if entry.version not in fitting
        ),
        verified=tuple(verified),
    )


def epoch_runtimes(window: RuntimeWindow, *, known: Table | None = None) -> tuple[str, ...]:
    """Return the runtimes to test a library under: the floor, one an epoch, the newest."""
    known = known or table()
    chosen = {known.representative(epoch) for epoch in known.epochs}
    chosen |= {known.representative((known.newest,)), window.floor}
    if window.newest is not None:
        chosen.add(window.newest)
    return tuple(v for v in known.versions if v in chosen and window.admits(v))
