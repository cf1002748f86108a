"""Versions of the workflows themselves: `vX.Y.Z` stays, `vX` moves to the newest of them.

Run by this repository's version.yml when a tag is pushed.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kernel_ci import __version__
from kernel_ci.errors import InfrastructureError, InputError, Rejected
from kernel_ci.github import actions

_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def check(tag: str, *, version: str, changelog: str, tags: Iterable[str], created: bool) -> str:
    """Return the moving tag for a version's tag. Pure.

    Args:
        tag: The tag that was pushed.
        version: The version of the package.
        changelog: The text of CHANGELOG.md.
        tags: All tags of the repository.
        created: Whether the tag is new.

    Raises:
        InputError: The tag is no version.
        Rejected: The version may not be released like this.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise InputError(f"{tag!r} is no version", where="tag", fix="tag it as vX.Y.Z")
    if not created:
        raise Rejected(
            f"{tag} was there before, and callers rely on it",
            where="tag",
            fix="put it back where it was, and release a new version",
        )
    if tag != f"v{version}":
        raise Rejected(
            f"{tag} is not the version of the package, {version}",
            where="pyproject.toml: project.version",
            fix=f"tag v{version}, or change the version first",
        )
    if not re.search(rf"(?m)^## {re.escape(version)}\b", changelog):
        raise Rejected(
            f"says nothing about {version}",
            where="CHANGELOG.md",
            fix=f"write what is new below a heading `## {version}`",
        )
    newest = max(
        (numbers for numbers in map(_numbers, tags) if numbers and numbers[0] == int(match[1])),
        default=None,
    )
    if newest is not None and newest > _numbers(tag):
        shown = ".".join(map(str, newest))
        raise Rejected(
            f"v{match[1]} is at {shown}, which is newer", where="tag", fix=f"tag after {shown}"
        )
    return f"v{match[1]}"


def main() -> int:
    """Check the tag that was pushed and move the major version's tag to it.

    Raises:
        KernelCIError: See `check`, or git failed.
    """
    event = actions.read_event()
    if event.tag is None:
        raise InputError("no tag was pushed", where="tag", fix="push a tag vX.Y.Z")
    payload = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_bytes())
    moving = check(
        event.tag,
        version=__version__,
        changelog=Path("CHANGELOG.md").read_text(encoding="utf-8"),
        tags=_git("tag", "--list").split(),
        created=bool(payload.get("created")),
    )
    commit = _git("rev-parse", f"refs/tags/{event.tag}^{{commit}}").strip()
    _git("push", "--quiet", "origin", f"+{commit}:refs/tags/{moving}")
    actions.annotate("notice", f"{moving} is {event.tag} now", title="kernel-ci: version")
    return 0


def _numbers(tag: str) -> tuple[int, ...]:
    match = _TAG.fullmatch(tag)
    return tuple(map(int, match.groups())) if match else ()


def _git(*arguments: str) -> str:
    environment = dict(os.environ)
    if token := environment.pop("PUSH_TOKEN", None):
        # As actions/checkout does it, but for this process alone.
        credentials = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        environment |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{server}/.extraheader",
            "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {credentials}",
        }
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise InfrastructureError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
