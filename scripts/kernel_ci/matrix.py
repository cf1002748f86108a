"""The support matrix: which variants exist, with what they are built, where they run."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import tomli
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError
from kernel_ci.kernel import CAPABILITY, GFX, numbers
from kernel_ci.variant import VERSIONED, Variant

Text = Annotated[str, Field(min_length=1)]
Labels = Annotated[tuple[Text, ...], Field(min_length=1)]
Version = Annotated[str, Field(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")]
Evidence = Literal["tested", "build-only"]
Toolchain = Literal["zig", "nvcc", "hipcc", "icpx", "xcode"]


class _Table(Model):
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))


class TvmFfi(_Table):
    """Which tvm-ffi the variants are named after (`name`) and built with (`build`)."""

    name: str = Field(pattern=r"^[0-9]\.(0|[1-9][0-9]{0,3})$")
    build: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(\.post[0-9]+)?$")

    @model_validator(mode="after")
    def _check(self) -> TvmFfi:
        if not self.build.startswith(self.name + "."):
            raise ValueError(f"build {self.build} is not a release of {self.name}")
        return self


class Entry(_Table):
    """One variant of the matrix; see the comments in `data/matrix.toml`."""

    backend: str
    version: str | None = None
    platform: str = Field(pattern=r"^[a-z0-9_]+-[a-z]+$")
    toolchain: Toolchain
    build_runner: Labels
    test_runner: Labels
    evidence: Evidence = "tested"
    reason: Text | None = None
    quick: bool = False

    @model_validator(mode="after")
    def _check(self) -> Entry:
        try:
            self.variant("0.1")
        except InputError as error:
            raise ValueError(error.what) from None
        if (self.evidence == "build-only") != (self.reason is not None):
            raise ValueError('a `reason` belongs to evidence = "build-only", and only there')
        return self

    def variant(self, tvm_ffi: str) -> Variant:
        """Return the variant, named after a `<major>.<minor>` of tvm-ffi."""
        major, minor = tvm_ffi.split(".")
        arch, _, system = self.platform.partition("-")
        return Variant(self.backend, self.version, arch, system, (int(major), int(minor)))


class Matrix(_Table):
    """A support matrix."""

    format: Literal[1]
    tvm_ffi: TvmFfi
    archs: dict[str, dict[Version, Labels]] = Field(default_factory=dict)
    variant: Annotated[tuple[Entry, ...], Field(min_length=1)]

    @field_validator("archs", mode="after")
    @classmethod
    def _check_archs(cls, archs: dict[str, dict[str, Labels]]) -> dict[str, dict[str, Labels]]:
        for backend, table in archs.items():
            if backend not in VERSIONED:
                raise ValueError(f"{backend!r} is not one of {', '.join(sorted(VERSIONED))}")
            grammar = {"cuda": CAPABILITY, "rocm": GFX}.get(backend)
            for version, found in table.items():
                for arch in found:
                    if grammar is not None and not grammar.fullmatch(arch):
                        raise ValueError(f"{backend}.{version}: {arch!r} is malformed")
                if len(set(found)) < len(found):
                    raise ValueError(f"{backend}.{version} lists an architecture twice")
        return archs

    @model_validator(mode="after")
    def _check(self) -> Matrix:
        seen: set[Variant] = set()
        for index, entry in enumerate(self.variant):
            variant = entry.variant(self.tvm_ffi.name)
            if variant in seen:
                raise ValueError(f"variant.{index}: {variant} is listed twice")
            seen.add(variant)
            if variant.backend in VERSIONED and not self.default_archs(variant):
                raise ValueError(
                    f"variant.{index}: archs.{variant.backend} has nothing for"
                    f" {variant.backend_version} or older"
                )
        return self

    def variants(self) -> dict[Entry, Variant]:
        """Return every entry with its variant, in the order of the file."""
        return {entry: entry.variant(self.tvm_ffi.name) for entry in self.variant}

    def default_archs(self, variant: Variant) -> tuple[str, ...]:
        """Return the architectures a variant is built for when its kernel lists none."""
        if variant.backend_version is None:
            return ()
        table = self.archs.get(variant.backend, {})
        usable = [v for v in table if numbers(v) <= numbers(variant.backend_version)]
        return table[max(usable, key=numbers)] if usable else ()

    @classmethod
    def read(cls, path: Path | None = None) -> Matrix:
        """Read a matrix; without a path, the one that comes with kernel-ci.

        Raises:
            InputError: The file is missing or is not a matrix.
        """
        where = path or "matrix.toml of kernel-ci"
        fix = "compare with the matrix of kernel-ci"
        try:
            data = (path or files("kernel_ci") / "data" / "matrix.toml").read_bytes()
            return cls.model_validate(tomli.loads(data.decode()))
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=where, fix=fix) from None
        except ValidationError as error:
            raise InputError(describe(error), where=where, fix=fix) from None
        except (ValueError, RecursionError) as error:
            # Not TOML, not UTF-8, numbers beyond Python's limit of digits, deep nesting.
            raise InputError(f"is not TOML: {error}", where=where, fix=fix) from None
