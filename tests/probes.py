"""Small libraries with one property each, built by real compilers, and variants around them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kernels_data
from filelock import FileLock

from kernel_ci import tvm_ffi
from kernel_ci.abi import stamp
from kernel_ci.toolchains import zig

#: With these headers g++ 12 makes libraries that fit manylinux_2_28.
HEADERS = "0.1.9"
NEWEST = "0.1.15.post2"

CPU = "tvm-ffi01-cpu-x86_64-linux"
IDENTITY = "_probe_cpu_abc1234"

GXX = ("g++", "-s")
#: The very zig that kernel-ci builds with (there is none but on Linux). Another path to it would
#: make it compile its libc++ anew, a minute each time that the two take turns.
_ZIG = (str(zig.executable()) if sys.platform == "linux" else "zig",)
ZIG = (*_ZIG, "c++", "-target", "x86_64-linux-gnu.2.28", "-s")
ZIG_AARCH64 = (*_ZIG, "cc", "-target", "aarch64-linux-gnu.2.28", "-s")
LLD = (*_ZIG, "ld.lld")


def zig_macos(minimum: str) -> tuple[str, ...]:
    """Return zig's C compiler for a macOS, e.g. `15.0`; it needs no headers of Apple's."""
    return (*_ZIG, "cc", "-target", f"aarch64-macos.{minimum}", "-s")


#: C headers only: compiles in a moment, for every target.
PLAIN = """
#include <tvm/ffi/c_api.h>
#define EXPORT __attribute__((visibility("default")))
extern "C" EXPORT int __tvm_ffi_run(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", "no");
  return -1;
}
#ifdef CALLS
extern "C" int planted() __asm__(CALLS);
extern "C" EXPORT int __tvm_ffi_more(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  return planted();
}
#endif
"""

_HEAD = """
#include <tvm/ffi/tvm_ffi.h>
namespace ffi = tvm::ffi;
"""

#: Returns its argument, or raises.
CHECKED = (
    _HEAD
    + """
int64_t run(int64_t x) {
  if (x < 0) TVM_FFI_THROW(ValueError) << "is negative: " << x;
  return x;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
)

#: Hands out a List, which the runtime must know by its type index.
LIST = (
    _HEAD
    + """
ffi::List<ffi::Any> run(int64_t n) {
  ffi::List<ffi::Any> items;
  for (int64_t i = 0; i < n; ++i) items.push_back(i);
  return items;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
)

#: Calls a virtual function of the runtime's Module.
MODULE = (
    _HEAD
    + """
#include <tvm/ffi/extra/module.h>
// What a result of another size leaves out is read from the stack, and would be right if the
// stack happened to hold it: fill it, and look at what was found.
__attribute__((noinline)) static void fill_stack() {
  volatile unsigned char bytes[4096];
  for (volatile unsigned char& byte : bytes) byte = 0xA5;
}
__attribute__((noinline)) static bool ask(const ffi::Module& module, const ffi::String& name) {
  auto found = module->GetFunction(name);
  return found != nullptr && found.value().type_index() == ffi::TypeIndex::kTVMFFIFunction;
}
bool run(ffi::Module module, ffi::String name) {
  fill_stack();
  return ask(module, name);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
)

#: Calls a C++ function whose signature changed.
JSON = (
    _HEAD
    + """
#include <tvm/ffi/extra/json.h>
ffi::String run(ffi::Any value) { return ffi::json::Stringify(value); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
)

#: Reads the cause of an error that the runtime made.
CAUSE = (
    _HEAD
    + """
bool run(ffi::Function function) {
  try {
    function();
  } catch (const ffi::Error& error) {
    return error.cause_chain().has_value();
  }
  return false;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
)


def compile_library(
    folder: Path,
    source: str,
    *options: str,
    compiler: tuple[str, ...] = GXX,
    headers: str = HEADERS,
    stamped: str | None = "",
    platform: str = "x86_64-linux",
) -> Path:
    """Compile a library, once for all who share the folder.

    Args:
        folder: Where it is kept.
        source: The C++ source.
        options: Further options of the compiler.
        compiler: The compiler with its target.
        headers: The release of tvm-ffi whose headers and library are used.
        stamped: The release that the stamp names; empty for `headers`, None for no stamp.
        platform: What libtvm_ffi is for.
    """
    key = json.dumps([source, options, compiler, headers, stamped])
    target = folder / "libraries" / hashlib.sha256(key.encode()).hexdigest()[:16]
    with FileLock(f"{target}.lock"):
        output = target / "library"
        if output.exists():
            return output
        target.mkdir(parents=True, exist_ok=True)
        (target / "source.cc").write_text(source)
        release = tvm_ffi.fetch(headers, "x86_64-linux")
        sources = [str(target / "source.cc")]
        command = [*compiler, "-shared", "-fPIC", "-O2", "-fvisibility=hidden"]
        command += [] if "cc" in compiler else ["-std=c++17"]
        command += [f"-I{release.include}", f"-I{release.dlpack_include}"]
        if stamped is not None:
            definitions = stamp.definitions(stamped or headers)
            command += [f"-D{key}={value}" for key, value in definitions.items()]
            sources.append(str(stamp.SOURCE))
        link = [] if "-c" in options else [str(tvm_ffi.fetch(headers, platform).library)]
        partial = target / "partial"
        done = subprocess.run(
            [*command, *sources, *link, *options, "-o", str(partial)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        partial.rename(output)
    return output


def empty_library(folder: Path, name: str) -> Path:
    """Return a shared library of a name with nothing in it, to be linked against."""
    output = folder / name
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "/dev/null", f"-Wl,-soname,{name}"]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


def assemble(
    build: Path,
    library: Path,
    *,
    name: str = CPU,
    identity: str = IDENTITY,
    suffix: str = ".so",
    function: str = "run",
    built_with: str = HEADERS,
    floor: str | None = "0.1.0",
    **changes: Any,
) -> Path:
    """Write a variant directory as the Hub has it, without a check of the runtime.

    Args:
        build: The folder for the variant directory.
        library: Its library.
        name: The variant's name.
        identity: The id in the metadata, which is the library's name too.
        suffix: Of the library.
        function: What the package offers.
        built_with: The release that the metadata states.
        floor: The floor that it states; None states no runtimes at all.
        changes: Further metadata.
    """
    directory = build / name
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text(
        f"from ._ops import ops\n\n{function} = ops.{function}\n__all__ = ['{function}']\n"
    )
    (directory / "_ops.py").write_text(
        "from pathlib import Path\n\nimport tvm_ffi\n\n"
        f"ops = tvm_ffi.load_module(str(Path(__file__).parent / '{identity}{suffix}'))\n"
    )
    shutil.copyfile(library, directory / (identity + suffix))
    digest = kernels_data.Digest.hash_variant(kernels_data.DigestAlgorithm.SHA256, directory)
    metadata: dict[str, Any] = {
        "name": "probe",
        "id": identity,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": {"algorithm": "sha256", "files": digest.files},
    }
    if floor is not None:
        metadata["kernel-ci"] = {"tvm-ffi": {"built-with": built_with, "floor": floor}}
    (directory / "metadata.json").write_text(json.dumps(metadata | changes))
    return directory


def write_suite(folder: Path, body: str) -> Path:
    """Write a suite with one quick test, `body` being its statements, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "test_probe.py").write_text(
        f"import pytest\n\n\n@pytest.mark.kernels_ci\ndef test_it(kernel):\n{lines}"
    )
    return folder
