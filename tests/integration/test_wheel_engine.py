"""The cibuildwheel engine, end to end: real cibuildwheel, podman, and a container.

On Debian, as root: `apt-get install podman runc debootstrap`. The image is made on the first run
(a minute or two) and stays with podman.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from kernel_ci.build import package
from tests.helpers import HOST_VARIANT, REFERENCE, ROOT, Done, Run, committed, kernel_ci
from tests.integration import container_image

_WHY_NOT = container_image.why_not()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_WHY_NOT is not None, reason=f"a container: {_WHY_NOT}"),
]


@dataclass(frozen=True)
class Engine:
    """What the engine made of the reference kernel."""

    folder: Path
    wheel: Path
    environment: dict[str, str]

    @property
    def variant(self) -> Path:
        return self.folder / REFERENCE.name / "build" / HOST_VARIANT


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """One build, shared by all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "engine-run"
    run = shared / "run"
    with FileLock(f"{shared}.lock"):
        shared.mkdir(exist_ok=True)
        environment = container_image.environment(shared)
        if not run.exists():
            source = committed(shared / "source")
            ok(kernel_ci("plan", source, "--only", HOST_VARIANT, "-o", run / "plan.json"))
            ok(build(run / "plan.json", environment))
    (wheel,) = (run / REFERENCE.name / "wheels" / HOST_VARIANT).iterdir()
    return Engine(run, wheel, environment)


def build(plan: Path, environment: dict[str, str]) -> Done:
    return kernel_ci("build", plan, "--engine", "cibuildwheel", cwd=ROOT, **environment)


def ok(done: Done) -> Done:
    assert done.status == 0, done.out + done.err
    return done


def test_the_variant_is_proved_and_published(engine: Engine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(engine.folder, run)
    plan = run / "plan.json"
    ok(kernel_ci("audit", run, "--plan", plan))
    ok(kernel_ci("test", plan, run))
    ok(kernel_ci("gate", plan, run))
    ok(kernel_ci("publish", run, "--hub", tmp_path / "hub"))
    ok(kernel_ci("hub", "check", tmp_path / "hub"))


def test_the_receipt_tells_the_engine(engine: Engine) -> None:
    file = engine.folder / REFERENCE.name / "receipts" / HOST_VARIANT / "build.json"
    receipt = json.loads(file.read_bytes())
    assert receipt["outcome"] == "passed"
    assert receipt["tools"]["build"] == engine.environment["CIBW_BUILD"]
    assert receipt["tools"]["image"] == engine.environment["CIBW_MANYLINUX_X86_64_IMAGE"]
    assert receipt["reproduce"].endswith("--engine cibuildwheel")
    assert any("CIBW_BUILD" in finding for finding in receipt["findings"])


USE = """
import sys
import numpy as np
import relu_tvm_ffi

assert relu_tvm_ffi.__file__.startswith(sys.prefix), relu_tvm_ffi.__file__
x = np.array([-1.0, 0.0, 2.5, float("nan"), float("-inf")], dtype=np.float32)
np.testing.assert_array_equal(relu_tvm_ffi.relu(x), np.maximum(x, 0))
"""


def test_the_wheel_installs_and_works(engine: Engine, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", str(engine.wheel), "numpy"]
    subprocess.run([python, *install], check=True)
    done = subprocess.run(
        [python, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_the_variant_and_passes_its_check(engine: Engine) -> None:
    done = ok(kernel_ci("wheel", "check", engine.wheel, "--json"))
    report = json.loads(done.out)
    assert [it["level"] for it in report["findings"] if it["check"] == "auditwheel"] == ["note"]
    with zipfile.ZipFile(engine.wheel) as archive:
        inside = {
            name.partition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if ".dist-info/" not in name
        }
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        required = archive.read(metadata).decode()
    assert inside == {
        name: (engine.variant / name).read_bytes() for name in package.files(engine.variant)
    }
    assert engine.wheel.name.startswith("relu_tvm_ffi_cpu-1.")
    assert engine.wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    floor = json.loads(inside["metadata.json"])["kernel-ci"]["tvm-ffi"]["floor"]
    assert f"\nRequires-Dist: apache-tvm-ffi >={floor}," in required


def test_engines_differ_as_documented(engine: Engine, reference_run: Run) -> None:
    host = reference_run.folder / REFERENCE.name / "build" / HOST_VARIANT
    described = []
    for directory in (host, engine.variant):
        metadata = json.loads((directory / "metadata.json").read_bytes())
        identity = metadata.pop("id")
        # The library's bytes, and the commit of the tests' copy, with a time of its own.
        del metadata["digest"], metadata["provenance"]
        texts = {
            name.replace(identity, "ID"): (directory / name).read_text().replace(identity, "ID")
            for name in package.files(directory)
            if name != "metadata.json" and not name.endswith(".so")
        }
        libraries = [name for name in package.files(directory) if name.endswith(".so")]
        assert libraries == [f"{identity}.so"]
        described.append((metadata, texts))
    assert described[0] == described[1]


def test_a_compiler_error_is_the_kernels_fault(engine: Engine, tmp_path: Path) -> None:
    source = tmp_path / REFERENCE.name
    shutil.copytree(REFERENCE, source)
    compiled = next(source.rglob("*cpu*.cc"))
    compiled.write_text(compiled.read_text() + "\n#error planted\n")
    plan = tmp_path / "run" / "plan.json"
    ok(kernel_ci("plan", source, "--only", HOST_VARIANT, "-o", plan))
    done = build(plan, engine.environment)
    assert done.status == 1, done.out + done.err
    receipt = tmp_path / "run" / REFERENCE.name / "receipts" / HOST_VARIANT / "build.json"
    assert "planted" in receipt.read_text()
    assert "Traceback" not in done.err
