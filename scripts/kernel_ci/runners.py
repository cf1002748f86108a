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

Keys are globs over variant names, or over kernel/variant; the last one that matches counts.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import tomli
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError

#: Before the name of a runner group among a runner's labels.
GROUP = "group:"
#: Before the hardware flavour of a job on Hugging Face.
HF_JOBS = "hf-jobs:"

Text = Annotated[str, Field(min_length=1)]


def matches(pattern: str, kernel: str, variant: str) -> bool:
    """Tell whether a glob over variant names, or over kernel/variant, matches a cell.

    It is matched part by part: in a cell's id as a whole, the `*` of `*-cpu-*` would span a
    kernel's name.
    """
    kernels, slash, variants = pattern.rpartition("/")
    return fnmatchcase(variant, variants) and (not slash or fnmatchcase(kernel, kernels))


def _labels(value: Any) -> Any:
    """Bring every way to name a runner into one: labels, a group among them."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, dict):
        group, rest = value.get("group"), value.get("labels", [])
        if isinstance(rest, str):
            rest = rest.split()
        if value.keys() - {"group", "labels"} or not (isinstance(group, str) and group):
            raise ValueError("a table names a `group`, and may name `labels`")
        if not isinstance(rest, list):
            raise ValueError("`labels` is a list of labels, or a text of them")
        return (f"{GROUP}{group}", *rest)
    return value


Labels = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(_labels)]


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
    """Globs over variant names or kernel/variant, and where what they match runs."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    build: dict[str, Labels] = Field(default_factory=dict)
    test: dict[str, Labels] = Field(default_factory=dict)
    build_only: dict[str, Text] = Field(default_factory=dict)

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

    def place(self, kernel: str, variant: str) -> Placement:
        """Return where the cell of a kernel's variant runs."""
        if not self.patterns:
            return Placement()
        build, test, build_only = (
            next((table[key] for key in reversed(table) if matches(key, kernel, variant)), None)
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
            # An editor may have put a byte order mark before the text.
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}", where=path, fix="name the file of a runner map"
            ) from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"is not UTF-8 (byte {error.start})", where=path, fix="save the file as UTF-8"
            ) from None
        return cls.parse(text, where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str) -> RunnerMap:
        """Parse the TOML of a runner map; `where` names its source in messages.

        Raises:
            InputError: It is not TOML, or no runner map.
        """
        try:
            return cls.model_validate(tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            raise InputError(
                f"is not TOML: {error}", where=where, fix="correct the line that is named"
            ) from None
        except ValidationError as error:
            raise InputError(
                describe(error),
                where=where,
                fix='write e.g. [test] and below it "*-cu*" = "self-hosted linux cuda"',
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"cannot be parsed: {error}",
                where=where,
                fix="remove huge numbers and deep nesting",
            ) from None
