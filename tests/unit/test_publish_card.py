"""The card: what a reader on the Hub finds on it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_ci.abi import RuntimeWindow
from kernel_ci.errors import InputError
from kernel_ci.publish.card import Facts, Row, render

WINDOW = RuntimeWindow(
    built_with="0.1.15",
    floor="0.1.9",
    newest=None,
    denied=(),
    verified=("0.1.9", "0.1.15"),
)
FACTS = Facts(
    name="fast-norm",
    repo_id="acme/fast-norm",
    version=3,
    branch="v3",
    license="Apache-2.0",
    upstream=None,
    source="https://github.com/acme/fast-norm.git",
    commit="5" * 40,
    dirty=False,
    functions=("norm", "norm_into"),
    layers=("Norm",),
    has_benchmark=True,
    rows=(
        Row("tvm-ffi01-cpu-x86_64-linux", (), "CPU, x86_64-linux", None, WINDOW),
        Row("tvm-ffi01-cu130-x86_64-linux", ("8.0", "9.0+PTX"), "NVIDIA H200", None, WINDOW),
        Row("tvm-ffi01-metal-aarch64-darwin", (), None, "caller: no | runner", None),
    ),
    tag="v3-0123456789ab",
    signer="https://github.com/acme/ci/.github/workflows/release.yml@refs/tags/v1",
)
WHERE = Path("CARD.md")


def cells(card: str, variant: str) -> list[str]:
    """Return the cells of a variant's line in the table."""
    (line,) = (line for line in card.splitlines() if line.startswith(f"| `{variant}`"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[2:-1]]


def test_a_card_of_our_own() -> None:
    card = render(FACTS, None, where=WHERE)
    assert card.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n")
    for wanted in (
        'fast_norm = get_kernel("acme/fast-norm", version=3)',
        "fast_norm.norm(...)",
        "- `norm_into`",
        "- `Norm`",
        "kernels benchmark acme/fast-norm --version 3",
        "Version 3, release `v3-0123456789ab`.",
        "- License: Apache-2.0",
        f"https://github.com/acme/fast-norm/commit/{'5' * 40}",
        f"Signed by the workflow `{FACTS.signer}`",
        "`release.json` of the branch `v3`",
    ):
        assert wanted in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code is not None
    compile(code[1], "card", "exec")


def test_the_table_tells_what_was_proved() -> None:
    card = render(FACTS, None, where=WHERE)
    assert cells(card, "tvm-ffi01-cpu-x86_64-linux") == [
        "CPU, x86_64-linux", "≥ 0.1.9", "0.1.9, 0.1.15", "-",
    ]  # fmt: skip
    assert cells(card, "tvm-ffi01-cu130-x86_64-linux")[0] == "NVIDIA H200"
    assert cells(card, "tvm-ffi01-cu130-x86_64-linux")[3] == "8.0, 9.0+PTX"
    # Nobody may take what was only built for tested, and no text breaks the table.
    assert cells(card, "tvm-ffi01-metal-aarch64-darwin") == [
        r"not tested, built only: caller: no \| runner", "-", "-", "-",
    ]  # fmt: skip


def test_a_dirty_build_is_told() -> None:
    assert "nobody can build it again" in render(replace(FACTS, dirty=True), None, where=WHERE)
    assert "nobody can build it again" not in render(FACTS, None, where=WHERE)


def test_what_there_is_not_leaves_no_section() -> None:
    bare = replace(
        FACTS, functions=(), layers=(), has_benchmark=False, source=None, commit=None, signer=None
    )
    card = render(bare, None, where=WHERE)
    for word in ("## Functions", "## Layers", "## Benchmarks", "## Upstream", "commit", "None"):
        assert word not in card
    assert "\n\n\n" not in card


def test_a_template_of_the_kernel() -> None:
    """The variables are those of kernel-builder; what a template leaves out follows."""
    template = "# {{ name }} {{ version }}\n{% for it in functions %}* {{ it }}\n{% endfor %}"
    card = render(FACTS, template, where=WHERE)
    assert card.startswith("---\nlibrary_name: kernels\n")
    assert "# fast-norm 3\n* norm\n* norm_into\n" in card
    assert card.index("* norm_into") < card.index("## Builds")
    placed = render(FACTS, "{{ builds }}\n# After\n", where=WHERE)
    assert placed.index("## Builds") < placed.index("# After")
    assert placed.count("## Builds") == 1


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% for %}", "CARD.md:1: cannot be rendered"),
        ("{{ 1 + 'a' }}", "cannot be rendered"),
        ("{% for x in range(10000000) %}{% endfor %}", "cannot be rendered"),
        ("---\nlicense: [\n---\n", "not YAML"),
        ("---\n- a\n---\n", "not a mapping"),
        ("---\nlicense: mit\n---\n", "library_name"),
    ],
)
def test_templates_that_are_wrong(template: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        render(FACTS, template, where=WHERE)
    assert told in str(caught.value)
