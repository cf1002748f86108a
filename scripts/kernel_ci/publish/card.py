"""The card: the README that people see on the Hub, rendered from facts. Pure.

A kernel's own `CARD.md` is a template in the language that kernel-builder uses
(minijinja), with the variables that kernel-builder gives it: `repo_id`, `version`,
`functions`, `layers`, `has_benchmark`, `upstream`, `source`, `license`. Where it does not
place `builds` itself, that section follows at its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kernel_ci.abi import RuntimeWindow
from kernel_ci.errors import InputError

#: Steps after which a template is stopped; the cards of upstream's examples take under 2,000.
_FUEL = 1_000_000

#: What a cell of the table holds that says nothing.
_NOTHING = "-"

_FRONT = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """A line of the table of builds.

    Attributes:
        variant: The variant's name.
        archs: GPU architectures.
        tested_on: The hardware that it was proved on, None where it was only built.
        declared: Who declared that it is only built, and why.
        runtimes: The tvm-ffi runtimes that it works with.
    """

    variant: str
    archs: tuple[str, ...]
    tested_on: str | None
    declared: str | None
    runtimes: RuntimeWindow | None


@dataclass(frozen=True)
class Facts:
    """What a card tells.

    Attributes:
        name: The kernel's name.
        repo_id: Its repository.
        version: Its major version.
        branch: The branch that holds this version.
        license: Its license, as build.toml has it.
        upstream: Where the kernel's code comes from originally.
        source: Where its sources are.
        commit: The commit it was built from, None outside git.
        dirty: Whether files differed from that commit.
        functions: Its public names.
        layers: Its layers.
        has_benchmark: Whether `kernels benchmark` works.
        rows: The builds.
        tag: The Hub tag of the release.
        signer: The workflow that signs it.
    """

    name: str
    repo_id: str
    version: int
    branch: str
    license: str
    upstream: str | None
    source: str | None
    commit: str | None
    dirty: bool
    functions: tuple[str, ...]
    layers: tuple[str, ...]
    has_benchmark: bool
    rows: tuple[Row, ...]
    tag: str
    signer: str | None


def render(facts: Facts, template: str | None, *, where: Path) -> str:
    """Return a card.

    Args:
        facts: What it tells.
        template: The kernel's own template; without one, kernel-ci's.
        where: The template's file, for messages.

    Raises:
        InputError: The template cannot be rendered, or gives metadata that the Hub refuses.
    """
    import minijinja

    own = template is not None
    text = template if template is not None else _data("CARD.md.j2")
    environment = minijinja.Environment(trim_blocks=True, fuel=_FUEL, pycompat=False)
    values = {
        "repo_id": facts.repo_id,
        "version": facts.version,
        "functions": list(facts.functions) or None,
        "layers": list(facts.layers) or None,
        "has_benchmark": facts.has_benchmark,
        "upstream": facts.upstream,
        "source": facts.source,
        # The Hub's names of licenses are in lower case.
        "license": facts.license.lower(),
        "name": facts.name,
    }
    try:
        builds = environment.render_str(
            _data("builds.md.j2"),
            "builds",
            facts=facts,
            commit_url=_commit_url(facts),
            rows=[_cells(row) for row in facts.rows],
            **values,
        ).strip("\n")
        body = environment.render_str(text, "CARD.md", builds=builds, **values)
        placed = not own or "builds" in environment.undeclared_variables_in_str(text)
    except minijinja.TemplateError as error:
        raise InputError(
            f"cannot be rendered: {error.message}",
            where=f"{where}:{error.line}" if error.line else where,
            fix="it is a minijinja template; compare with the card that `kernel-builder init`"
            " writes, or delete it to get kernel-ci's",
        ) from None
    if not placed:
        body = f"{body.rstrip()}\n\n{builds}\n"
    return _with_front_matter(body, facts, where).rstrip() + "\n"


def _cells(row: Row) -> dict[str, str]:
    window = row.runtimes
    runtimes = _NOTHING
    if window is not None:
        runtimes = f"≥ {window.floor}" + (f", ≤ {window.newest}" if window.newest else "")
        if window.denied:
            runtimes += ", not " + ", ".join(entry.version for entry in window.denied)
    proved = row.tested_on or f"not tested, built only: {row.declared or 'no reason given'}"
    return {
        "variant": row.variant,
        "proved": proved.replace("|", "\\|").replace("\n", " "),
        "runtimes": runtimes,
        "verified": ", ".join(window.verified) if window and window.verified else _NOTHING,
        "archs": ", ".join(row.archs) or _NOTHING,
    }


def _commit_url(facts: Facts) -> str | None:
    """Return the page of the commit where sources are on GitHub, GitLab or the like."""
    if facts.commit is None or not re.match(r"https://[^\s()]+$", facts.source or ""):
        return None
    return f"{str(facts.source).removesuffix('.git').rstrip('/')}/commit/{facts.commit}"


def _with_front_matter(body: str, facts: Facts, where: Path) -> str:
    """Return a card whose metadata is valid and names the library that loads it."""
    import yaml

    block = _FRONT.match(body)
    if block is None:
        return f"---\nlibrary_name: kernels\nlicense: {facts.license.lower()}\n---\n{body}"
    try:
        metadata = yaml.safe_load(block[1]) or {}
    except yaml.YAMLError as error:
        raise InputError(
            f"the metadata at its top is not YAML: {' '.join(str(error).split())}", where=where
        ) from None
    if not isinstance(metadata, dict):
        raise InputError("the metadata at its top is not a mapping", where=where)
    if metadata.get("library_name") != "kernels":
        raise InputError(
            f"the metadata at its top says library_name: {metadata.get('library_name')}",
            where=where,
            fix="write `library_name: kernels`, so that the Hub shows how to load it",
        )
    return body


def _data(name: str) -> str:
    return (files("kernel_ci.publish") / name).read_text()
