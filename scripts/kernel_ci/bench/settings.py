"""What a kernel's author asks of its benchmarks: `[bench]` of `kernel-ci.toml`."""

from __future__ import annotations

from pathlib import Path

import tomli
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError

FILE = "kernel-ci.toml"


class BenchSettings(Model):
    """`[bench]`.

    Attributes:
        slowdown_limit: How many times as long as the published build this one may take.
        required: Whether the gate refuses a tested cell without a comparison, or beyond the
            limit.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )

    slowdown_limit: float = Field(default=1.1, ge=1, le=100, allow_inf_nan=False, strict=True)
    required: bool = Field(default=False, strict=True)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    bench: BenchSettings = BenchSettings()


def read(folder: Path) -> BenchSettings:
    """Return the settings of the kernel in a folder; a missing file has the defaults.

    Raises:
        InputError: The file has faults.
    """
    file = folder / FILE
    try:
        return _File.model_validate(tomli.loads(file.read_text(encoding="utf-8"))).bench
    except FileNotFoundError:
        return BenchSettings()
    except ValidationError as error:
        what = describe(error)
    except (OSError, ValueError) as error:
        what = f"cannot be read: {error}"
    raise InputError(
        what, where=file, fix="write e.g. [bench], slowdown-limit = 1.1, required = true"
    )
