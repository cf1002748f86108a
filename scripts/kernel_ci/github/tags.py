"""Release tags of a kernel's repository.

A kernel's version is one number, and each release of it may have many tags:
`v<version>[.<anything>]` names all kernels that the workflow is about, and
`<kernel>-v<version>[.<anything>]` or `<kernel>/v…` names one of a collection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_ci.errors import InputError, Rejected

_TAG = re.compile(r"(?:(?P<kernel>[a-z][-a-z0-9]*[a-z0-9])[-/])?v(?P<version>\d+)(?:\.[\w.]+)?")


def release_of(tag: str | None, versions: Mapping[str, int]) -> frozenset[str]:
    """Return the kernels that a tag releases; without a tag, all.

    Args:
        tag: The tag, or None.
        versions: Each kernel's name -> its version in build.toml.

    Raises:
        InputError: The tag has another form, or names a kernel that is not here.
        Rejected: A kernel's version is not the tag's.
    """
    if tag is None:
        return frozenset(versions)
    match = _TAG.fullmatch(tag)
    if match is None:
        raise InputError(
            f"{tag!r} is not a release tag",
            where="tag",
            fix="tag as v<version>.<anything> or <kernel>-v<version>.<anything>, e.g. v1.0",
        )
    if match["kernel"] is not None and match["kernel"] not in versions:
        raise InputError(
            f"{tag!r} names no kernel of this workflow",
            where="tag",
            fix=f"use one of: {', '.join(sorted(versions))}",
        )
    chosen = [match["kernel"]] if match["kernel"] is not None else sorted(versions)
    for name in chosen:
        if versions[name] != int(match["version"]):
            raise Rejected(
                f"{tag!r} does not match: build.toml of {name} says version = {versions[name]}",
                where="tag",
                fix=f"tag it v{versions[name]}.<anything>, or change general.version",
            )
    return frozenset(chosen)
