"""The table of docs/support.md, made from the support matrix."""

from __future__ import annotations

from pathlib import Path

from kernel_ci.documents import write_atomic
from kernel_ci.errors import InputError
from kernel_ci.matrix import Entry, Matrix
from kernel_ci.variant import BACKENDS, Variant

PAGE = Path("docs") / "support.md"

BEGIN = "<!-- support matrix: begin; written by `nox -s support` -->"
END = "<!-- support matrix: end -->"

#: What a version of each backend is a version of.
_TOOLKITS = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "oneAPI"}


def render_support(matrix: Matrix) -> str:
    """Return the tables of a matrix in Markdown: its variants, and default architectures."""
    lines = [
        f"Built with apache-tvm-ffi {matrix.tvm_ffi.build}, named after {matrix.tvm_ffi.name}.",
        "",
        "| variant | backend | platform | toolchain | built on | tested on | quick tier |",
        "|---|---|---|---|---|---|---|",
    ]
    order = sorted(
        matrix.variants().items(),
        key=lambda item: (BACKENDS.index(item[1].backend), item[1].platform, str(item[1])),
    )
    lines += [_row(entry, variant) for entry, variant in order]
    lines += [
        "",
        "| toolkit | from version | default architectures |",
        "|---|---|---|",
    ]
    lines += [
        f"| {_TOOLKITS[backend]} | {version} | {' '.join(archs)} |"
        for backend, table in matrix.archs.items()
        for version, archs in table.items()
    ]
    return "\n".join(lines) + "\n"


def _row(entry: Entry, variant: Variant) -> str:
    backend = _TOOLKITS.get(variant.backend, variant.backend)
    if variant.backend_version is not None:
        backend += f" {variant.backend_version}"
    tested = " ".join(entry.test_runner)
    cells = (
        f"`{variant}`",
        backend,
        variant.platform,
        entry.toolchain,
        " ".join(entry.build_runner),
        f"not tested: {entry.reason}" if entry.evidence == "build-only" else tested,
        "yes" if entry.quick else "",
    )
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def section(page: str, *, where: str) -> str:
    """Return what stands between the marks of the page.

    Raises:
        InputError: The page has no marks.
    """
    before, begin, rest = page.partition(f"{BEGIN}\n")
    found, end, after = rest.partition(f"{END}\n")
    if not begin or not end or BEGIN in rest or END in before + after:
        raise InputError(
            "does not have one marked section", where=where, fix=f"write {BEGIN} and {END} into it"
        )
    return found


def main(page: Path = PAGE) -> None:
    """Write the marked section of the page anew.

    Raises:
        InputError: The page is missing or has no marks.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=page, fix="run it in the repository's root"
        ) from None
    old = section(text, where=str(page))
    table = render_support(Matrix.read())
    new = text.replace(f"{BEGIN}\n{old}{END}\n", f"{BEGIN}\n{table}{END}\n")
    if new != text:
        write_atomic(page, new.encode())
