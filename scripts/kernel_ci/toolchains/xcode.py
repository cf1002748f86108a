"""Apple's compilers: Objective-C++ for the host, Metal for the GPU. They only exist on macOS."""

from __future__ import annotations

import subprocess
import sys

from kernel_ci.audit.policy import systems
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell
from kernel_ci.toolchains import Compiler

#: The version that kernel-builder compiles for; it needs macOS 26.
STANDARD = "metal4.0"

#: What a Metal library is linked with.
FRAMEWORKS = ("-framework Foundation", "-framework Metal")


def find(cell: Cell) -> Compiler:
    """Return Xcode's compilers for a Metal cell; see `toolchains.find`."""
    if cell.backend != "metal" or cell.platform != "aarch64-darwin":
        raise InputError(
            f"Xcode builds no {cell.backend} variant for {cell.platform} here",
            where=cell.id,
            fix="it builds Metal variants for aarch64-darwin",
        )
    if sys.platform != "darwin":
        raise InputError(
            "Metal variants can only be built on macOS: Apple's compilers exist nowhere else",
            where=cell.id,
            fix=f"build it on a runner labelled {', '.join(cell.build_runner)},"
            f" or leave it out with --skip '{cell.variant}'",
        )
    minimum = systems().macos_minimum["metal"]
    clang = _xcrun("--find", "clang++", cell=cell.id)
    version = _xcrun("metal", "--version", cell=cell.id).splitlines()[0]
    return Compiler(
        name="xcode",
        version=_xcrun("clang++", "--version", cell=cell.id).splitlines()[0],
        cmake={
            "CMAKE_C_COMPILER": clang.removesuffix("++"),
            "CMAKE_CXX_COMPILER": clang,
            "CMAKE_OBJC_COMPILER": clang.removesuffix("++"),
            "CMAKE_OBJCXX_COMPILER": clang,
            "CMAKE_OSX_ARCHITECTURES": "arm64",
            "CMAKE_OSX_DEPLOYMENT_TARGET": minimum,
            "KERNEL_CI_METAL": metal(minimum),
        },
        environment={},
        others={"metal": version},
        link=FRAMEWORKS,
    )


def metal(minimum: str) -> str:
    """Return the command that compiles Metal for a macOS, as CMake takes a list."""
    return f"xcrun;metal;-std={STANDARD};-mmacosx-version-min={minimum};-O2"


def _xcrun(*arguments: str, cell: str) -> str:
    try:
        done = subprocess.run(
            ["xcrun", "--sdk", "macosx", *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise InputError(
            "Xcode is not installed", where=cell, fix="install Xcode 26, and open it once"
        ) from None
    if done.returncode or not done.stdout.strip():
        raise InputError(
            f"`xcrun {' '.join(arguments)}` does not work: {done.stderr.strip()}",
            where=cell,
            fix="point xcode-select to Xcode 26, and install Metal's compiler with"
            " `xcodebuild -downloadComponent MetalToolchain`",
        )
    return done.stdout.strip()
