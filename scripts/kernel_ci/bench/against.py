"""Finding the build to compare with: a folder's, or one that is published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernel_ci.build import package
from kernel_ci.errors import InfrastructureError, InputError
from kernel_ci.plan import Cell, PlannedKernel

#: Stands for the kernel's own repository and version.
PUBLISHED = "published"

_FIX = (
    "name a variant directory, a run's folder, ORG/NAME@VERSION, or `published` for the"
    " kernel's own release"
)


class NothingPublished(Exception):
    """There is no release of this variant, so there is nothing to compare with."""


@contextmanager
def find(
    named: str, planned: PlannedKernel, cell: Cell, hub: str | None = None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the variant directory that `--against` names, and its metadata.

    Args:
        named: A folder, `org/name@version`, or `published`.
        planned: The kernel.
        cell: The cell that is to be compared with it.
        hub: Where published builds are (see `publish.target.connect`).

    Raises:
        NothingPublished: A repository or version is meant that has no such variant.
        InputError: It names nothing, or no build that can be compared with the cell.
        InfrastructureError: The Hub cannot be reached.
    """
    if named == PUBLISHED:
        if planned.repo_id is None:
            raise InputError(
                "build.toml names no repository",
                where=f"--against {PUBLISHED}",
                fix="set general.hub.repo-id, or name another build",
            )
        with _downloaded(planned.repo_id, planned.branch, cell, hub) as directory:
            yield directory, _check(directory, planned, cell)
    elif Path(named).is_dir():
        directory = _in_folder(Path(named), cell)
        yield directory, _check(directory, planned, cell)
    else:
        repo_id, _, version = named.rpartition("@")
        if repo_id.count("/") != 1 or not version.isdecimal():
            raise InputError("is no folder, and no release", where=f"--against {named}", fix=_FIX)
        with _downloaded(repo_id, f"v{int(version)}", cell, hub) as directory:
            yield directory, _check(directory, planned, cell)


def _in_folder(folder: Path, cell: Cell) -> Path:
    for place in (
        folder,
        folder / cell.variant,
        folder / "build" / cell.variant,
        folder / cell.kernel / "build" / cell.variant,
    ):
        if (place / package.METADATA).is_file():
            return place
    raise InputError(f"holds no build of {cell.variant}", where=folder, fix=_FIX)


@contextmanager
def _downloaded(repo_id: str, branch: str, cell: Cell, hub: str | None) -> Iterator[Path]:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    from kernel_ci.publish.target import connect

    where = f"{repo_id}@{branch}"
    prefix = f"build/{cell.variant}"
    with TemporaryDirectory(prefix="kernel-ci-bench-") as scratch:
        with connect(hub) as target:
            api = HfApi(endpoint=target.endpoint, token=target.token)
            try:
                api.snapshot_download(
                    repo_id,
                    repo_type="kernel",
                    revision=branch,
                    allow_patterns=[f"{prefix}/*"],
                    local_dir=scratch,
                )
            except (RepositoryNotFoundError, RevisionNotFoundError):
                raise NothingPublished(
                    f"{where} does not exist, or this identity may not see it"
                ) from None
            except HFValidationError as error:
                raise InputError(str(error), where=where, fix=_FIX) from None
            except (HfHubHTTPError, OSError) as error:
                raise InfrastructureError(
                    f"cannot be downloaded: {type(error).__name__}", where=where, fix="try again"
                ) from None
        directory = Path(scratch) / prefix
        if not directory.is_dir():
            raise NothingPublished(f"{where} has no {cell.variant}")
        yield directory


def _check(directory: Path, planned: PlannedKernel, cell: Cell) -> dict[str, Any]:
    """Return the metadata of a build that can be compared with a cell."""
    try:
        content = json.loads((directory / package.METADATA).read_bytes())
        name, backend = content["name"], content["backend"]["type"]
        listed = content["digest"]["files"]
        content["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"has no usable {package.METADATA} ({type(error).__name__})", where=directory, fix=_FIX
        ) from None
    if backend != cell.backend:
        raise InputError(
            f"is for {backend}, and {cell.id} for {cell.backend}",
            where=directory,
            fix="compare builds of one backend",
        )
    if name != planned.name:
        raise InputError(
            f"is the kernel {name}, not {planned.name}",
            where=directory,
            fix="compare builds of one kernel",
        )
    if listed != package.hashes(directory):
        raise InputError(
            "its files are not those of its digest",
            where=directory,
            fix="build or download it again",
        )
    return dict(content)
