"""The ABI between kernels and `libtvm_ffi`: known, embedded, judged, enforced at load.

* `table` and `notes`: what each release of `apache-tvm-ffi` exports and lays out, and the
  breaks that no symbol shows.
* `judge` and `runtime_window`: which runtimes a library fits, and what it may promise.
* `check_headers`: refuse a release before anything is built with it.
* `stamp`: the release that a library was compiled with, embedded in it.
* `guard.source`: the check in a generated `_ops.py`.
"""

from kernel_ci.abi.table import Table, notes, table
from kernel_ci.abi.window import (
    Denied,
    Judged,
    RuntimeWindow,
    Window,
    check_headers,
    epoch_runtimes,
    judge,
    recommended,
    runtime_window,
)

__all__ = [
    "Denied",
    "Judged",
    "RuntimeWindow",
    "Table",
    "Window",
    "check_headers",
    "epoch_runtimes",
    "judge",
    "notes",
    "recommended",
    "runtime_window",
    "table",
]
