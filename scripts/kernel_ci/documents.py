"""The base of all documents that stages hand to each other.

A document is a frozen pydantic model with a `kind` and a `format` number. Unknown
fields, kinds and formats are refused, so that a stage never works from a document it
only half understands.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_ci.errors import InputError

D = TypeVar("D", bound="Document")


class Model(BaseModel):
    """A frozen value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Document(Model):
    """A model that is stored in a file of its own; subclasses set `kind` and `format`."""

    kind: str
    format: int

    def to_json(self) -> str:
        """Return the document as indented JSON with a final newline."""
        text = self.model_dump_json(indent=1)
        if not text.isascii():
            # What pydantic writes the same, several times slower, but with escapes.
            text = json.dumps(self.model_dump(mode="json"), indent=1)
        return text + "\n"

    def write(self, path: Path) -> None:
        """Write the document so that a reader sees all of it or the former file.

        Raises:
            InputError: The file cannot be written there.
        """
        try:
            write_atomic(path, self.to_json().encode())
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}", where=path, fix="name another file"
            ) from None

    @classmethod
    def read(cls: type[D], path: Path) -> D:
        """Read and validate a document.

        Raises:
            InputError: The file is missing, is not JSON, or is not such a document.
        """
        again = f"name a {cls.name()}, or write it again"
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise InputError(
                "no such file", where=path, fix=f"write the {cls.name()} first"
            ) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=path, fix=again) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"is not JSON ({error})", where=path, fix=again) from None
        return cls.parse(data, where=str(path))

    @classmethod
    def parse(cls: type[D], data: Any, *, where: str) -> D:
        """Validate a decoded JSON value; `where` names its source in messages."""
        if not isinstance(data, dict):
            raise InputError(
                f"is not a {cls.name()}: not a JSON object",
                where=where,
                fix=f"name a {cls.name()}",
            )
        for key in ("kind", "format"):
            expected = cls.model_fields[key].default
            if data.get(key) != expected:
                raise InputError(
                    f"is not a {cls.name()}: {key} is {data.get(key)!r}, expected {expected!r}",
                    where=where,
                    fix="use the kernel-ci release that wrote the file, or write it again",
                )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(
                describe(error), where=where, fix="write it again; it was edited or is damaged"
            ) from None

    @classmethod
    def name(cls) -> str:
        """Return the kind, as messages call it."""
        return str(cls.model_fields["kind"].default)


def describe(error: ValidationError) -> str:
    """Return a pydantic error as `key: message` lines, one for each fault."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False):
        key = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{key}: {message}" if key else message)
    return "; ".join(lines)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def canonical_digest(value: Any) -> str:
    """Return `sha256:<hex>` of a JSON value in canonical form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
