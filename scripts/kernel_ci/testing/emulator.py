"""Running an aarch64 variant on an x86_64 Linux machine, with qemu's user-mode emulation.

A caller has to ask for it: it proves that the code is right, not that it runs on the real
hardware. Needs `qemu-aarch64-static` and a Debian system, whose packages give an aarch64 Python;
neither root nor binfmt_misc. Everything else comes from wheels, through pip.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import kernel_ci
from kernel_ci import cache
from kernel_ci.errors import InfrastructureError
from kernel_ci.plan import Cell
from kernel_ci.receipts import Machine

#: What a receipt calls the device.
DEVICE = "qemu-user"

#: Debian's packages for Python, and for the wheels (libstdc++).
_PACKAGES = ("python3", "libstdc++6")

#: Of these the environment gets the versions that are installed here.
_WHEELS = ("apache-tvm-ffi", "kernels", "kernels-data", "numpy", "pytest")

#: pip's tags for what Debian 12 and later can load.
_TAGS = tuple(
    f"manylinux{name}_aarch64" for name in ("2014", "_2_17", "_2_24", "_2_27", "_2_28", "_2_31")
)

#: To be raised when what `_make` makes changes: it is cached.
_REVISION = 1


@dataclass(frozen=True)
class Emulated:
    """A Python for another architecture, ready to run a suite.

    Attributes:
        python: The program to call.
        environment: Environment variables that it needs.
        system: The emulator and its version.
        version: The Python's version.
        tools: Versions of the packages that it has.
    """

    python: Path
    environment: dict[str, str]
    system: str
    version: str
    tools: dict[str, str]

    def machine(self, cell: Cell, here: Machine) -> Machine:
        """Return what a receipt says about the machine: that there was none."""
        system = f"{self.system} on {here.system}"
        changes = {"platform": cell.platform, "python": self.version, "device": DEVICE}
        return here.model_copy(update={**changes, "system": system})


@contextmanager
def emulated(cell: Cell) -> Iterator[Emulated]:
    """Give an emulated Python for a cell's platform; the first use makes it (half a minute).

    Raises:
        InfrastructureError: The cell's platform cannot be emulated here, or something that is
            needed could not be had.
    """
    if cell.platform != "aarch64-linux" or cell.backend != "cpu" or sys.platform != "linux":
        raise InfrastructureError(
            f"{cell.backend} variants for {cell.platform} cannot be emulated here",
            where=cell.id,
            fix="only CPU variants for aarch64-linux can, on Linux; leave --emulate out",
        )
    qemu = _need("qemu-aarch64-static", "qemu-user-static")
    tools = {name: version(name) for name in _WHEELS}
    key = hashlib.sha256(repr((_REVISION, qemu, tools)).encode()).hexdigest()[:16]
    target = cache.root() / "emulated" / f"{cell.platform}-{key}"
    with cache.lock(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                made = Path(temporary) / "python"
                _make(made, target, qemu, [f"{name}=={tools[name]}" for name in _WHEELS])
                made.rename(target)
            # Importing is slow until it is compiled; a suite does not write bytecode itself.
            _run([str(target / "bin" / "python"), "-c", _FIRST])
    found = _run([str(target / "bin" / "python"), "-c", "import sys; print(sys.version)"])
    with tempfile.TemporaryDirectory(prefix="kernel-ci-emulated-") as scratch:
        # kernel-ci itself, and nothing else of the folder that it is in.
        Path(scratch, "kernel_ci").symlink_to(Path(kernel_ci.__file__).parent)
        yield Emulated(
            python=target / "bin" / "python",
            environment={"PYTHONPATH": scratch, "PYTEST_PLUGINS": "kernel_ci.testing.plugin"},
            system=_run([qemu, "--version"]).splitlines()[0],
            version=found.split()[0],
            tools=tools,
        )


_FIRST = "import kernels, numpy, pytest, tvm_ffi, _pytest.assertion.rewrite, _pytest.fixtures"

#: A virtual environment's Python that calls the real one through qemu, and so do its children.
_LAUNCHER = """#!/bin/sh
exec {qemu} -L {root} -0 "$0" {root}/usr/bin/python3 "$@"
"""


def _make(folder: Path, final: Path, qemu: str, requirements: Sequence[str]) -> None:
    """Make a virtual environment that will be moved to `final`."""
    for name in ("apt-get", "dpkg-deb"):
        _need(name, "apt")
    root = folder / "root"
    root.mkdir(parents=True)
    _unpack(root)
    (python,) = root.glob("usr/bin/python3.[0-9]*")
    site = folder / "lib" / python.name / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    command += ["--disable-pip-version-check", "--root-user-action=ignore"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--target", str(site)]
    command += ["--python-version", python.name.removeprefix("python")]
    _run([*command, *(f"--platform={tag}" for tag in _TAGS), *requirements])
    (folder / "pyvenv.cfg").write_text(f"home = {final / 'root' / 'usr' / 'bin'}\n")
    launcher = folder / "bin" / "python"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(qemu=qemu, root=final / "root"))
    launcher.chmod(0o755)


def _unpack(root: Path) -> None:
    """Unpack Debian's packages, and what they need, without installing them."""
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True)
        (state / "status").touch()
        # An apt of its own: this system's packages are none of its business.
        options = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Dir::Cache": scratch,
            "Dir::Cache::archives": f"{scratch}/archives",
            "Dir::State": scratch,
            "Dir::State::lists": f"{scratch}/lists",
            "Dir::State::status": f"{scratch}/status",
        }
        apt = ["apt-get", "-q", "-y", "--no-install-recommends"]
        for key, value in options.items():
            apt += ["-o", f"{key}={value}"]
        _run([*apt, "update"])
        _run([*apt, "--download-only", "install", *_PACKAGES])
        for package in sorted(state.glob("archives/*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(root)])


def _need(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise InfrastructureError(
            f"{program} is not installed", fix=f"on Debian: apt-get install {package}"
        )
    return found


def _run(command: Sequence[str]) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise InfrastructureError(
            f"{' '.join(command[:3])} … failed: {(lines or ['it said nothing'])[-1]}",
            fix="check the network, and apt's and pip's configuration, then run again",
        )
    return done.stdout
