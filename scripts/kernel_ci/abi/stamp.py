"""The build stamp: the tvm-ffi release whose headers a library was compiled with.

`data/stamp.cc` is compiled into a library and leaves a small JSON text in an exported
data symbol; the readers of `kernel_ci.audit` find it without running the library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from kernel_ci.abi.table import notes
from kernel_ci.documents import Model, describe
from kernel_ci.errors import InputError

#: The exported data symbol.
SYMBOL = "kernel_ci_build_stamp"

#: The source file to add to a library's own.
SOURCE = Path(__file__).parent.parent / "data" / "stamp.cc"


def definitions(version: str, rules_out: Iterable[str] = ()) -> dict[str, str]:
    """Return the macros to compile `SOURCE` with.

    Args:
        version: The package's version of tvm-ffi, post-release included.
        rules_out: Risks that the sources cannot run into (see `ruled_out`).
    """
    return {
        "KERNEL_CI_TVM_FFI_VERSION": version,
        "KERNEL_CI_RULES_OUT": ",".join(sorted(rules_out)),
    }


def ruled_out(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the risks (ids of `data/abi_notes.toml`) that a kernel's sources rule out.

    Some uses of tvm-ffi leave no trace in a library's bytes, but cannot be written without
    certain words.

    Args:
        sources: The text of everything that is compiled and belongs to the kernel, its
            own headers included. tvm-ffi's headers do not count.
    """
    texts = list(sources)
    return tuple(
        risk.id
        for risk in notes().risk
        if risk.words and not any(word in text for word in risk.words for text in texts)
    )


class Stamp(Model):
    """A stamp as read from a library.

    Attributes:
        tvm_ffi: The release that the build said it compiled with.
        header_macro: What `TVM_FFI_VERSION_*` in the headers said.
        rules_out: Risks that the sources were found not to run into, comma-separated.
    """

    format: Literal[1] = 1
    tvm_ffi: str = Field(alias="tvm-ffi")
    header_macro: str = Field(alias="header-macro")
    rules_out: str = Field(default="", alias="rules-out")

    @property
    def risks_ruled_out(self) -> frozenset[str]:
        """Ids of the risks that need not be feared."""
        return frozenset(self.rules_out.split(",")) - {""}

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """Return the stamp in a library's stamp symbol.

        Raises:
            InputError: The text is no stamp that this release knows.
        """
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            raise InputError(describe(error), where=SYMBOL) from None
        except ValueError:
            raise InputError(
                f"{text[:80]!r} is not a build stamp",
                where=SYMBOL,
                fix="build with the stamp.cc of kernel-ci",
            ) from None
