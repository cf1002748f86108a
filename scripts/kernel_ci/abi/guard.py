"""The check that a generated `_ops.py` makes before it loads its library."""

from __future__ import annotations

from importlib.resources import files

from kernel_ci.abi.window import RuntimeWindow


def source(kernel: str, window: RuntimeWindow) -> str:
    """Return Python text that refuses a runtime outside a window with an ImportError.

    It goes before the first import of `tvm_ffi` in `_ops.py`, and depends on nothing but
    the standard library and, to ask for its version, `tvm_ffi`.

    Args:
        kernel: The kernel's name, for messages.
        window: The runtimes that the library works with.
    """
    check = (files("kernel_ci") / "data" / "runtime_guard.py.in").read_text(encoding="utf-8")
    lines = [f"    {kernel!r},", f"    floor={window.floor!r},"]
    if window.newest is not None:
        lines.append(f"    newest={window.newest!r},")
    if window.denied:
        lines.append("    denied={")
        lines += [f"        {entry.version!r}: {entry.reason!r}," for entry in window.denied]
        lines.append("    },")
    call = "\n".join(["_require_tvm_ffi(", *lines, ")"])
    return f"{check}\n\n{call}\n"
