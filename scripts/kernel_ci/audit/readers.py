"""Read shared libraries of any format, without running them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernel_ci.abi.stamp import SYMBOL as STAMP_SYMBOL
from kernel_ci.abi.table import notes
from kernel_ci.audit.facts import LibraryFacts
from kernel_ci.errors import InputError

PREFIX = "__tvm_ffi_"

#: Bytes that are searched at a time.
_PIECE = 1 << 20

#: First bytes of each format. Universal Mach-O files (0xcafebabe) are read like thin ones.
_MAGIC = {
    b"\x7fELF": "elf",
    b"\xcf\xfa\xed\xfe": "macho",
    b"\xca\xfe\xba\xbe": "macho",
    b"MZ": "pe",
}


def library_format(path: Path) -> str | None:
    """Return `elf`, `macho`, `pe`, or None for a file that is none of these."""
    with path.open("rb") as file:
        head = file.read(4)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def read_library(path: Path, shown: str | None = None) -> LibraryFacts:
    """Return the facts of a library.

    Args:
        path: The file.
        shown: How the facts call it; its name by default.

    Raises:
        InputError: The file is no shared library, or a damaged one.
    """
    name = shown or path.name
    try:
        kind = library_format(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=name) from None
    if kind == "elf":
        from kernel_ci.audit.elf import read
    elif kind == "macho":
        from kernel_ci.audit.macho import read
    elif kind == "pe":
        from kernel_ci.audit.pe import read
    else:
        raise InputError(
            "is not a shared library (ELF, Mach-O or PE)",
            where=name,
            fix="give a library, a variant directory or a kernel's build folder",
        )
    return read(path, name)


def exported_names(path: Path) -> Iterable[str]:
    """Return the names that a library exports, e.g. a libtvm_ffi."""
    facts = read_library(path)
    return [*facts.other_exports, *(PREFIX + name for name in facts.functions)]


def split_exports(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (tvm-ffi functions without prefix, other names); the stamp is neither.

    Names that begin with `__tvm_ffi__` are tvm-ffi's own (metadata, embedded modules).
    """
    functions, others = set(), set()
    for name in names:
        if name == STAMP_SYMBOL:
            continue
        if name.startswith(PREFIX) and not name.startswith(PREFIX + "_"):
            functions.add(name.removeprefix(PREFIX))
        else:
            others.add(name)
    return tuple(sorted(functions)), tuple(sorted(others))


def find_features(path: Path, parts: Sequence[tuple[int, int]] | None = None) -> tuple[str, ...]:
    """Return the features of tvm-ffi whose marks are in a file's bytes.

    The file is read once and in pieces, so that one of a gigabyte takes no more memory.

    Args:
        path: The file.
        parts: Where marks can be, each as offset and size in bytes; all of it by default.
    """
    texts = {text.encode() for marker in notes().marker for text in marker.text}
    # Of a text that begins with another the longer one is taken, and stands for both.
    pattern = re.compile(b"|".join(re.escape(text) for text in sorted(texts, key=len)[::-1]))
    overlap = max(map(len, texts)) - 1
    hits: set[bytes] = set()
    with path.open("rb") as file:
        for offset, left in parts if parts is not None else ((0, path.stat().st_size),):
            file.seek(offset)
            rest = b""
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                hits.update(pattern.findall(rest + piece))
                rest = (rest + piece)[-overlap:]
    return tuple(
        marker.feature
        for marker in notes().marker
        if any(hit.startswith(text.encode()) for hit in hits for text in marker.text)
    )


def stamp_text(data: bytes) -> str:
    """Return the text of a stamp, which ends at its first zero byte."""
    return data.partition(b"\0")[0].decode("utf-8", errors="replace")


def damaged(name: str, error: Exception) -> InputError:
    """Return the error for a library that a reader could not make sense of."""
    return InputError(
        f"cannot be read as a shared library ({type(error).__name__}: {error})",
        where=name,
        fix="build the library again; a truncated or packed file cannot be audited",
    )
