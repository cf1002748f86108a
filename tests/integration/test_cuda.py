"""CUDA variants, built with real toolkits: what is in them, that they load, what is refused.

None is run on a GPU here; `nox -s test-cuda` does that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_ci.audit import archs
from kernel_ci.audit.report import AuditReport
from kernel_ci.audit.variant import audit
from kernel_ci.build import package
from kernel_ci.errors import InputError
from kernel_ci.github.cache import launchers
from kernel_ci.plan import host_platform
from kernel_ci.testing import attached
from kernel_ci.toolchains import gcc, nvcc
from kernel_ci.toolchains.table import toolkits
from tests.helpers import kernel_ci
from tests.integration import gpu

X86 = "x86_64-linux"
CUDA, CUDA_HOST = 2, 3

pytestmark = [
    pytest.mark.needs_nvcc,
    pytest.mark.skipif(host_platform() != X86, reason="cross-builds from x86_64 Linux"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++: apt-get install g++"),
]


@pytest.fixture(scope="session")
def cu130(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu.shared_build(
        tmp_path_factory,
        "cu130",
        "relu_cuda",
        "cuda-capabilities",
        ["7.5", "9.0+PTX"],
        f"cu130-{X86}",
    )


def errors(report: AuditReport) -> list[str]:
    return [f"{f.check}: {f.message}" for f in report.findings if f.level == "error"]


def test_fat_binary_equals_the_list(cu130: Path) -> None:
    assert archs.read(gpu.library(cu130), "cuda") == (("sm_75", "compute_90", "sm_90"),)
    assert gpu.stated(cu130)["backend"] == {"type": "cuda", "archs": ["7.5", "9.0+PTX"]}
    cuobjdump = nvcc.find_toolkit("13.2", cell="test").nvcc.with_name("cuobjdump")
    listed = subprocess.run(
        [cuobjdump, "--list-elf", "--list-ptx", gpu.library(cu130)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [line.rsplit(".", 2)[1:] for line in listed.splitlines()]
    assert sorted(names) == [["sm_75", "cubin"], ["sm_90", "cubin"], ["sm_90", "ptx"]]


def test_audit_accepts_it(cu130: Path) -> None:
    report = audit(cu130)
    assert errors(report) == []
    (library,) = report.all_libraries()
    # The runtime is inside.
    assert not any("cuda" in name for name in library.facts.needed)


def test_receipts_name_the_tools(cu130: Path) -> None:
    receipt = json.loads((cu130.parents[1] / "receipts" / cu130.name / "build.json").read_bytes())
    assert receipt["tools"]["nvcc"].startswith("13.0.")
    assert receipt["tools"]["gcc"]


def test_loads_without_a_driver_and_refuses_cleanly(cu130: Path) -> None:
    on_host, pinned, empty, full, again = gpu.load(cu130, CUDA)
    assert on_host == "ValueError: relu: `x` is on cpu:0; this build of the kernel needs it on cuda"
    assert pinned.startswith(f"ValueError: relu: `x` is on DLPack device type {CUDA_HOST}:0")
    assert empty == again == "fine"
    if not Path("/dev/nvidiactl").exists():
        assert full.startswith(
            "RuntimeError: relu: asking for the current device failed: cudaError"
        )


@pytest.mark.parametrize("change", [["7.5"], ["7.5", "8.0", "9.0+PTX"], ["7.5", "9.0"]])
def test_audit_finds_what_metadata_gets_wrong(
    cu130: Path, tmp_path: Path, change: list[str]
) -> None:
    copy = shutil.copytree(cu130, tmp_path / cu130.name)
    content = gpu.stated(copy)
    content["backend"]["archs"] = content["kernel-ci"]["archs"]["relu_cuda"] = change
    (copy / "metadata.json").write_text(json.dumps(content))
    (found,) = errors(audit(copy))
    assert found.startswith("archs: has ")


def test_cuda_13_2_out_of_wheels(tmp_path: Path) -> None:
    kernel = gpu.write_relu(tmp_path / "relu", "relu_cuda", "cuda-capabilities", ["8.0", "12.0f"])
    done = gpu.build(kernel, f"cu132-{X86}")
    assert done.status == 0, done.out + done.err
    directory = gpu.built(kernel, f"cu132-{X86}")
    assert archs.read(gpu.library(directory), "cuda") == (("sm_80", "sm_120f"),)
    assert errors(audit(directory)) == []
    assert gpu.load(directory, CUDA)[2] == "fine"


@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-g++") is None,
    reason="needs a cross compiler: apt-get install g++-aarch64-linux-gnu",
)
def test_aarch64(tmp_path: Path) -> None:
    kernel = gpu.write_relu(
        tmp_path / "relu", "relu_cuda", "cuda-capabilities", ["9.0", "11.0+PTX"]
    )
    done = gpu.build(kernel, "cu130-aarch64-linux")
    assert done.status == 0, done.out + done.err
    directory = gpu.built(kernel, "cu130-aarch64-linux")
    report = audit(directory)
    assert errors(report) == []
    assert report.all_libraries()[0].facts.arch == "aarch64"
    assert archs.read(gpu.library(directory), "cuda") == (("sm_90", "compute_110", "sm_110"),)


def test_sections_are_built_each_for_its_list_and_alike_everywhere(tmp_path: Path) -> None:
    third = (
        '[kernel.three]\nbackend = "cuda"\ndepends = []\nsrc = ["three.cu"]\ncuda-minver = "13.2"\n'
    )
    contents = []
    for name in ("first", "second/deeper"):
        kernel = gpu.write_pair(
            tmp_path / name,
            "cuda",
            'cuda-capabilities = ["7.5"]',
            'cuda-capabilities = ["7.0", "9.0a+PTX"]\ncuda-flags = ["--use_fast_math"]',
            third,
        )
        (kernel / "three.cu").write_text('#error "not for this CUDA"\n')
        done = gpu.build(kernel, f"cu130-{X86}")
        assert done.status == 0, done.out + done.err
        assert "does not know '7.0', which is no longer supported" in done.err
        directory = gpu.built(kernel, f"cu130-{X86}")
        found = archs.read(gpu.library(directory), "cuda")
        assert sorted(found) == [("compute_90a", "sm_90a"), ("sm_75",)]
        assert gpu.stated(directory)["backend"]["archs"] == ["7.5", "9.0a+PTX"]
        assert errors(audit(directory)) == []
        contents.append(
            {file: (directory / file).read_bytes() for file in package.files(directory)}
        )
    assert contents[0] == contents[1]
    assert not any(str(tmp_path).encode() in content for content in contents[0].values())
    # What only a look at each source's part can see.
    content = gpu.stated(directory)
    content["kernel-ci"]["archs"] = {"one": ["7.5", "9.0a+PTX"], "two": ["9.0a+PTX"]}
    (directory / "metadata.json").write_text(json.dumps(content))
    assert errors(audit(directory)) == [
        "archs: a source file was compiled for sm_75,"
        " which is what no section of build.toml asks for"
    ]


def test_flags_that_choose_architectures_are_found(tmp_path: Path) -> None:
    more = 'cuda-flags = ["-gencode=arch=compute_80,code=sm_80"]'
    one = 'cuda-capabilities = ["7.5"]'
    kernel = gpu.write_pair(tmp_path / "pair", "cuda", one, f"{one}\n{more}")
    done = gpu.build(kernel, f"cu130-{X86}")
    assert done.status == 1
    assert "has code for sm_80, which metadata.json does not list" in done.out


def test_families_and_specific_architectures_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float* x) { *x += 1; }\n")
    asked = ("9.0a+PTX", "10.0a", "10.3f", "12.1+PTX")
    toolkit = nvcc.find_toolkit("13.0", cell="test")
    target = tmp_path / "k.fatbin"
    subprocess.run(
        [toolkit.nvcc, "-fatbin", *nvcc.architecture_flags(asked), tmp_path / "k.cu", "-o", target],
        check=True,
    )
    (found,) = archs._fatbins(target.read_bytes())
    assert set(found) == archs.expected(asked)
    assert len(found) == 6


@pytest.mark.parametrize("version", ["13.0", "13.2"])
def test_the_table_is_what_toolkits_say(version: str) -> None:
    toolkit, row = nvcc.find_toolkit(version, cell="test"), toolkits().find_cuda(version)
    assert row is not None
    listed = subprocess.run(
        [toolkit.nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True
    ).stdout.split()
    plain = [arch for arch in row.archs if arch[-1] not in "af"]
    assert sorted(f"sm_{arch.replace('.', '')}" for arch in plain) == sorted(
        code for code in listed if code.startswith("sm_")
    )
    config = (toolkit.includes[0] / "crt" / "host_config.h").read_text()
    assert f"gcc versions later than {row.gcc} are not supported" in config


def test_no_toolkit_of_that_version_is_told_before_anything_is_built(tmp_path: Path) -> None:
    kernel = gpu.write_pair(tmp_path / "pair", "cuda")
    done = gpu.build(kernel, f"cu126-{X86}")
    assert done.status == 2
    assert "there is no nvcc of CUDA 12.6 here" in done.err
    assert "CUDA_HOME" in done.err


def test_host_compilers() -> None:
    found = gcc.find("x86_64", 15, cell="c")
    major = int(found.version.split(".")[0])
    assert gcc.find("x86_64", major, found.cxx, cell="c") == found
    with pytest.raises(InputError, match=f"is GCC {found.version}, which is too new for nvcc"):
        gcc.find("x86_64", major - 1, found.cxx, cell="c")
    with pytest.raises(InputError, match="no such compiler: 'nowhere-g\\+\\+'"):
        gcc.find("x86_64", None, "nowhere-g++", cell="c")
    with pytest.raises(InputError, match="is no GCC for aarch64"):
        gcc.find("aarch64", None, found.cxx, cell="c")
    with pytest.raises(InputError, match="is no GCC for x86_64"):
        gcc.find("x86_64", None, "sh", cell="c")


def test_a_host_compiler_that_is_none_ends_a_run_before_anything_is_built(tmp_path: Path) -> None:
    kernel = gpu.write_pair(tmp_path / "pair", "cuda")
    done = gpu.build(kernel, f"cu130-{X86}", "--compiler", "sh")
    assert done.status == 2
    assert "sh is no GCC for x86_64" in done.err


def test_without_a_device_testing_is_an_error(
    cu130: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a device")
    kernel = gpu.write_pair(tmp_path / "pair", "cuda")
    assert attached.main(["cuda", str(kernel), "-o", str(tmp_path / "run")]) == 75
    said = capsys.readouterr().err
    assert "there is no NVIDIA driver here" in said
    assert "--build-only" in said


def test_a_second_build_takes_its_objects_from_the_cache(tmp_path: Path) -> None:
    """As on GitHub: ccache, in a folder that one job keeps for the next."""
    kernel = gpu.write_relu(tmp_path / "relu", "relu_cuda", "cuda-capabilities", ["7.5"])
    log = tmp_path / "ccache.log"
    environment = launchers("nvcc", os.environ)
    environment |= {"CCACHE_DIR": str(tmp_path / "ccache"), "CCACHE_LOGFILE": str(log)}
    assert environment["CMAKE_CUDA_COMPILER_LAUNCHER"] == "ccache"
    name = f"tvm-ffi01-cu132-{X86}"
    plan = tmp_path / "plan.json"
    assert kernel_ci("plan", kernel, "--only", name, "-o", plan).status == 0

    def built(folder: str) -> tuple[bytes, dict[str, int]]:
        done = kernel_ci("build", plan, "-o", tmp_path / folder, cwd=tmp_path, **environment)
        assert done.status == 0, done.out + done.err
        (library,) = (tmp_path / folder).glob("*/build/*/*.so")
        command = ["ccache", "--print-stats"]
        printed = subprocess.run(
            command, env=os.environ | environment, check=True, capture_output=True, text=True
        ).stdout
        stats = dict(line.split("\t") for line in printed.splitlines())
        return library.read_bytes(), {key: int(value) for key, value in stats.items()}

    first, before = built("first")
    second, after = built("second")
    assert before["direct_cache_hit"] == 0
    # Host and device code alike; only CMake's questions about flags are compiled anew.
    assert log.read_text().count("Compiler type: nvcc") == 2
    assert after["cache_miss"] - before["cache_miss"] <= 2
    assert second == first
