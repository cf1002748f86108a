"""docs/support.md says what the support matrix says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci import support
from kernel_ci.errors import InputError
from kernel_ci.matrix import Matrix
from kernel_ci.support import BEGIN, END, render_support, section
from kernel_ci.variant import BACKENDS
from tests.helpers import ROOT
from tests.unit.test_matrix import BUILD_ONLY, ONE

PAGE = ROOT / "docs" / "support.md"


def test_the_page_has_the_table_of_the_matrix() -> None:
    found = section(PAGE.read_text(encoding="utf-8"), where=str(PAGE))
    assert found == render_support(Matrix.read()), "run `nox -s support`"


def test_every_variant_has_one_row() -> None:
    text = render_support(Matrix.read())
    for variant in Matrix.read().variants().values():
        assert text.count(f"| `{variant}` |") == 1
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(Matrix.read().variants())
    backends = [row[0].split("-")[2].rstrip("0123456789") for row in rows]
    order = ["cu" if backend == "cuda" else backend for backend in BACKENDS]
    assert sorted(backends, key=order.index) == backends


def test_a_row(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(ONE + BUILD_ONLY.replace("no such", "no | such"))
    assert render_support(Matrix.read(file)).splitlines() == [
        "Built with apache-tvm-ffi 0.1.15.post2, named after 0.1.",
        "",
        "| variant | backend | platform | toolchain | built on | tested on | quick tier |",
        "|---|---|---|---|---|---|---|",
        r"| `tvm-ffi01-cu126-x86_64-linux` | CUDA 12.6 | x86_64-linux | nvcc | ubuntu-24.04"
        r" | not tested: no \| such hardware |  |",
        "",
        "| toolkit | from version | default architectures |",
        "|---|---|---|",
        "| CUDA | 12.6 | 9.0+PTX |",
    ]


def test_rewriting_touches_the_section_alone(tmp_path: Path) -> None:
    page = tmp_path / "support.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter ü\n", encoding="utf-8")
    support.main(page)
    expected = f"before\n{BEGIN}\n{render_support(Matrix.read())}{END}\nafter ü\n"
    assert page.read_text(encoding="utf-8") == expected
    time = page.stat().st_mtime_ns
    support.main(page)
    assert page.stat().st_mtime_ns == time


@pytest.mark.parametrize(
    "text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n",
             f"{BEGIN}\n{END}\n{END}\n"],
)  # fmt: skip
def test_a_page_without_marks(text: str, tmp_path: Path) -> None:
    page = tmp_path / "support.md"
    page.write_text(text)
    with pytest.raises(InputError, match="does not have one marked section"):
        support.main(page)
    assert page.read_text() == text


def test_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        support.main(tmp_path / "support.md")
