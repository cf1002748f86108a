"""`kernel-ci init`: a new kernel that builds, passes its tests and has a workflow as it is."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel

_TEMPLATES = Path(__file__).with_name("templates")
_WORKFLOWS = Path(".github") / "workflows"
_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def write_kernel(name: str, folder: Path, *, repo_id: str | None = None) -> list[Path]:
    """Write a minimal kernel, its tests and, at the root of the repository, its workflows.

    Args:
        name: The kernel's name.
        folder: Where to; it must not exist or be empty.
        repo_id: The Hub repository to publish to; by default one that has to be changed.

    Returns:
        The files that were written.

    Raises:
        InputError: The name is no kernel's name, or the folder holds something.
    """
    # kernel-builder's rule, see `kernel_ci.kernel`; two dashes would make odd package names.
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) < 2:
        raise InputError(
            f"{name!r} is no kernel's name",
            where="NAME",
            fix="use lower-case letters and digits, with single dashes between, e.g. my-kernel",
        )
    if repo_id is not None and not _REPO_ID.fullmatch(repo_id):
        raise InputError(f"{repo_id!r} is no repository", where="--repo-id", fix="use ORG/NAME")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("is there already", where=folder, fix="name another folder with -o")
    root = _repository(folder)
    python_name = name.replace("-", "_")
    values = {
        "@NAME@": name,
        "@PYTHON@": python_name,
        "@REPO@": repo_id or f"my-organisation/{name}",
        "@PATH@": folder.resolve().relative_to(root).as_posix(),
    }
    written = []
    for template in sorted(path for path in _TEMPLATES.rglob("*") if path.is_file()):
        relative = template.relative_to(_TEMPLATES)
        # Python files end with .in, so that no tool takes them for code of kernel-ci.
        relative = relative.with_name(relative.name.removesuffix(".in"))
        if relative.parts[0] == "github":
            target = root / _WORKFLOWS / relative.name
            if target.exists():
                # The repository has its workflow; the new kernel only has to be named in it.
                continue
        else:
            target = folder / Path(*(python_name if p == "package" else p for p in relative.parts))
        text = template.read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(key, value)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    Kernel.read(folder)
    return written


def _repository(folder: Path) -> Path:
    """Return the root of the repository around a folder; without one, the folder itself."""
    folder = folder.resolve()
    return next((path for path in folder.parents if (path / ".git").exists()), folder)
