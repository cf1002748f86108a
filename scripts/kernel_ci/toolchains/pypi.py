"""Toolkits and headers out of wheels, each in a cached folder of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from kernel_ci import cache
from kernel_ci.errors import InfrastructureError


def install(
    requirements: Sequence[str], *, platform: str | None = None, dependencies: bool = True
) -> Path:
    """Return the folder into which wheels were unpacked, downloading them on the first use.

    pip does it, so that the machine's own index configuration holds.

    Args:
        requirements: As pip takes them.
        platform: pip's tag of another platform than this machine's, e.g. `manylinux2014_aarch64`.
        dependencies: Whether to install what the wheels require, too.

    Raises:
        InfrastructureError: pip could not find or download them.
    """
    options = ["--only-binary=:all:"]
    if platform is not None:
        options += ["--platform", platform, "--implementation", "py", "--python-version", "3.12"]
    if not dependencies or platform is not None:
        options.append("--no-deps")
    key = sha256("\n".join([*options, *requirements]).encode()).hexdigest()[:16]
    first = requirements[0].partition("[")[0].partition("=")[0].partition("<")[0]
    target = cache.root() / "wheels-unpacked" / f"{first}-{key}"
    with cache.lock(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                folder = Path(temporary) / "site"
                command = [sys.executable, "-m", "pip", "install", "--quiet", *options]
                command += ["--disable-pip-version-check", "--no-compile", "--no-warn-conflicts"]
                command += ["--root-user-action=ignore", "--target", str(folder), *requirements]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
                    raise InfrastructureError(
                        f"pip could not install {' '.join(requirements)}:"
                        f" {(lines or ['no reason given'])[-1]}",
                        fix="check the network and pip's configuration, then run again",
                    )
                folder.rename(target)
    return target
