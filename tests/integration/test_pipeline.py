"""The pipeline on the reference kernel, from sources to a kernel that users load."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_ci.build import package
from tests.helpers import HOST_VARIANT, REFERENCE, Run, commit, kernel_ci

#: Loads the kernel as a user does, without torch, and checks numbers.
LOAD = """
import sys
import numpy as np
import kernels

kernel = kernels.get_kernel(
    "kernel-ci/relu-tvm-ffi", version=1, backend="cpu", trust_remote_code=True
)
x = np.array([-1.0, 0.0, 2.5, float("nan"), float("-inf")], dtype=np.float32)
y = kernel.relu(x)
np.testing.assert_array_equal(y, np.maximum(x, 0))
assert "torch" not in sys.modules
print("loaded from", kernel.__file__)
"""


def test_table_tells_what_became_of_the_variant(reference_run: Run) -> None:
    row = next(
        line
        for line in reference_run.output.splitlines()
        if "passed │ yes" in line or re.search(r"passed.*│ yes", line)
    )
    assert HOST_VARIANT in row
    assert "│ v1 " in row
    assert re.search(r"done in [\d.]+ (s|min)", reference_run.output)


def test_folder_is_complete(reference_run: Run) -> None:
    directory = reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT
    metadata = json.loads((directory / "metadata.json").read_bytes())
    identity = metadata["id"]
    assert re.fullmatch(r"_relu_tvm_ffi_cpu_\w+", identity)
    found = {path.name for path in directory.iterdir()}
    assert {"__init__.py", "_ops.py", "metadata.json", f"{identity}.so"} <= found
    assert not list(directory.rglob("*.pyc"))
    assert metadata["digest"]["files"] == package.hashes(directory)
    assert metadata["kernel-ci"]["tvm-ffi"]["floor"] == "0.1.0"


def test_upstreams_parser_agrees_with_the_metadata(reference_run: Run) -> None:
    import kernels_data

    directory = reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT
    parsed = kernels_data.Metadata.read_from_file(directory / "metadata.json")
    actual = kernels_data.Digest.hash_variant(kernels_data.DigestAlgorithm.SHA256, directory)
    assert parsed.digest is not None
    parsed.digest.validate(actual)


def test_served_hub_gives_users_the_kernel(reference_run: Run, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "kernel_ci", "hub", "serve", reference_run.hub, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        done = subprocess.run(
            [sys.executable, "-c", LOAD],
            cwd=tmp_path,
            env={**os.environ, "HF_ENDPOINT": url[0], "HF_HUB_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.terminate()
        server.wait(timeout=20)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "cache") in done.stdout


def test_same_commit_gives_the_same_bytes(tmp_path: Path, tiny_kernel: Callable[..., Path]) -> None:
    kernel = tiny_kernel()
    commit(kernel)
    contents = []
    for name in ("first", "second/deeper"):
        clone = tmp_path / name
        subprocess.run(["git", "clone", "-q", kernel, clone], check=True)
        done = kernel_ci(
            "plan",
            ".",
            "--only",
            HOST_VARIANT,
            "-o",
            tmp_path / name / "out" / "plan.json",
            cwd=clone,
        )
        assert done.status == 0, done.err
        done = kernel_ci("build", "out/plan.json", cwd=clone)
        assert done.status == 0, done.out + done.err
        directory = clone / "out" / "negate" / "build" / HOST_VARIANT
        contents.append(
            {file: (directory / file).read_bytes() for file in package.files(directory)}
        )
        time.sleep(1.1)  # A time stamp in the result would differ now.
    assert contents[0] == contents[1]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=kernel, capture_output=True, text=True, check=True
    )
    metadata = json.loads(contents[0]["metadata.json"])
    assert metadata["provenance"]["kernel"] == {"commit": head.stdout.strip(), "dirty": False}
    for name, content in contents[0].items():
        assert str(tmp_path).encode() not in content, f"{name} holds a path of this machine"


@pytest.mark.parametrize("platform", ["aarch64-linux", "aarch64-darwin"])
def test_cross_builds(platform: str, tmp_path: Path) -> None:
    variant = f"tvm-ffi01-cpu-{platform}"
    done = kernel_ci(
        "pipeline", REFERENCE, "--only", variant, "--build-only", variant, "-o", tmp_path / "run"
    )
    assert done.status == 0, done.out + done.err
    # Not tested, and nowhere shown as if it were.
    assert "built only" in done.out
    assert f"declared by the caller: --build-only {variant}" in done.out
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_bytes())
    assert [cell["evidence"] for cell in verdict["cells"]] == ["build-only"]


def test_what_cannot_be_proved_here_is_left_out_and_told(tmp_path: Path) -> None:
    other = "aarch64-linux" if "x86_64" in HOST_VARIANT else "x86_64-linux"
    done = kernel_ci("pipeline", REFERENCE, "--only", f"*-cpu-{other}", "-o", tmp_path / "run")
    assert done.status == 2
    assert f", not {other}" in done.err
    assert "--build-only" in done.err


def test_another_compiler(tmp_path: Path, tiny_kernel: Callable[..., Path]) -> None:
    # g++ 12 needs a libstdc++ newer than manylinux_2_28 has: built, and found out.
    done = kernel_ci(
        "pipeline",
        tiny_kernel(),
        "--only",
        HOST_VARIANT,
        "--compiler",
        "g++",
        "-o",
        tmp_path / "run",
    )
    receipt = json.loads(
        (tmp_path / "run/negate/receipts" / HOST_VARIANT / "build.json").read_bytes()
    )
    assert receipt["outcome"] == "passed"
    assert any("g++" in name for name in receipt["tools"])
    assert done.status in (0, 1)


def test_a_folder_of_other_things_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    done = kernel_ci("pipeline", REFERENCE, "--only", HOST_VARIANT, "-o", tmp_path)
    assert done.status == 2
    assert "is not the folder of a run" in done.err
    assert (tmp_path / "precious").read_text() == "data"
