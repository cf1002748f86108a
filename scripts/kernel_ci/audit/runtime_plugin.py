"""A pytest plugin for a kernel's quick tests under another tvm-ffi (see `dynamic`).

* It hides torch and JAX: the addons of frameworks have ABI windows of their own. Where the
  suite cannot be imported without them they are hidden only while tvm-ffi is imported,
  since an old one would compile an addon for torch then, which takes minutes and which some
  releases (0.1.0) cannot be told to leave out.
* Of the parameter sets of each test it keeps the first and the last: an ABI breaks with what
  a test does, not with its numbers.
* It checks that the release is the one that was asked for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

#: The folder that must provide `tvm_ffi`.
RUNTIME = "KERNEL_CI_RUNTIME"
#: Set to keep the frameworks for the tests.
FRAMEWORKS = "KERNEL_CI_FRAMEWORKS"

_FRAMEWORKS = ("torch", "jax", "jax_tvm_ffi")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Import the release, and check that it is that one, before a suite's conftest.py can."""
    for name in _FRAMEWORKS:
        sys.modules[name] = None  # type: ignore[assignment]
    import tvm_ffi

    if FRAMEWORKS in os.environ:
        for name in _FRAMEWORKS:
            del sys.modules[name]
    if not Path(tvm_ffi.__file__).is_relative_to(os.environ[RUNTIME]):
        pytest.exit(f"tvm_ffi came from {tvm_ffi.__file__}", returncode=4)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first and the last parameter set of each test."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(item) for group in groups.values() for item in (group[0], group[-1])}
    dropped = [item for item in items if id(item) not in kept]
    items[:] = [item for item in items if id(item) in kept]
    config.hook.pytest_deselected(items=dropped)
