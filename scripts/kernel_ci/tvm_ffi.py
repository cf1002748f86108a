"""Releases of `apache-tvm-ffi`, out of their wheels, for any platform.

A kernel is compiled with the headers of the release that its plan names, and linked
against that release's `libtvm_ffi` for the *target* platform, whatever is installed
here. The wheels come through pip, so the machine's own index configuration holds.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from kernel_ci import cache
from kernel_ci.errors import InfrastructureError, InputError

#: pip's `--platform` tags for each platform that has wheels. pip matches exactly, so all
#: the tags ever used are listed (read from the wheels of 0.1.0 to 0.1.15.post2).
WHEEL_PLATFORMS: dict[str, tuple[str, ...]] = {
    "x86_64-linux": ("manylinux_2_24_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    "aarch64-linux": ("manylinux_2_24_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    "aarch64-darwin": ("macosx_11_0_arm64", "macosx_12_0_arm64", "macosx_14_0_arm64"),
    "x86_64-windows": ("win_amd64",),
}

#: The wheels hold one libtvm_ffi for all Python versions; any of them serves here.
_PYTHON = "3.12"


@dataclass(frozen=True)
class Release:
    """An unpacked wheel.

    Attributes:
        version: The package's version, post-release included. The header macros do not
            name the release (0.1.13.post3's headers call themselves 0.1.14).
        platform: `<arch>-<os>`, as in a variant's name.
        path: The folder that holds the `tvm_ffi` package; it can be put on `sys.path`
            only by the Python that `_PYTHON` names, on that platform.
    """

    version: str
    platform: str
    path: Path

    @property
    def include(self) -> Path:
        """The headers of tvm-ffi."""
        return self.path / "tvm_ffi" / "include"

    @property
    def dlpack_include(self) -> Path:
        """The headers of DLPack that this release was made with."""
        inside = self.path / "tvm_ffi" / "3rdparty" / "dlpack" / "include"
        return inside if inside.is_dir() else self.include

    @property
    def library(self) -> Path:
        """`libtvm_ffi` for the platform (on Windows the import library)."""
        name = {"linux": "libtvm_ffi.so", "darwin": "libtvm_ffi.dylib", "windows": "tvm_ffi.lib"}
        return self.path / "tvm_ffi" / "lib" / name[self.platform.rpartition("-")[2]]


def fetch(version: str, platform: str) -> Release:
    """Return a release for a platform, downloading it on the first use.

    Args:
        version: An exact version such as `0.1.15.post2`; yanked ones are found too.
        platform: One of `WHEEL_PLATFORMS`.

    Raises:
        InputError: No such release, or no wheel of it for the platform.
        InfrastructureError: The package index could not be reached.
    """
    if platform not in WHEEL_PLATFORMS:
        raise InputError(
            f"apache-tvm-ffi has no wheels for {platform}",
            fix=f"use one of: {', '.join(WHEEL_PLATFORMS)}",
        )
    target = cache.root() / "tvm-ffi" / version / platform
    release = Release(version, platform, target)
    with cache.lock(target):
        if not target.is_dir():
            _unpack(download_wheel(version, platform), target)
    return release


def runtime(version: str) -> Path:
    """Return a folder that, in front on `PYTHONPATH`, gives this interpreter a release.

    Its dependencies are those of the release that is installed here.

    Args:
        version: An exact version; yanked ones are found too.

    Raises:
        InputError: No such release, or no wheel of it for this interpreter.
        InfrastructureError: The package index could not be reached.
    """
    interpreter = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    target = cache.root() / "runtimes" / interpreter / version
    with cache.lock(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                _unpack(download(version, Path(temporary)), target)
    return target


def download_wheel(version: str, platform: str) -> Path:
    """Return the cached wheel of a release for a platform (see `fetch`)."""
    folder = cache.root() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in folder.glob(f"apache_tvm_ffi-{version}-*.whl"):
        if any(tag in wheel.name for tag in WHEEL_PLATFORMS[platform]):
            return wheel
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = download(version, Path(temporary), platform)
        return wheel.rename(folder / wheel.name)


def download(version: str, folder: Path, platform: str | None = None) -> Path:
    """Download the wheel of a release with pip.

    Args:
        version: An exact version; yanked ones are found too.
        folder: Where to; no other wheel may be in it.
        platform: One of `WHEEL_PLATFORMS`; None for this interpreter.

    Raises:
        InputError: No such release, or no wheel of it for the platform.
        InfrastructureError: The package index could not be reached.
    """
    options, target = [], "this interpreter"
    if platform is not None:
        options = ["--implementation", "cp", "--python-version", _PYTHON]
        for tag in WHEEL_PLATFORMS[platform]:
            options += ["--platform", tag]
        target = f"{platform} (Python {_PYTHON})"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", *options]
    command += ["--dest", str(folder), f"apache-tvm-ffi=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        if "No matching distribution" in done.stderr:
            raise InputError(
                f"no wheel of apache-tvm-ffi {version} for {target}",
                fix="see `pip index versions apache-tvm-ffi` for the releases there are",
            )
        lines = reversed(done.stderr.strip().splitlines())
        raise InfrastructureError(
            f"apache-tvm-ffi {version} for {target} could not be downloaded:"
            f" {next((line for line in lines if 'ERROR' in line), 'pip said nothing')}",
            fix="check the network and pip's configuration, then run again",
        )
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    """Unpack a wheel so that `target` appears only when complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(temporary)
        Path(temporary).rename(target)
        # TemporaryDirectory removes its own path; it has moved, which is fine.
        Path(temporary).mkdir()
