"""Run cibuildwheel on a staged cell, and turn what it made into variant and wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path

from kernel_ci.abi import RuntimeWindow
from kernel_ci.errors import BuildError, InfrastructureError, InputError, Rejected
from kernel_ci.kernel import Kernel
from kernel_ci.plan import Cell, host_platform
from kernel_ci.source import Source, committed_at
from kernel_ci.tvm_ffi import Release
from kernel_ci.wheel import names
from kernel_ci.wheel.images import PLATFORMS, identifier, images
from kernel_ci.wheel.stage import stage

#: 1980, before which a zip file has no times. For sources that are not committed.
_EPOCH = 315532800


@dataclass(frozen=True)
class Built:
    """What cibuildwheel made.

    Attributes:
        wheel: The repaired wheel, as it was tested in the container.
        library: The library, out of it.
        tools: Versions of what was used.
        overrides: Variables of the environment that changed cibuildwheel's settings.
    """

    wheel: Path
    library: Path
    tools: dict[str, str]
    overrides: tuple[str, ...]


def build_wheel(
    kernel: Kernel, cell: Cell, source: Source, release: Release, name: str, work: Path
) -> Built:
    """Build a cell's wheel with cibuildwheel: compiled, repaired, installed, loaded.

    Variables that begin with CIBW_ change settings as they do for cibuildwheel itself, e.g.
    `CIBW_CONTAINER_ENGINE=podman`.

    Args:
        kernel: The kernel.
        cell: The cell.
        source: The state of its sources.
        release: tvm-ffi for the cell's platform.
        name: The library's name without suffix.
        work: An empty folder.

    Raises:
        InputError: cibuildwheel is not here, or cannot build the cell on this machine.
        BuildError: The compiler or the linker refused the sources.
        Rejected: The wheel cannot be repaired, or does not work where it was installed.
        InfrastructureError: There is no container engine, the image or a toolchain could not
            be had.
    """
    wanted = identifier(cell)
    _check_machine(cell)
    committed = committed_at(kernel.path) if source.commit is not None else None
    folder, output = work / "stage", work / "wheelhouse"
    stage(kernel, cell, source, release, folder, committed=committed)
    overrides = tuple(sorted(key for key in os.environ if key.startswith("CIBW_")))
    system, arch, _ = PLATFORMS[cell.platform]
    command = [sys.executable, "-m", "cibuildwheel", "--platform", system, "--archs", arch]
    command += ["--output-dir", str(output), str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(committed or _EPOCH)}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise InfrastructureError(f"cibuildwheel cannot be run: {error}", where=cell.id) from None
    wheels = sorted(output.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise failure(done.stdout, done.returncode, cell)
    unpacked = work / "unpacked"
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(unpacked)
    library = unpacked / kernel.python_name / (name + cell.parsed().library_suffix)
    if not library.is_file():
        raise Rejected(f"the wheel {wheels[0].name} holds no {library.name}", where=cell.id)
    image = os.environ.get(f"CIBW_MANYLINUX_{arch.upper()}_IMAGE") or images().image_for(
        cell.platform
    )
    toolchain = images().toolchain_for(cell)
    tools = {
        "cibuildwheel": installed("cibuildwheel"),
        "build": os.environ.get("CIBW_BUILD") or wanted,
    }
    tools |= {"image": image} if image else {}
    tools |= {cell.backend: toolchain.version} if toolchain else {}
    return Built(wheels[0], library, tools, overrides)


def _check_machine(cell: Cell) -> None:
    """Refuse what cibuildwheel cannot do here, before anything is downloaded."""
    if importlib.util.find_spec("cibuildwheel") is None:
        raise InputError(
            "cibuildwheel is not installed",
            where="--engine cibuildwheel",
            fix="pip install 'kernel-ci[wheel]', with Python 3.11 or newer",
        )
    if cell.platform != host_platform():
        raise InputError(
            f"cibuildwheel builds wheels for {host_platform()} on this machine",
            where=cell.id,
            fix=f"build the cell on a runner of {cell.platform}, or with --engine host",
        )
    if cell.parsed().os != "linux":
        return
    engine = re.split(r"[;\s]", os.environ.get("CIBW_CONTAINER_ENGINE", "docker"))[0]
    if shutil.which(engine) is None:
        raise InputError(
            f"there is no {engine} here, in which cibuildwheel builds",
            where=cell.id,
            fix="install docker, or podman and set CIBW_CONTAINER_ENGINE=podman; or build with"
            " --engine host",
        )


def failure(output: str, status: int, cell: Cell) -> Rejected | InfrastructureError:
    """Return the error that cibuildwheel's output tells of, by the step that it ended in."""
    steps = re.findall(
        r"^(Building wheel|Repairing wheel|Testing wheel)\.\.\.", output, re.MULTILINE
    )
    last = steps[-1] if steps else ""
    tail = "\n".join(output.rstrip().splitlines()[-80:])
    if last == "Building wheel" and "CMake build failed" in output:
        return BuildError(
            f"the container's compiler refused the sources\n{tail}",
            where=cell.id,
            fix="correct the first error above",
        )
    if last == "Repairing wheel":
        return Rejected(
            f"the wheel cannot be made portable\n{tail}",
            where=cell.id,
            fix="link statically what is named above",
        )
    if last == "Testing wheel" and "wheel_test.py" in output.rpartition("Testing wheel...")[2]:
        return Rejected(
            f"the wheel does not work where it was installed\n{tail}",
            where=cell.id,
            fix="mend what the traceback above tells",
        )
    return InfrastructureError(
        f"cibuildwheel ended with exit status {status}\n{tail}", where=cell.id
    )


def finish(built: Path, variant: Path, package: str, window: RuntimeWindow, target: Path) -> Path:
    """Write the wheel that is published: cibuildwheel's, with the variant directory inside.

    What the library works with is only known once it is there. So the Python package becomes
    the variant directory, byte for byte, and the wheel requires the runtimes that it works with.

    Args:
        built: The wheel that cibuildwheel made.
        variant: The variant directory.
        package: The Python package's name.
        window: The tvm-ffi runtimes that the library works with.
        target: The folder to write to.

    Returns:
        The wheel.
    """
    scratch = built.parent / "finished"
    _wheel("unpack", "--dest", str(scratch), str(built))
    (tree,) = scratch.iterdir()
    shutil.rmtree(tree / package)
    shutil.copytree(variant, tree / package)
    (metadata,) = tree.glob("*.dist-info/METADATA")
    text = re.sub(
        rf"(?m)^Requires-Dist: {names.RUNTIME}\b.*$",
        f"Requires-Dist: {names.requirement(window)}",
        metadata.read_text(encoding="utf-8"),
    )
    metadata.write_text(text, encoding="utf-8")
    target.mkdir(parents=True, exist_ok=True)
    _wheel("pack", "--dest-dir", str(target), str(tree))
    return target / built.name


def _wheel(*arguments: str) -> None:
    environment = {"SOURCE_DATE_EPOCH": str(_EPOCH), **os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "wheel", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise InfrastructureError(f"`wheel {arguments[0]}` failed: {done.stderr.strip()}")
