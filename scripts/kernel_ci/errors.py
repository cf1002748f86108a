"""The errors that end a command, and the exit code that each kind means.

A message always says what was wrong, where, and what to do next; `cli` prints it
without a traceback. Exit codes:

* 0   done
* 1   judged and found wanting (`Rejected`)
* 2   bad input or usage (`InputError`)
* 75  infrastructure: try again, the work itself was not judged (`InfrastructureError`);
      75 is `EX_TEMPFAIL` of sysexits.h
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class KernelCIError(Exception):
    """Base of every error that ends a command.

    Args:
        what: What is wrong, as one sentence without a final period.
        where: The place: a file, or a file and a key, or a cell.
        fix: What the reader should do next.
    """

    exit_code: ClassVar[int] = 1
    label: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | Path | None = None, fix: str | None = None):
        self.what = what
        self.where = str(where) if where is not None else None
        self.fix = fix
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  fix: {self.fix}" if self.fix else text


class Rejected(KernelCIError):
    """The work was judged and found wanting: a gate, an audit or a test said no."""

    exit_code = 1
    label = "rejected"


class BuildError(Rejected):
    """A compiler or linker refused a kernel's sources."""

    label = "build failed"


class InputError(KernelCIError):
    """A file, an option or an environment that this command cannot work with."""

    exit_code = 2
    label = "bad input"


class InfrastructureError(KernelCIError):
    """The machine, a device or a service failed; the work itself was not judged."""

    exit_code = 75
    label = "infrastructure"
