"""Read a variant directory, without importing anything from it."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

from kernel_ci.audit.facts import DirectoryFacts, PythonFacts

METADATA = "metadata.json"


def read_directory(directory: Path) -> DirectoryFacts:
    """Return what is in a variant directory, built here or downloaded from the Hub."""
    files: list[str] = []
    links: dict[str, str] = {}
    for folder, names, leaves in os.walk(directory):
        names.sort()
        for leaf in sorted([*leaves, *(n for n in names if (Path(folder) / n).is_symlink())]):
            path = Path(folder) / leaf
            shown = path.relative_to(directory).as_posix()
            if path.is_symlink() and not _is_downloaded(path):
                links[shown] = str(path.readlink())
            files.append(shown)
    metadata, error = _metadata(directory)
    return DirectoryFacts(
        name=directory.resolve().name,
        files=tuple(sorted(files)),
        links=links,
        metadata=metadata,
        metadata_error=error,
        digest_faults=_digest_faults(directory, metadata),
        python=read_python(directory, files),
    )


def _is_downloaded(path: Path) -> bool:
    """Tell whether a link is one of the Hub client's cache, which leads into its `blobs`.

    `huggingface_hub` lays out `<cache>/<repository>/{blobs,snapshots/<commit>}`.
    """
    snapshots = next((p for p in path.absolute().parents if p.name == "snapshots"), None)
    return snapshots is not None and path.resolve().parent == (snapshots.parent / "blobs").resolve()


def _metadata(directory: Path) -> tuple[dict[str, object] | None, str | None]:
    """Return the decoded metadata, and why the client cannot read it."""
    import kernels_data

    path = directory / METADATA
    if not path.is_file():
        return None, f"there is no {METADATA}"
    try:
        decoded = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return None, f"is not JSON ({error})"
    if not isinstance(decoded, dict):
        return None, "is not a JSON object"
    try:
        kernels_data.Metadata.read_from_file(path)
    except Exception as error:  # whatever the client's parser raises, it is the answer
        return decoded, str(error)
    return decoded, None


def _digest_faults(directory: Path, metadata: dict[str, object] | None) -> tuple[str, ...] | None:
    """Return where files and digest differ; None without a digest that can be read."""
    import kernels_data

    stated = (metadata or {}).get("digest")
    if not isinstance(stated, dict) or not isinstance(stated.get("files"), dict):
        return None
    algorithm = {
        "sha256": kernels_data.DigestAlgorithm.SHA256,
        "sha512": kernels_data.DigestAlgorithm.SHA512,
    }.get(str(stated.get("algorithm")))
    if algorithm is None:
        return None
    try:
        actual = kernels_data.Digest.hash_variant(algorithm, directory).files
    except (OSError, RuntimeError) as error:
        return (f"the files cannot be hashed: {error}",)
    expected = stated["files"]
    return tuple(
        [
            f"{name} is not what was hashed"
            for name in sorted(actual)
            if name in expected and actual[name] != expected[name]
        ]
        + [f"{name} was added" for name in sorted(set(actual) - set(expected))]
        + [f"{name} is missing" for name in sorted(set(expected) - set(actual))]
    )


def read_python(directory: Path, files: list[str]) -> PythonFacts:
    """Return what the Python files of a variant directory say."""
    public: tuple[str, ...] | None = None
    ops: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(files):
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse((directory / name).read_bytes(), filename=name)
        except (SyntaxError, ValueError, OSError) as error:
            unreadable[name] = str(error)
            continue
        if name == "__init__.py":
            public = _all(tree)
        for used in sorted(_ops(tree)):
            ops.setdefault(used, name)
    return PythonFacts(public=public, ops=ops, unreadable=unreadable)


def _all(tree: ast.Module) -> tuple[str, ...] | None:
    """Return the literal `__all__` of a module."""
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        value = node.value  # type: ignore[attr-defined]
        if isinstance(value, (ast.List, ast.Tuple)):
            return tuple(
                item.value
                for item in value.elts
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            )
    return None


def _ops(tree: ast.Module) -> set[str]:
    """Return each `<name>` of `ops.<name>` and `_ops.ops.<name>` that is read."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Name) and node.value.id == "ops")
            or (isinstance(node.value, ast.Attribute) and node.value.attr == "ops")
        )
    }
