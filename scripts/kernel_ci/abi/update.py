"""Generate `data/abi.json` from the published wheels of `apache-tvm-ffi`.

Run by `nox -s abi-update`, or `python -m kernel_ci.abi.update`. Needs an index that pip
can reach, and zig's compiler (its wheel) to read the sizes of types. What it writes
depends only on the published wheels, so a new release is a re-run and a short diff.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from packaging.version import Version

from kernel_ci import tvm_ffi
from kernel_ci.abi.table import Release, SizeChange, Span, Table, TypeIndex
from kernel_ci.documents import write_atomic
from kernel_ci.errors import InfrastructureError, InputError

V = TypeVar("V", bound=Hashable)

#: The platform whose headers are compiled; the headers are the same in all wheels.
_REFERENCE = "x86_64-linux"


def published() -> dict[str, bool]:
    """Return every final release, oldest first, and whether it was yanked.

    pip lists them, yanked ones apart, when it is asked for a version that cannot be.

    Raises:
        InfrastructureError: pip could not list any.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-color"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", folder]
        command += ["--implementation", "cp", "--python-version", "3.12"]
        for tag in tvm_ffi.WHEEL_PLATFORMS[_REFERENCE]:
            command += ["--platform", tag]
        done = subprocess.run(
            [*command, "apache-tvm-ffi<0"], capture_output=True, text=True, check=False
        )
    return parse_listing(done.stderr)


def parse_listing(text: str) -> dict[str, bool]:
    """Return the final releases in pip's answer to a requirement that nothing satisfies."""
    current = re.search(r"\(from versions: ([^)]*)\)", text)
    if current is None or current[1] == "none":
        last = (text.strip().splitlines() or ["pip said nothing"])[-1]
        raise InfrastructureError(
            f"the releases of apache-tvm-ffi could not be listed: {last}",
            fix="check the network and pip's configuration, then run again",
        )
    ignored = re.search(r"Ignored the following yanked versions: (.*)", text)
    found = dict.fromkeys(_split(current[1]), False)
    found |= dict.fromkeys(_split(ignored[1]) if ignored else (), True)
    return {
        version: found[version]
        for version in sorted(found, key=Version)
        if not Version(version).is_prerelease
    }


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def generate(say: Callable[[str], None] = lambda line: None) -> Table:
    """Read all published releases and return the table."""
    yanked = published()
    versions = list(yanked)

    def fetch(cell: tuple[str, str]) -> tuple[tuple[str, str], tvm_ffi.Release | None]:
        try:
            return cell, tvm_ffi.fetch(*cell)
        except InputError:
            return cell, None  # no wheel for this platform

    cells = [(version, platform) for version in versions for platform in tvm_ffi.WHEEL_PLATFORMS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        fetched = {cell: found for cell, found in pool.map(fetch, cells) if found is not None}
        say(f"{len(versions)} releases, {len(fetched)} wheels")
        headers = [fetched[version, _REFERENCE] for version in versions]
        sizes = list(pool.map(read_sizes, headers))
    say("sizes read")
    exports: dict[str, dict[str, tuple[Span, ...]]] = {}
    for platform in tvm_ffi.WHEEL_PLATFORMS:
        here = [version for version in versions if (version, platform) in fetched]
        names = [frozenset(exported(fetched[version, platform])) for version in here]
        exports[platform] = {
            symbol: spans(here, [symbol in present for present in names])
            for symbol in sorted(frozenset().union(*names))
        }
        say(f"{platform}: {len(exports[platform])} symbols")
    indices = [read_type_indices(release) for release in headers]
    return Table(
        releases=tuple(
            Release(
                version=version,
                yanked=yanked[version],
                header_macro=_macro(release, "c_api.h", "TVM_FFI_VERSION_{}", 3),
                dlpack=_macro(release, "dlpack.h", "DLPACK_{}_VERSION", 2),
                platforms=tuple(p for p in tvm_ffi.WHEEL_PLATFORMS if (version, p) in fetched),
            )
            for version, release in zip(versions, headers, strict=True)
        ),
        sizes={
            name: tuple(
                SizeChange(since=since, bytes=value)
                for since, value in changes(versions, [found.get(name) for found in sizes])
            )
            for name in sorted(set().union(*sizes))
        },
        type_indices=tuple(
            TypeIndex(
                name=name, value=value, spans=spans(versions, [(name, value) in i for i in indices])
            )
            for name, value in sorted(set().union(*indices), key=lambda pair: pair[1])
        ),
        exports=exports,
    )


def spans(versions: Sequence[str], present: Sequence[bool]) -> tuple[Span, ...]:
    """Return the runs of releases in which something is present."""
    found = []
    start: str | None = None
    for index, here in enumerate(present):
        if here and start is None:
            start = versions[index]
        if not here and start is not None:
            found.append(Span(first=start, last=versions[index - 1]))
            start = None
    if start is not None:
        found.append(Span(first=start))
    return tuple(found)


def changes(versions: Sequence[str], values: Sequence[V]) -> list[tuple[str, V]]:
    """Return (release, value) for the first release and each one where the value differs."""
    pairs = list(zip(versions, values, strict=True))
    return pairs[:1] + [pair for before, pair in pairwise(pairs) if before[1] != pair[1]]


def exported(release: tvm_ffi.Release) -> Iterable[str]:
    """Return the names that a release's libtvm_ffi exports and that are tvm-ffi's own."""
    from kernel_ci.audit.readers import exported_names

    library = release.library
    if release.platform.endswith("-windows"):
        library = library.with_suffix(".dll")
    return (
        name
        for name in exported_names(library)
        if "TVMFFI" in name or "3tvm3ffi" in name or "@ffi@tvm@@" in name
    )


def read_sizes(release: tvm_ffi.Release) -> dict[str, int]:
    """Return the sizes in bytes that `data/abi_probe.cc` reads from a release's headers."""
    from elftools.elf.elffile import ELFFile

    with (
        tempfile.TemporaryDirectory() as folder,
        as_file(files("kernel_ci") / "data" / "abi_probe.cc") as source,
    ):
        output = Path(folder) / "probe.o"
        command = [sys.executable, "-m", "ziglang", "c++", "-target", "x86_64-linux-gnu.2.28"]
        command += ["-std=c++17", "-c", str(source), "-o", str(output)]
        command += [f"-I{release.include}", f"-I{release.dlpack_include}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InfrastructureError(
                f"the headers of {release.version} could not be compiled:"
                f" {done.stderr.strip()[:400]}",
                where="abi_probe.cc",
                fix="adapt the probe to the headers, it must compile with all releases",
            )
        with output.open("rb") as file:
            elf = ELFFile(file)
            table: Any = elf.get_section_by_name(".symtab")
            found = {}
            for symbol in table.iter_symbols():
                if symbol.name.startswith("size_"):
                    data = elf.get_section(symbol["st_shndx"]).data()
                    value = data[symbol["st_value"] : symbol["st_value"] + 8]
                    found[symbol.name.removeprefix("size_")] = int.from_bytes(value, "little")
    return found


def read_type_indices(release: tvm_ffi.Release) -> frozenset[tuple[str, int]]:
    """Return (name, value) of the types that a release's `c_api.h` numbers."""
    text = (release.include / "tvm" / "ffi" / "c_api.h").read_text(encoding="utf-8")
    body = re.search(r"enum TVMFFITypeIndex\b.*?\n#endif\n(.*?)\n#ifdef", text, re.DOTALL)
    if body is None:
        raise InfrastructureError(
            f"c_api.h of {release.version} has no enum TVMFFITypeIndex",
            fix="adapt kernel_ci.abi.update to the header",
        )
    return frozenset(
        (name, int(value))
        for name, value in re.findall(r"^\s*kTVMFFI(\w+) = (-?\d+)", body[1], re.MULTILINE)
        if not name.endswith(("Begin", "End"))
    )


def _macro(release: tvm_ffi.Release, header: str, pattern: str, parts: int) -> str:
    """Return a version that a header spells as macros."""
    folder = release.dlpack_include / "dlpack" if header == "dlpack.h" else None
    text = ((folder or release.include / "tvm" / "ffi") / header).read_text(encoding="utf-8")
    numbers = []
    for part in ("MAJOR", "MINOR", "PATCH")[:parts]:
        found = re.search(rf"#define {pattern.format(part)} (\d+)", text)
        if found is None:
            raise InfrastructureError(
                f"{header} of {release.version} does not define {pattern.format(part)}",
                fix="adapt kernel_ci.abi.update to the header",
            )
        numbers.append(found[1])
    return ".".join(numbers)


def render(table: Table) -> str:
    """Return the table as JSON with one entry a line, so that a diff can be read."""
    data = table.model_dump(mode="json")
    lines = ["{"]
    for key, value in data.items():
        if key == "exports":
            lines.append(' "exports": {')
            for platform, symbols in value.items():
                lines.append(f"  {json.dumps(platform)}: {{")
                lines += _entries(symbols, "   ")
                lines.append("  },")
            lines[-1] = "  }"
            lines.append(" },")
        elif isinstance(value, dict):
            lines += [f" {json.dumps(key)}: {{", *_entries(value, "  "), " },"]
        elif isinstance(value, list):
            lines.append(f" {json.dumps(key)}: [")
            lines += [f"  {json.dumps(entry)}," for entry in value]
            lines[-1] = lines[-1].removesuffix(",")
            lines.append(" ],")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)},")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}"]) + "\n"


def _entries(values: dict[str, Any], indent: str) -> list[str]:
    lines = [f"{indent}{json.dumps(key)}: {json.dumps(value)}," for key, value in values.items()]
    return [*lines[:-1], lines[-1].removesuffix(",")] if lines else []


def schema() -> str:
    """Return the JSON schema of the table."""
    return json.dumps(Table.model_json_schema(), indent=1) + "\n"


def main() -> None:
    """Write `abi.json` and its schema beside this package's other data, and docs/abi.md."""
    from kernel_ci.abi import show, table

    folder = Path(__file__).parent.parent / "data"
    found = generate(lambda line: print(line, file=sys.stderr))
    write_atomic(folder / "abi.json", render(found).encode())
    write_atomic(folder / "abi.schema.json", schema().encode())
    table.cache_clear()
    show.write_page(Path(__file__).parents[3])


if __name__ == "__main__":
    main()
