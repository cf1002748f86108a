"""The ABI table as people read it: epochs, floors, and what separates two releases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_ci.abi.table import Notes, Release, Table, notes, parse_version, table
from kernel_ci.abi.window import applies, check_headers
from kernel_ci.documents import Model, write_atomic
from kernel_ci.errors import InputError, Rejected

if TYPE_CHECKING:
    from rich.console import Console

PAGE = Path("docs") / "abi.md"
BEGIN = "<!-- abi table: begin; written by `nox -s abi-update` -->"
END = "<!-- abi table: end -->"

#: Mangled names of what the compiler makes for a class; a kernel has its own.
_TYPE_INFO = ("_ZTI", "_ZTS", "_ZTV")

#: Linux's exports stand for those of all platforms where none is named: the C functions are
#: the same everywhere.
_PLATFORM = "x86_64-linux"


class Size(Model):
    """A type whose size in bytes differs; None where a release has no such type."""

    type: str
    older: int | None
    newer: int | None


class Difference(Model):
    """What separates two releases, for a kernel.

    Attributes:
        older: The older release.
        newer: The newer release.
        gained: Symbols that only the newer one exports.
        lost: Symbols that only the older one exports.
        sizes: Types whose size differs.
        types_gained: Built-in types that only the newer one knows.
        types_lost: Those that only the older one knows.
        dlpack: Versions of DLPack in the headers of both.
        same_epoch: Whether nothing but C++ symbols can differ for a kernel.
        risks: What no symbol shows: who breaks where, as `built with A, on B: use: why`.
    """

    older: str
    newer: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    sizes: tuple[Size, ...]
    types_gained: tuple[str, ...]
    types_lost: tuple[str, ...]
    dlpack: tuple[str, str]
    same_epoch: bool
    risks: tuple[str, ...]


class Epoch(Model):
    """Releases between which only C++ symbols can differ.

    Attributes:
        releases: Oldest first.
        yanked: Those of them that were yanked.
        runtime: The one that is tested for all of them.
        news: What began with it, as short texts; empty for the first.
    """

    releases: tuple[str, ...]
    yanked: tuple[str, ...]
    runtime: str
    news: tuple[str, ...]


class Floor(Model):
    """What a library uses, and the runtimes that have it."""

    use: str
    runtimes: str


def find(version: str, known: Table) -> Release:
    """Return a release of the table.

    Raises:
        InputError: It is no version, or not in the table.
    """
    wanted = parse_version(version, where="version")
    for release in known.releases:
        if release.key == wanted:
            return release
    raise InputError(
        f"the ABI table does not know apache-tvm-ffi {version}",
        where="version",
        fix=f"name one of {', '.join(known.versions)}; for a new release run `nox -s abi-update`",
    )


def difference(
    one: str, other: str, *, platform: str = _PLATFORM, known: Table | None = None
) -> Difference:
    """Return what separates two releases of the table.

    Args:
        one: A release.
        other: Another one, older or newer.
        platform: The platform whose C++ symbols are compared.
        known: The ABI table; the checked-in one by default.

    Raises:
        InputError: The table does not know one of them.
    """
    known = known or table()
    older, newer = sorted((find(one, known), find(other, known)), key=lambda found: found.key)

    def exports(version: str) -> set[str]:
        return {
            symbol
            for symbol, spans in known.exports[platform].items()
            if version in known.expand(spans)
        }

    def types(version: str) -> dict[str, int]:
        return {
            index.name: index.value
            for index in known.type_indices
            if version in known.expand(index.spans)
        }

    before, after = exports(older.version), exports(newer.version)
    knew, knows = types(older.version), types(newer.version)
    sizes = [
        Size(
            type=name, older=known.size(name, older.version), newer=known.size(name, newer.version)
        )
        for name in sorted(known.sizes)
    ]
    return Difference(
        older=older.version,
        newer=newer.version,
        gained=tuple(sorted(after - before)),
        lost=tuple(sorted(before - after)),
        sizes=tuple(size for size in sizes if size.older != size.newer),
        types_gained=tuple(name for name in knows if name not in knew),
        types_lost=tuple(name for name in knew if name not in knows),
        dlpack=(older.dlpack, newer.dlpack),
        same_epoch=known.epoch(older.version) == known.epoch(newer.version),
        risks=tuple(
            f"built with {headers.version}, on {runtime.version}: {risk.use}: {risk.why}"
            for headers, runtime in ((newer, older), (older, newer))
            for risk in notes().risk
            if applies(risk, headers.version, runtime.version, known)
            and (
                risk.type_index is None or risk.type_index in (knows if headers == newer else knew)
            )
        ),
    )


def epochs(known: Table | None = None) -> tuple[Epoch, ...]:
    """Return the epochs of the table, with what began with each."""
    known = known or table()
    found = []
    for number, releases in enumerate(known.epochs):
        news: list[str] = []
        if number:
            change = difference(known.epochs[number - 1][-1], releases[0], known=known)
            news += [f"`{name}`" for name in change.gained if name.startswith("TVMFFI")]
            news += [f"type `{name}`" for name in change.types_gained]
            news += [f"`{s.type}`: {s.older} to {s.newer} bytes" for s in change.sizes]
        found.append(
            Epoch(
                releases=releases,
                yanked=tuple(v for v in releases if find(v, known).yanked),
                runtime=known.representative(releases),
                news=tuple(news),
            )
        )
    return tuple(found)


def floors(known: Table | None = None, judgements: Notes | None = None) -> tuple[Floor, ...]:
    """Return what a library can use that not every release has, and which have it."""
    known, judgements = known or table(), judgements or notes()

    everywhere = frozenset(known.versions)

    def floor(use: str, having: frozenset[str]) -> tuple[int, Floor]:
        order = sorted(having, key=known.order)
        first, last = known.order(order[0]), known.order(order[-1])
        text = (
            f"{order[0]} and later" if order[-1] == known.newest else f"{order[0]} to {order[-1]}"
        )
        holes = [version for version in known.versions[first:last] if version not in having]
        text += f", but for {', '.join(holes)}" if holes else ""
        return first, Floor(use=use, runtimes=text)

    found = []
    for symbol, spans in sorted(known.exports[_PLATFORM].items()):
        having = known.expand(spans)
        if having == everywhere or symbol.startswith(_TYPE_INFO):
            continue
        kind = "function" if symbol.startswith("TVMFFI") else "C++ function"
        found.append(floor(f"the {kind} `{symbol}`", having))
    found += [
        floor(f"the type `{index.name}`", known.expand(index.spans))
        for index in known.type_indices
        if known.expand(index.spans) != everywhere
    ]
    for risk in judgements.risk:
        if risk.layout is None:
            continue
        now = known.size(risk.layout, known.newest)
        same = frozenset(v for v in known.versions if known.size(risk.layout, v) == now)
        found.append(floor(f"{risk.use} (built with the newest headers)", same))
    found.sort(key=lambda pair: (pair[0], pair[1].use.startswith("the C++")))
    return tuple(entry for _, entry in found)


def markdown(known: Table | None = None) -> str:
    """Return the tables of docs/abi.md."""
    lines = [
        "| releases (epoch) | yanked | tested for it | what began with it |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {', '.join(epoch.releases)} | {', '.join(epoch.yanked)} | {epoch.runtime}"
        f" | {', '.join(epoch.news)} |"
        for epoch in epochs(known)
    ]
    lines += ["", "| a library that uses | works on |", "|---|---|"]
    lines += [f"| {floor.use} | {floor.runtimes} |" for floor in floors(known)]
    return "\n".join(lines) + "\n"


def embed(page: str, text: str) -> str:
    """Return a page with the text between its two marks replaced.

    Raises:
        InputError: The page lacks a mark.
    """
    if BEGIN not in page or END not in page:
        raise InputError("the marks of the ABI table are missing", where=PAGE, fix=f"add {BEGIN}")
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{text}{END}{rest.partition(END)[2]}"


def write_page(root: Path) -> None:
    """Write the tables into docs/abi.md of a checkout."""
    page = root / PAGE
    write_atomic(page, embed(page.read_text(encoding="utf-8"), markdown()).encode())


def as_json(versions: Sequence[str]) -> dict[str, Any]:
    """Return what `render` prints, for a machine.

    Raises:
        InputError: The table does not know one of the versions.
    """
    known = table()
    if len(versions) == 2:
        return difference(*versions).model_dump(mode="json")
    if versions:
        release = find(versions[0], known)
        return release.model_dump(mode="json") | {"epoch": known.epoch(release.version)}
    return known.model_dump(mode="json") | {
        "epochs": [epoch.model_dump(mode="json") for epoch in epochs(known)],
        "floors": [floor.model_dump(mode="json") for floor in floors(known)],
    }


def render(console: Console, versions: Sequence[str]) -> None:
    """Print the table, a release, or what separates two.

    Raises:
        InputError: The table does not know one of the versions.
    """
    if len(versions) == 2:
        _render_difference(console, difference(*versions))
    elif versions:
        _render_release(console, find(versions[0], table()))
    else:
        _render_table(console)


def _render_table(console: Console) -> None:
    from rich.table import Table as Grid

    grid = Grid(title="epochs: between them a kernel can break", title_justify="left")
    for heading in ("releases", "yanked", "tested", "what began with it"):
        grid.add_column(heading, overflow="fold")
    for epoch in epochs():
        grid.add_row(
            ", ".join(epoch.releases),
            ", ".join(epoch.yanked),
            epoch.runtime,
            ", ".join(epoch.news).replace("`", ""),
        )
    console.print(grid)
    grid = Grid(title="floors", title_justify="left")
    for heading in ("a library that uses", "works on"):
        grid.add_column(heading, overflow="fold")
    for floor in floors():
        grid.add_row(floor.use.replace("`", ""), floor.runtimes)
    console.print(grid)


def _render_release(console: Console, release: Release) -> None:
    known = table()
    epoch = known.epoch(release.version)
    try:
        headers = check_headers(release.version) or "good to build with"
    except Rejected as error:
        headers = f"refused: {error.what}"
    console.print(f"apache-tvm-ffi {release.version}{' (yanked)' if release.yanked else ''}")
    for key, value in (
        ("headers", headers),
        ("its headers call themselves", release.header_macro),
        ("DLPack", release.dlpack),
        ("wheels", ", ".join(release.platforms)),
        ("epoch", ", ".join(epoch)),
    ):
        console.print(f"  {key}: {value}", highlight=False)
    position = known.order(release.version)
    if position:
        _render_difference(console, difference(known.versions[position - 1], release.version))


def _render_difference(console: Console, found: Difference) -> None:
    console.print(f"from {found.older} to {found.newer}:", highlight=False)
    lines = [f"+ {name}" for name in found.gained] + [f"- {name}" for name in found.lost]
    lines += [f"+ type {name}" for name in found.types_gained]
    lines += [f"- type {name}" for name in found.types_lost]
    lines += [f"~ {size.type}: {size.older} to {size.newer} bytes" for size in found.sizes]
    if found.dlpack[0] != found.dlpack[1]:
        lines.append(f"~ DLPack {found.dlpack[0]} to {found.dlpack[1]} (headers)")
    lines += [f"! {risk}" for risk in found.risks]
    for line in lines:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if not lines:
        console.print("  nothing that a kernel can see")
    elif found.same_epoch:
        console.print("  one epoch: only a library that imports these C++ symbols is concerned")
