"""The variant directory: what the Hub holds under `build/<variant>/`.

Its layout is that of kernel-builder's results: the Python package's files at the top, the
generated `_ops.py`, the library `<id>.<suffix>` and `metadata.json`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from kernel_ci import __version__
from kernel_ci.abi import RuntimeWindow, guard
from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel
from kernel_ci.layout import variant_directory
from kernel_ci.plan import Cell
from kernel_ci.source import Source, digest_of

METADATA = "metadata.json"
SIGNATURE = "metadata.json.sigstore"
OPS = "_ops.py"

#: Our own part of metadata.json; the kernels client ignores fields that it does not know.
OWN_KEY = "kernel-ci"


def variant_id(kernel: Kernel, cell: Cell, source: Source) -> str:
    """Return the variant's id, which is also the name of its library and of its module.

    `_<python name>_<backend>_<unique id>`. A process that loads two variants of one id runs
    the first one's library twice, so the toolkit's version is part of the unique id: a
    machine can load variants for two CUDA versions.
    """
    compute = [] if cell.backend_version is None else [cell.parsed().compute]
    parts = [kernel.python_name, cell.backend, *compute, source.unique_id]
    return f"_{'_'.join(parts)}"


def assemble(
    kernel: Kernel,
    cell: Cell,
    source: Source,
    library: Path,
    target: Path,
    *,
    runtimes: RuntimeWindow,
) -> None:
    """Write the complete variant directory.

    Args:
        kernel: The kernel.
        cell: The cell.
        source: The state of the kernel's sources.
        library: The compiled library.
        target: The directory; what is there is replaced.
        runtimes: The tvm-ffi runtimes that the library works with.
    """
    identity = variant_id(kernel, cell, source)
    staging = target.parent / f".{target.name}.new"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for name in package_files(kernel):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel.package / name, staging / name)
    shutil.copyfile(library, staging / (identity + cell.parsed().library_suffix))
    (staging / OPS).write_text(ops_module(kernel.name, identity, runtimes))
    content = metadata(kernel, cell, source, runtimes=runtimes)
    content["digest"] = {"algorithm": "sha256", "files": hashes(staging)}
    (staging / METADATA).write_text(json.dumps(content, indent=2) + "\n")
    for path in staging.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    staging.rename(target)


def package_files(kernel: Kernel) -> list[str]:
    """Return the package's files that belong in a variant, relative to the package.

    These are `*.py` and what `tvm-ffi.pyext` lists.

    Raises:
        InputError: A link leads out of the kernel's folder, or a name is taken.
    """
    suffixes = tuple(f".{extension}" for extension in {"py", *kernel.tvm_ffi.pyext})
    found = []
    for path, folders, names in os.walk(kernel.package):
        folders[:] = sorted(n for n in folders if n != "__pycache__" and not n.startswith("."))
        for name in names:
            file = Path(path) / name
            relative = file.relative_to(kernel.package).as_posix()
            # kernel-builder leaves its own `_ops.py` in the sources; ours is written anew.
            if not name.endswith(suffixes) or relative == OPS:
                continue
            if relative in (METADATA, SIGNATURE):
                raise InputError(
                    "has the name of a file that is generated for each variant",
                    where=file,
                    fix="rename it",
                )
            if not file.resolve().is_relative_to(kernel.path):
                raise InputError(
                    "is a link that leads out of the kernel's folder",
                    where=file,
                    fix="copy the file into the kernel's folder",
                )
            found.append(relative)
    return sorted(found)


def metadata(
    kernel: Kernel, cell: Cell, source: Source, *, runtimes: RuntimeWindow
) -> dict[str, Any]:
    """Return `metadata.json` without its digest, in the form kernels 0.17.2 parses."""
    general = kernel.general
    backend: dict[str, Any] = {"type": cell.backend}
    if cell.backend in ("cuda", "rocm") and cell.archs:
        backend["archs"] = sorted(set(cell.archs))
    own: dict[str, Any] = {"tvm-ffi": runtimes.to_metadata()}
    if cell.component_archs:
        own["archs"] = {name: list(archs) for name, archs in cell.component_archs.items()}
    provenance: dict[str, Any] = {"kernel-builder": {"version": f"kernel-ci-{__version__}"}}
    if source.commit is not None:
        provenance["kernel"] = {"commit": source.commit, "dirty": source.dirty}
    content: dict[str, Any] = {
        "name": kernel.name,
        "id": variant_id(kernel, cell, source),
        "version": general.version,
        "license": general.license,
        "upstream": general.upstream,
        "source": general.source,
        "python-depends": kernel.python_depends(cell.backend),
        "kernel-depends": kernel.kernel_depends(cell.backend) or None,
        "backend": backend,
        "provenance": provenance,
        OWN_KEY: own,
    }
    return {key: value for key, value in content.items() if value is not None}


def ops_module(kernel: str, identity: str, runtimes: RuntimeWindow) -> str:
    """Return the generated `_ops.py` of a variant.

    Args:
        kernel: The kernel's name, for messages.
        identity: The variant's id.
        runtimes: The tvm-ffi runtimes that the library works with; others are refused.
    """
    template = Path(__file__).with_name("_ops.py.in").read_text()
    return template.replace("@ID@", identity).replace(
        "# @GUARD@", guard.source(kernel, runtimes).rstrip()
    )


def hashes(directory: Path) -> dict[str, str]:
    """Return the base64 sha256 of each file that a digest covers (kernels-data's rules)."""
    return {
        name: base64.b64encode(hashlib.sha256((directory / name).read_bytes()).digest()).decode()
        for name in files(directory)
        if name not in (METADATA, SIGNATURE)
    }


def files(directory: Path) -> list[str]:
    """Return a variant directory's files, `/`-relative and sorted, without bytecode."""
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    )


def built(folder: Path, cell: Cell) -> Path:
    """Return a cell's variant directory in a run's folder.

    Raises:
        InputError: The variant has not been built.
    """
    directory = variant_directory(folder, cell)
    if not (directory / METADATA).is_file():
        raise InputError(
            "has not been built", where=cell.id, fix=f"kernel-ci build plan.json --cell {cell.id}"
        )
    return directory


def digest(directory: Path) -> str:
    """Return `sha256:<hex>` of all that a variant directory is, which receipts refer to.

    Every file counts, metadata.json included, but for what is added after testing: the list
    of runtimes that it was verified under, and the signature.
    """
    names = [name for name in files(directory) if name not in (METADATA, SIGNATURE)]
    content = json.loads((directory / METADATA).read_bytes())
    content.get(OWN_KEY, {}).get("tvm-ffi", {}).pop("verified", None)
    text = json.dumps(content, sort_keys=True)
    total = hashlib.sha256(f"{digest_of(directory, names)}\n{text}".encode())
    return f"sha256:{total.hexdigest()}"


def size(directory: Path) -> int:
    """Return the bytes that a variant directory's files hold."""
    return sum((directory / name).stat().st_size for name in files(directory))
