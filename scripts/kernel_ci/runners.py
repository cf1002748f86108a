"""The runner map: where a caller's cells run, in place of what the matrix says.

A file of the caller's repository:

    [test]
    "*-cu*-x86_64-linux" = "self-hosted linux x64 cuda"
    "*-rocm*" = { group = "amd", labels = ["gfx942"] }
    "*-xpu*" = "hf-jobs:some-flavor"
    [build]
    "*-cu*" = ["ubuntu-24.04"]
    [build-only]
    "*-metal-*" = "no Mac with macOS 26 yet"

Keys are globs over variant names and cell ids; the last one that matches counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Before the name of a runner group among a runner's labels.
GROUP = "group:"
#: Before the hardware flavour of a job on Hugging Face.
HF_JOBS = "hf-jobs:"


def _labels(value: Any) -> Any:
    """Bring every way to name a runner into one: labels, a group among them."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, dict):
        if value.keys() - {"group", "labels"} or not isinstance(value.get("group"), str):
            raise ValueError("a table names a `group`, and may name `labels`")
        rest = value.get("labels", [])
        return (f"{GROUP}{value['group']}", *(rest.split() if isinstance(rest, str) else rest))
    return value


Labels = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_labels)]


class Placement(Model):
    """Where one cell runs; None leaves it to the matrix.

    Attributes:
        build: Labels of the runner that builds it.
        test: Labels of the runner that tests it.
        build_only: Why it is not tested.
    """

    build: tuple[str, ...] | None = None
    test: tuple[str, ...] | None = None
    build_only: str | None = None


class RunnerMap(Model):
    """Globs over variant names and cell ids, and where what they match runs."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    build: dict[str, Labels] = Field(default_factory=dict)
    test: dict[str, Labels] = Field(default_factory=dict)
    build_only: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)

    @field_validator("build")
    @classmethod
    def _no_jobs(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if any(label.startswith(HF_JOBS) for labels in value.values() for label in labels):
            raise ValueError(f"{HF_JOBS}… only tests; it builds nothing")
        return value

    @field_validator("test")
    @classmethod
    def _job_alone(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for labels in value.values():
            jobs = [label for label in labels if label.startswith(HF_JOBS)]
            if jobs and (len(labels) > 1 or jobs[0] == HF_JOBS):
                raise ValueError(f"{HF_JOBS}<flavour> stands alone and names a flavour")
        return value

    @property
    def patterns(self) -> tuple[str, ...]:
        """All globs of the map."""
        return (*self.build, *self.test, *self.build_only)

    def place(self, cell: str, variant: str) -> Placement:
        """Return where a cell (by its id and its variant's name) runs."""
        build, test, build_only = (
            next((table[key] for key in reversed(table) if _matches(key, (cell, variant))), None)
            for table in (self.build, self.test, self.build_only)
        )
        return Placement(build=build, test=test, build_only=build_only)

    @classmethod
    def read(cls, path: Path) -> RunnerMap:
        """Read a runner map.

        Raises:
            InputError: The file is missing or is not a runner map.
        """
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot be read: {reason}", where=path, fix="name a runner map with --runners"
            ) from None
        return cls.parse(text, where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str) -> RunnerMap:
        """Parse the TOML of a runner map; `where` names its source in messages."""
        try:
            return cls.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"is not TOML: {error}", where=where) from None
        except ValidationError as error:
            raise InputError(
                describe(error),
                where=where,
                fix='write e.g. [test] and below it "*-cu*" = "self-hosted linux cuda"',
            ) from None


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
