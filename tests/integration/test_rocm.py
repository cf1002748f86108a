"""ROCm variants, built with the hipcc that is here: what is in them, that they load.

None is run on a GPU here; `nox -s test-rocm` does that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.audit import archs
from kernel_ci.audit.variant import audit
from kernel_ci.build import package
from kernel_ci.plan import host_platform
from kernel_ci.testing import attached
from kernel_ci.toolchains import hipcc
from tests.integration import gpu

VERSION = hipcc.attached_version()
VARIANT = f"rocm{(VERSION or '').replace('.', '')}-x86_64-linux"
ROCM = 10

pytestmark = [
    pytest.mark.needs_hipcc,
    pytest.mark.skipif(
        VERSION is None or host_platform() != "x86_64-linux",
        reason="needs hipcc: apt-get install hipcc libamdhip64-dev rocm-device-libs",
    ),
]

#: Debian's ROCm is older than those that variants are published for.
MATRIX = f"""
format = 1

[tvm-ffi]
name = "0.1"
build = "0.1.15.post2"

[archs.rocm]
"{VERSION}" = ["gfx906", "gfx90a"]

[[variant]]
backend = "rocm"
version = "{VERSION}"
platform = "x86_64-linux"
toolchain = "hipcc"
build-runner = ["here"]
test-runner = ["nowhere"]
"""


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("matrix") / "matrix.toml"
    file.write_text(MATRIX)
    return file


@pytest.fixture(scope="session")
def relu(tmp_path_factory: pytest.TempPathFactory, matrix: Path) -> Path:
    return gpu.shared_build(
        tmp_path_factory, "rocm", "relu_rocm", "rocm-archs", ["gfx1030", "gfx90a"], VARIANT,
        "--matrix", matrix,
    )  # fmt: skip


def test_code_objects_equal_the_list(relu: Path) -> None:
    assert archs.read(gpu.library(relu), "rocm") == (("gfx1030", "gfx90a"),)
    assert gpu.stated(relu)["backend"] == {"type": "rocm", "archs": ["gfx1030", "gfx90a"]}
    report = audit(relu)
    assert [f for f in report.findings if f.level == "error"] == []
    (library,) = report.all_libraries()
    assert any(name.startswith("libamdhip64.so") for name in library.facts.needed)


def test_loads_without_a_device_and_refuses_cleanly(relu: Path) -> None:
    on_host, cuda, empty, full, again = gpu.load(relu, ROCM)
    assert on_host == "ValueError: relu: `x` is on cpu:0; this build of the kernel needs it on rocm"
    assert cuda.startswith("ValueError: relu: `x` is on DLPack device type 3:0")
    assert empty == again == "fine"
    if not Path("/dev/kfd").exists():
        assert full.startswith("RuntimeError: relu: asking for the current device failed: hipError")


def test_sections_are_built_each_for_its_list_and_alike_everywhere(
    tmp_path: Path, matrix: Path
) -> None:
    contents = []
    for name in ("first", "second/deeper"):
        kernel = gpu.write_pair(tmp_path / name, "rocm", 'rocm-archs = ["gfx1030"]')
        done = gpu.build(kernel, VARIANT, "--matrix", matrix)
        assert done.status == 0, done.out + done.err
        directory = gpu.built(kernel, VARIANT)
        assert sorted(archs.read(gpu.library(directory), "rocm")) == [
            ("gfx1030",),
            ("gfx906", "gfx90a"),
        ]
        contents.append(
            {file: (directory / file).read_bytes() for file in package.files(directory)}
        )
    assert contents[0] == contents[1]
    assert not any(str(tmp_path).encode() in content for content in contents[0].values())


def test_another_version_is_not_built_with_this_one(tmp_path: Path) -> None:
    kernel = gpu.write_pair(tmp_path / "pair", "rocm")
    done = gpu.build(kernel, "rocm71-x86_64-linux")
    assert done.status == 2
    assert "there is no hipcc of ROCm 7.1 here" in done.err
    assert f"is {VERSION}" in done.err


def test_without_a_device_testing_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("there is a device")
    kernel = gpu.write_pair(tmp_path / "pair", "rocm")
    assert attached.main(["rocm", str(kernel), "-o", str(tmp_path / "run")]) == 75
    assert "rocminfo" in capsys.readouterr().err
