"""What a variant's wheel is called, what it requires, and how that is read back."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from packaging.utils import canonicalize_name

from kernel_ci.abi import RuntimeWindow
from kernel_ci.audit.policy import manylinux, systems
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell
from kernel_ci.source import Source
from kernel_ci.variant import Variant

RUNTIME = "apache-tvm-ffi"


def distribution(kernel: Kernel, cell: Cell) -> str:
    """Return the wheel's name: the kernel's with the backend as a suffix.

    `relu-tvm-ffi-cu130`, as CuPy, JAX's plugins and NVIDIA's libraries name theirs. PyPI takes
    no local versions (`1.0+cu130`), which PyTorch serves from indexes of its own.
    """
    return f"{kernel.name}-{cell.parsed().compute}"


def version(kernel: Kernel, source: Source, committed: int | None) -> str:
    """Return the wheel's version: the kernel's major version, then the time of the commit.

    A kernel has a major version alone, and an index takes each version once. Sources that are
    not committed give a development release, which installers do not take by themselves.

    Args:
        kernel: The kernel.
        source: The state of its sources.
        committed: When HEAD was committed (seconds since 1970, UTC), None outside git.
    """
    if committed is None or source.commit is None or source.dirty:
        return f"{kernel.general.version}.dev0"
    time = datetime.fromtimestamp(committed, timezone.utc)
    return f"{kernel.general.version}.{time:%Y%m%d%H%M%S}"


def tag(cell: Cell) -> str:
    """Return the wheel's platform tag, which the audit's limits for libraries are those of."""
    parsed = cell.parsed()
    if parsed.os == "linux":
        return f"{manylinux().name}_{parsed.arch}"
    minimum = systems().macos_minimum[cell.backend].replace(".", "_")
    return f"macosx_{minimum}_arm64"


def requirement(window: RuntimeWindow) -> str:
    """Return the requirement that lets an installer choose what `_ops.py` admits."""
    major, minor = window.floor.split(".")[:2]
    parts = [f">={window.floor}", f"<{major}.{int(minor) + 1}"]
    parts += [f"<={window.newest}"] if window.newest else []
    parts += [f"!={entry.version}" for entry in window.denied]
    return f"{RUNTIME} {','.join(parts)}"


def variant_of(name: str, platform_tag: str, tvm_ffi: str) -> Variant | None:
    """Return the variant that a wheel is for, None where its name does not say.

    Args:
        name: The wheel's name.
        platform_tag: Its platform tag, or several with dots between.
        tvm_ffi: The release of tvm-ffi that it was built with.
    """
    from kernel_ci.errors import InputError

    compute = canonicalize_name(name).rpartition("-")[2]
    found = re.search(r"(linux|macosx)\w*_(x86_64|aarch64|arm64)\b", platform_tag)
    release = re.match(r"([0-9]+)\.([0-9]+)\.", tvm_ffi)
    if found is None or release is None:
        return None
    system = {"linux": "linux", "macosx": "darwin"}[found[1]]
    arch = {"arm64": "aarch64"}.get(found[2], found[2])
    try:
        return Variant.parse(f"tvm-ffi{release[1]}{release[2]}-{compute}-{arch}-{system}")
    except InputError:
        return None
