"""`kernel-ci wheel check`: wheels around the reference kernel's variant, each with one defect."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernel_ci.abi import RuntimeWindow
from kernel_ci.audit.report import AuditReport
from kernel_ci.errors import InputError
from kernel_ci.plan import host_platform
from kernel_ci.wheel import names
from kernel_ci.wheel.check import check_wheel
from tests import probes
from tests.helpers import HOST_VARIANT, REFERENCE, Run, kernel_ci

ARCH = host_platform().partition("-")[0]
PLATFORM = f"manylinux_2_28_{ARCH}"

pytestmark = pytest.mark.skipif(
    find_spec("auditwheel") is None or not host_platform().endswith("-linux"),
    reason="needs Linux and the extra `wheel`",
)


class Forge:
    """Makes wheels of the reference kernel's variant."""

    def __init__(self, variant: Path, folder: Path):
        self._variant = variant
        self._folder = folder

    def __call__(
        self,
        *,
        name: str = "relu_tvm_ffi_cpu",
        tag: str = f"py3-none-{PLATFORM}",
        requires: str | None = "",
        edit: Callable[[Path], None] = lambda tree: None,
    ) -> Path:
        """Return a wheel; `requires` is what it requires, empty for the right requirement."""
        tree = self._folder / f"{name}-1.0"
        package = tree / "relu_tvm_ffi"
        shutil.copytree(self._variant, package)
        metadata = json.loads((package / "metadata.json").read_bytes())
        if requires == "":
            window = RuntimeWindow.from_metadata(metadata)
            assert window is not None
            requires = names.requirement(window)
        info = tree / f"{name}-1.0.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {requires}"] if requires else []
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        (info / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
        edit(tree)
        pack = [sys.executable, "-m", "wheel", "pack", "--dest-dir", str(self._folder), str(tree)]
        subprocess.run(pack, check=True, capture_output=True)
        (wheel,) = self._folder.glob("*.whl")
        return wheel


@pytest.fixture
def forge_wheel(reference_run: Run, tmp_path: Path) -> Forge:
    return Forge(reference_run.folder / REFERENCE.name / "build" / HOST_VARIANT, tmp_path)


def errors(report: AuditReport) -> dict[str, str]:
    found = {it.check: it.message for it in report.findings if it.level == "error"}
    assert report.ok == (not found)
    return found


def test_a_good_wheel_passes_with_auditwheels_verdict(forge_wheel: Forge) -> None:
    wheel = forge_wheel()
    report = check_wheel(wheel)
    assert errors(report) == {}
    assert report.path == str(wheel)
    (note,) = (it.message for it in report.findings if it.check == "auditwheel")
    assert note.startswith("its symbols fit manylinux_2_")
    done = kernel_ci("wheel", "check", wheel)
    assert done.status == 0, done.out + done.err


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        (f"cp311-cp311-{PLATFORM}", "loaded by any Python"),
        (f"py3-none-linux_{ARCH}", "which no index takes"),
        (f"py3-none-manylinux_2_28_{'aarch64' if ARCH == 'x86_64' else 'x86_64'}", "is tagged for"),
        ("py3-none-macosx_15_0_arm64", "is tagged for aarch64-darwin"),
    ],
)
def test_tags_that_lie(forge_wheel: Forge, tag: str, said: str) -> None:
    assert said in errors(check_wheel(forge_wheel(tag=tag)))["tags"]


def test_a_name_of_another_backend(forge_wheel: Forge) -> None:
    found = errors(check_wheel(forge_wheel(name="relu_tvm_ffi_cu130")))
    assert "is named for cuda, but its metadata.json says cpu" in found["tags"]


def test_symbols_newer_than_the_tag(forge_wheel: Forge) -> None:
    found = errors(check_wheel(forge_wheel(tag=f"py3-none-manylinux_2_5_{ARCH}")))
    assert "its symbols only fit manylinux_2_" in found["auditwheel"]


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        (None, "requires no apache-tvm-ffi"),
        ("apache-tvm-ffi", "but works with"),
        ("apache-tvm-ffi>=0.1.9", "but works with"),
        ("numpy", "requires no apache-tvm-ffi"),
        ("apache-tvm-ffi >>1", "is no requirement"),
    ],
)
def test_requirements(forge_wheel: Forge, requires: str | None, said: str) -> None:
    report = check_wheel(forge_wheel(requires=requires))
    assert any(said in it.message for it in report.findings if it.check == "requires")
    assert not report.ok


@pytest.mark.parametrize("library", ["libtvm_ffi.so", "libcudart-0b7c.so.12", "libcuda.so.1"])
def test_bundled_libraries(forge_wheel: Forge, library: str) -> None:
    def bundle(tree: Path) -> None:
        folder = tree / "relu_tvm_ffi_cpu.libs"
        folder.mkdir()
        (own,) = (tree / "relu_tvm_ffi").glob("*.so")
        shutil.copyfile(own, folder / library)

    found = errors(check_wheel(forge_wheel(edit=bundle)))
    assert f"brings relu_tvm_ffi_cpu.libs/{library}" in found["bundled"]


def test_the_variant_inside_is_audited(forge_wheel: Forge) -> None:
    def change(tree: Path) -> None:
        file = tree / "relu_tvm_ffi" / "__init__.py"
        file.write_text(file.read_text() + "\n# changed afterwards\n")

    report = check_wheel(forge_wheel(edit=change))
    assert not report.ok
    assert any("__init__.py" in it.message + it.where for it in report.findings)


@pytest.mark.skipif(ARCH != "x86_64", reason="the library is compiled for x86_64")
@pytest.mark.parametrize("stamped", [None, ""])
def test_a_library_without_a_stamp(stamped: str | None, forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.PLAIN, stamped=stamped)
    variant = probes.assemble(tmp_path / "build", library)
    found = [it.check for it in check_wheel(Forge(variant, tmp_path)()).findings]
    assert ("stamp" in found) == (stamped is None)


# -- what is no kernel's wheel ---------------------------------------------------------


def refused(file: Path) -> str:
    with pytest.raises(InputError) as error:
        check_wheel(file)
    done = kernel_ci("wheel", "check", file)
    assert done.status == 2, done.out + done.err
    assert "Traceback" not in done.err
    assert error.value.fix
    return str(error.value)


def test_files_that_are_no_wheel(tmp_path: Path) -> None:
    good = f"relu_cpu-1.0-py3-none-{PLATFORM}.whl"
    assert "no such file" in refused(tmp_path / good)
    (tmp_path / good).write_bytes(b"")
    assert "cannot be unpacked" in refused(tmp_path / good)
    (tmp_path / good).write_bytes(b"PK\x03\x04 and then nothing of it")
    assert "cannot be unpacked" in refused(tmp_path / good)
    (tmp_path / "relu.zip").write_bytes(b"")
    assert "relu.zip" in refused(tmp_path / "relu.zip")
    (tmp_path / "relu.whl").mkdir()
    refused(tmp_path / "relu.whl")
    (tmp_path / f"relu_gpu-1.0-py3-none-{PLATFORM}.whl").mkdir()
    refused(tmp_path / f"relu_gpu-1.0-py3-none-{PLATFORM}.whl")


def test_a_cut_wheel(forge_wheel: Forge) -> None:
    wheel = forge_wheel()
    wheel.write_bytes(wheel.read_bytes()[:-400])
    assert "cannot be unpacked" in refused(wheel)


def test_a_wheel_with_other_content_than_its_record(forge_wheel: Forge) -> None:
    wheel = forge_wheel()
    whole = zipfile.ZipFile(wheel)
    contents = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(wheel, "w") as changed:
        for name, content in contents.items():
            changed.writestr(name, content + b"#" * name.endswith("_ops.py"))
    assert "cannot be unpacked" in refused(wheel)


@pytest.mark.parametrize("name", ["../outside.py", "/outside.py", "a/../../../outside.py"])
def test_names_that_lead_outside(forge_wheel: Forge, tmp_path: Path, name: str) -> None:
    wheel = forge_wheel()
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(name, "x = 1\n")
    refused(wheel)
    assert not list(tmp_path.parent.glob("outside.py"))
    assert not Path("/outside.py").exists()


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b"\xff\xfe", b"{}"])
def test_metadata_that_cannot_be_read(forge_wheel: Forge, content: bytes | None) -> None:
    def change(tree: Path) -> None:
        file = tree / "relu_tvm_ffi" / "metadata.json"
        file.unlink()
        if content is not None:
            file.write_bytes(content)

    refused(forge_wheel(edit=change))


def test_a_wheel_of_something_else(forge_wheel: Forge) -> None:
    assert "no variant follows from the name" in refused(forge_wheel(name="relu"))
