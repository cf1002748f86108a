"""What GitHub Actions gives a step, and what a step gives back.

Workflow commands and their escaping are those of actions/toolkit (`@actions/core`).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernel_ci.errors import InputError, KernelCIError
from kernel_ci.github.known import known

Level = Literal["error", "warning", "notice"]

#: GitHub shows ten annotations of a kind a step; further ones are dropped without a word.
MOST_ANNOTATIONS = 10


@dataclass(frozen=True)
class Event:
    """What started the workflow.

    Attributes:
        name: The event, e.g. `pull_request`; empty outside GitHub.
        repository: `<owner>/<name>` of the repository that the workflow runs in.
        fork: Whether the code comes from a fork: nobody here has approved it.
        head: The commit that people know the code by (a pull request's head), or None.
        base: The commit to compare with for what has changed, or None.
        tag: The tag that was pushed or released, or None.
    """

    name: str = ""
    repository: str = ""
    fork: bool = False
    head: str | None = None
    base: str | None = None
    tag: str | None = None


def read_event(environ: Mapping[str, str] = os.environ) -> Event:
    """Read the event from the runner's environment.

    Raises:
        InputError: The event's file cannot be read, or the event gives the code of a fork
            the rights of this repository.
    """
    name, repository = environ.get("GITHUB_EVENT_NAME", ""), environ.get("GITHUB_REPOSITORY", "")
    payload = _payload(environ.get("GITHUB_EVENT_PATH"))
    if name in ("pull_request_target", "workflow_run"):
        raise InputError(
            f"kernels are not built on {name}: it has this repository's secrets and cache,"
            " which code of a fork must never meet",
            where="on",
            fix="use `on: pull_request`",
        )
    pull = payload.get("pull_request") or {}
    group = payload.get("merge_group") or {}
    head, base = _table(pull, "head"), _table(pull, "base")
    # The repository of the head is null when the fork has been deleted meanwhile.
    own = _table(base, "repo").get("full_name", repository)
    before = payload.get("before") if name == "push" else None
    is_tag = environ.get("GITHUB_REF_TYPE") == "tag" or environ.get("GITHUB_REF", "").startswith(
        "refs/tags/"
    )
    return Event(
        name=name,
        repository=repository,
        fork=bool(pull) and _table(head, "repo").get("full_name") != own,
        head=head.get("sha") or group.get("head_sha") or environ.get("GITHUB_SHA"),
        base=base.get("sha") or group.get("base_sha") or (before if _is_commit(before) else None),
        tag=environ.get("GITHUB_REF", "").removeprefix("refs/tags/") if is_tag else None,
    )


def _payload(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"the event cannot be read: {error}",
            where=path,
            fix="run it in a job of GitHub Actions",
        ) from None
    return found if isinstance(found, dict) else {}


def _table(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _is_commit(value: Any) -> bool:
    # A push that makes a branch has forty zeros before it.
    return isinstance(value, str) and bool(value.strip("0"))


def former_names() -> Mapping[str, str]:
    """Return inputs that are deprecated, with the input that each has become."""
    return dict(known()["former-inputs"])


def words(name: str) -> tuple[str, ...]:
    """Return an input's values, separated by white space; the input is `IN_<name>`."""
    return tuple(text(name).split())


def text(name: str, default: str = "") -> str:
    """Return an input as it is, or the default where it is not set.

    An input's former name, which has no default and so was set by the caller, comes first.
    """
    shown = _shown(name)
    for former, new in former_names().items():
        value = os.environ.get(f"IN_{former.upper().replace('-', '_')}", "").strip()
        if new == shown and value:
            annotate("warning", f"`{former}` is deprecated: use `{new}`", title="kernel-ci: input")
            return value
    return os.environ.get(f"IN_{name}", "").strip() or default


def flag(name: str) -> bool:
    """Return a boolean input.

    Raises:
        InputError: It is neither `true` nor `false`.
    """
    value = text(name, "false")
    if value not in ("true", "false"):
        raise InputError(f"is {value!r}", where=f"input {_shown(name)}", fix="use true or false")
    return value == "true"


def choice(name: str, allowed: Sequence[str]) -> str:
    """Return an input that is one of several words; the first is the default.

    Raises:
        InputError: It is none of them.
    """
    value = text(name, allowed[0])
    if value not in allowed:
        raise InputError(
            f"is {value!r}", where=f"input {_shown(name)}", fix=f"use one of: {', '.join(allowed)}"
        )
    return value


def required(name: str) -> str:
    """Return an input that must be set.

    Raises:
        InputError: It is not.
    """
    if not (value := text(name)):
        raise InputError("is missing", where=f"input {_shown(name)}", fix="set it")
    return value


def _shown(name: str) -> str:
    return name.lower().replace("_", "-")


def folder() -> Path:
    """Return the job's folder for kernel-ci: outside the checkout, which must stay clean."""
    return Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()) / "kernel-ci"


def outputs(**values: str) -> None:
    """Set outputs of the step; underscores in names stand for hyphens."""
    path = os.environ.get("GITHUB_OUTPUT")
    lines = []
    for name, value in values.items():
        # A delimiter that no value can contain, for values come from build.toml files.
        mark = f"end-{secrets.token_hex(16)}"
        lines.append(f"{name.replace('_', '-')}<<{mark}\n{value}\n{mark}\n")
    if path is None:
        print("".join(f"{name}={value}\n" for name, value in values.items()), end="")
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("".join(lines))


#: Bytes; GitHub drops the whole summary of a step that has more than 1 MiB.
SUMMARY_LIMIT = 1024 * 1024

_CUT = b"\nThe rest is left out, since GitHub shows no more; the log and the verdict have it.\n"


def summary(markdown: str) -> None:
    """Add to the step's summary; without one, print it.

    What GitHub would not show for its size is left out, and the summary says so.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path is None:
        print(markdown)
        return
    file = Path(path)
    room = SUMMARY_LIMIT - (file.stat().st_size if file.exists() else 0)
    text = markdown.rstrip("\n").encode() + b"\n"
    if len(text) > room:
        if room < len(_CUT):
            return
        text = text[: room - len(_CUT)]
        text = text[: text.rfind(b"\n") + 1] + _CUT
    with file.open("ab") as out:
        out.write(text)


def command(
    level: Level,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    title: str | None = None,
) -> str:
    """Return the workflow command of an annotation."""
    properties = {"file": file, "line": line, "title": title}
    set_ones = ",".join(
        f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None
    )
    return f"::{level}{' ' + set_ones if set_ones else ''}::{_data(message)}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def annotate(
    level: Level,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    title: str | None = None,
) -> None:
    """Show a message at a place of the code; outside GitHub, on standard error."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(command(level, message, file=file, line=line, title=title), flush=True)
        return
    place = f"{file}:{line or 1}: " if file else ""
    print(f"{level}: {place}{message}", file=sys.stderr)


def annotate_error(error: KernelCIError) -> None:
    """Show an error that ends a command, at its file where it names one."""
    where = error.where or ""
    name = next((part for part in (where, where.partition(":")[0]) if Path(part).is_file()), None)
    inside = None
    if name:
        path = Path(name).resolve()
        here = Path.cwd().resolve()
        inside = path.relative_to(here).as_posix() if path.is_relative_to(here) else None
    annotate("error", str(error), file=inside, title=f"kernel-ci: {error.label}")
