"""What the tests of CUDA and ROCm share: small kernels, builds, and a process that loads one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.helpers import REFERENCE, Done, kernel_ci

BINDING = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
int one();
int two();
int both() { return one() + two(); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(both, both);
"""

#: Host code that uses much of libstdc++, and a device function that only this file can see.
SOURCE = """
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include "runtime.h"
static __global__ void Kernel(float* x) { *x += NUMBER; }
int NAME() {
  auto text = std::make_shared<std::ostringstream>();
  *text << NUMBER;
  try {
    if (text->str() != std::to_string(NUMBER)) throw std::runtime_error(__FILE__);
  } catch (const std::runtime_error&) {
    Kernel<<<1, 1>>>(nullptr);
  }
  return NUMBER;
}
"""

RUNTIME = """
#if defined(ROCM_KERNEL)
#include <hip/hip_runtime.h>
#endif
"""

BUILD_TOML = """
[general]
name = "pair"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["BACKEND"]

[tvm-ffi]
src = ["binding.cc"]

[kernel.one]
backend = "BACKEND"
depends = []
src = ["one.cu"]
ONE

[kernel.two]
backend = "BACKEND"
depends = []
src = ["two.cu"]
TWO
"""

#: Loads a library with all its symbols bound, and calls its relu in the ways that need no device.
LOAD = """
import ctypes, os, sys
import numpy as np
import tvm_ffi

ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)
relu = tvm_ffi.load_module(sys.argv[1]).relu
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

def tensor(size, device_type):
    # The label alone is changed: the memory stays the host's.
    capsule = np.full(size, -1, np.float32).__dlpack__()
    ctypes.c_int32.from_address(address(capsule, b"dltensor") + 8).value = device_type
    return tvm_ffi.from_dlpack(capsule)

def call(size, device_type):
    try:
        relu(tensor(size, device_type), tensor(size, device_type))
        print("fine")
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])

device_type = int(sys.argv[2])
call(40, 1)
call(40, 3)
call(0, device_type)
call(40, device_type)
call(0, device_type)
"""


def write_pair(root: Path, backend: str, one: str = "", two: str = "", more: str = "") -> Path:
    """Write a kernel of two sources for a GPU; `one` and `two` are keys of their sections."""
    root.mkdir(parents=True)
    toml = BUILD_TOML.replace("BACKEND", backend).replace("ONE", one).replace("TWO", two)
    (root / "build.toml").write_text(toml + more)
    (root / "binding.cc").write_text(BINDING)
    (root / "runtime.h").write_text(RUNTIME)
    for number, name in enumerate(("one", "two"), 1):
        source = SOURCE.replace("NUMBER", str(number)).replace("NAME", name)
        (root / f"{name}.cu").write_text(source)
    package = root / "tvm-ffi-ext" / "pair"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from ._ops import ops\n\n__all__ = ['both']\nboth = ops.both\n"
    )
    return root


def write_relu(root: Path, section: str, key: str, archs: list[str]) -> Path:
    """Copy the reference kernel, for few architectures: each takes its time."""
    shutil.copytree(REFERENCE, root, ignore=shutil.ignore_patterns("__pycache__"))
    text = (root / "build.toml").read_text()
    assert text.count(f"[kernel.{section}]\n") == 1
    listed = f"[kernel.{section}]\n{key} = {json.dumps(archs)}\n"
    (root / "build.toml").write_text(text.replace(f"[kernel.{section}]\n", listed))
    return root


def build(kernel: Path, variant: str, *options: str | Path) -> Done:
    """Build and audit one variant without a test, in `<kernel>-run`."""
    name = f"tvm-ffi01-{variant}"
    return kernel_ci(
        "pipeline", kernel, "--only", name, "--build-only", name,
        "-o", kernel.with_name(f"{kernel.name}-run"), *options,
    )  # fmt: skip


def built(kernel: Path, variant: str) -> Path:
    """Return the variant directory of a build."""
    (found,) = kernel.with_name(f"{kernel.name}-run").glob(f"*/build/tvm-ffi01-{variant}")
    return found


def shared_build(
    factory: pytest.TempPathFactory,
    name: str,
    section: str,
    key: str,
    archs: list[str],
    variant: str,
    *options: str | Path,
) -> Path:
    """Build the reference kernel once for all workers; return its variant directory."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            write_relu(shared, section, key, archs)
            done = build(shared, variant, *options)
            assert done.status == 0, done.out + done.err
    return built(shared, variant)


def library(directory: Path) -> Path:
    """Return the library of a variant directory."""
    (found,) = directory.glob("*.so")
    return found


def stated(directory: Path) -> dict[str, Any]:
    """Return the metadata of a variant directory."""
    content: dict[str, Any] = json.loads((directory / "metadata.json").read_bytes())
    return content


def load(directory: Path, device: int) -> list[str]:
    """Load a variant of the reference kernel in a process of its own and return what its calls say.

    Args:
        directory: The variant directory.
        device: DLPack's number of the device type that it is for.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOAD, library(directory), str(device)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
