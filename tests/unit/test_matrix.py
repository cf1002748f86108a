"""The support matrix: the one that ships, and what is refused in another."""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from pathlib import Path

import pytest
from kernels.variants import parse_variant

from kernel_ci.abi import check_headers
from kernel_ci.cli import main
from kernel_ci.errors import InputError
from kernel_ci.matrix import Matrix
from kernel_ci.variant import VERSIONED, Variant
from tests.unit.trees import BUILDABLE, SMALL, SMALL_FILES, replaced, write_tree

SHIPPED = (files("kernel_ci") / "data" / "matrix.toml").read_text()
#: How many variants it has.
COUNT = SHIPPED.count("\n[[variant]]\n")


# --- The one that ships --------------------------------------------------------------------


def test_names_are_what_the_client_reads() -> None:
    variants = Matrix.read().variants()
    assert len(variants) == COUNT
    for variant in variants.values():
        assert Variant.parse(str(variant)) == variant
        assert parse_variant(str(variant)).variant_str == str(variant)


def test_holds_all_that_upstream_builds() -> None:
    # What kernel-builder's collection builds for tvm-ffi.
    upstream = {
        "x86_64-linux": {"cpu", "cu126", "cu130", "cu132", "xpu20253"},
        "aarch64-linux": {"cpu", "cu126", "cu130", "cu132"},
        "aarch64-darwin": {"cpu"},
    }
    ours: dict[str, set[str]] = defaultdict(set)
    for variant in Matrix.read().variants().values():
        assert str(variant).startswith("tvm-ffi01-")
        ours[variant.platform].add(variant.compute)
    more = {
        platform: computes - upstream.get(platform, set()) for platform, computes in ours.items()
    }
    assert all(computes <= ours[platform] for platform, computes in upstream.items())
    # Lanes of upstream's for Torch, which the client resolves for tvm-ffi too.
    assert more == {
        "x86_64-linux": {"rocm71", "rocm72"},
        "aarch64-linux": set(),
        "aarch64-darwin": {"metal"},
    }


@pytest.mark.parametrize(
    ("backend", "version", "expected"),
    [
        ("cpu", None, ""),
        ("metal", None, ""),
        ("cuda", "12.5", ""),
        ("cuda", "12.6", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX"),
        ("cuda", "12.7", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX"),
        ("cuda", "12.8", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
        ("cuda", "12.9", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
        ("cuda", "13.0", "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX"),
        ("cuda", "13.2", "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX"),
        (
            "rocm",
            "7.1",
            "gfx906 gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1200 gfx1201",
        ),
        ("xpu", "2025.3", "pvc xe-lpg ats-m150 spir64"),
    ],
)
def test_default_architectures(backend: str, version: str | None, expected: str) -> None:
    variant = Variant(backend, version, "aarch64", "darwin")
    assert Matrix.read().default_archs(variant) == tuple(expected.split())


def test_every_gpu_variant_has_default_architectures() -> None:
    matrix = Matrix.read()
    for variant in matrix.variants().values():
        assert bool(matrix.default_archs(variant)) == (variant.backend in VERSIONED)


def test_nothing_is_excused_from_testing() -> None:
    assert all(entry.evidence == "tested" for entry in Matrix.read().variant)


def test_built_with_a_release_that_is_fit_to_build_with() -> None:
    check_headers(Matrix.read().tvm_ffi.build)


def test_order_is_that_of_the_file() -> None:
    entries = Matrix.read().variant
    assert [entry.backend for entry in entries[:4]] == ["cpu", "cpu", "cpu", "cuda"]
    assert list(Matrix.read().variants()) == list(entries)


# --- Others --------------------------------------------------------------------------------

ONE = """\
format = 1

[tvm-ffi]
name = "0.1"
build = "0.1.15.post2"

[archs.cuda]
"12.6" = ["9.0+PTX"]

[[variant]]
backend = "cuda"
version = "12.6"
platform = "x86_64-linux"
toolchain = "nvcc"
build-runner = ["ubuntu-24.04"]
test-runner = ["self-hosted", "gpu"]
"""

BUILD_ONLY = """\
evidence = "build-only"
reason = "no such hardware"
"""


def test_a_matrix_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(ONE + BUILD_ONLY)
    matrix = Matrix.read(file)
    ((entry, variant),) = matrix.variants().items()
    assert str(variant) == "tvm-ffi01-cu126-x86_64-linux"
    assert (entry.evidence, entry.reason) == ("build-only", "no such hardware")
    assert entry.test_runner == ("self-hosted", "gpu")
    assert matrix.default_archs(variant) == ("9.0+PTX",)


TWICE = ONE[ONE.index("[[variant]]") :]

MALFORMED = [
    (("format = 1", "format = 2"), "format: Input should be 1"),
    (("format = 1", "format ="), "is not TOML"),
    (("format = 1", f"format = {'[' * 3000}"), "is not TOML"),
    (("format = 1", f"format = {'1' * 5000}"), "is not TOML"),
    (("format = 1", "format = 1\nextra = 1"), "extra: Extra inputs are not permitted"),
    (("format = 1\n", ""), "format: Field required"),
    (('name = "0.1"', 'name = "0.2"'), "tvm-ffi: build 0.1.15.post2 is not a release of 0.2"),
    (('name = "0.1"', 'name = "0.01"'), "tvm-ffi.name: "),
    (('name = "0.1"', "name = 0.1"), "tvm-ffi.name: Input should be a valid string"),
    (('"0.1.15.post2"', '"0.1.15rc1"'), "tvm-ffi.build: "),
    (('"0.1.15.post2"', '"0.1.15 --index-url x"'), "tvm-ffi.build: "),
    (("[archs.cuda]", "[archs.cud]"), "archs: 'cud' is not one of cuda, rocm, xpu"),
    (("[archs.cuda]", "[archs.cpu]"), "archs: 'cpu' is not one of cuda, rocm, xpu"),
    (('"12.6" = ', '"12" = '), "archs.cuda.12"),
    (('"12.6" = ', '"12.x" = '), "archs.cuda.12.x"),
    (('"12.6" = ', '"12.8" = '), "variant.0: archs.cuda has nothing for 12.6 or older"),
    (('["9.0+PTX"]', "[]"), "archs.cuda.12.6: Tuple should have at least 1 item"),
    (('["9.0+PTX"]', '["sm_90"]'), "archs: cuda.12.6: 'sm_90' is malformed"),
    (('["9.0+PTX"]', '["9.0", "9.0"]'), "archs: cuda.12.6 lists an architecture twice"),
    (('["9.0+PTX"]', '"9.0"'), "archs.cuda.12.6: Input should be a valid tuple"),
    (('backend = "cuda"', 'backend = "tpu"'), "variant.0: unknown backend 'tpu'"),
    (('backend = "cuda"', 'backend = "cpu"'), "variant.0: cpu has no version"),
    (('backend = "cuda"\n', ""), "variant.0.backend: Field required"),
    (('version = "12.6"\n', ""), "variant.0: cuda needs a version"),
    (('version = "12.6"', 'version = "12.10"'), "variant.0: cuda 12.10 has a two-digit minor"),
    (('version = "12.6"', "version = 12.6"), "variant.0.version: Input should be a valid string"),
    (('"x86_64-linux"', '"amd64-linux"'), "variant.0: unknown architecture 'amd64'"),
    (('"x86_64-linux"', '"x86_64-windows10"'), "variant.0.platform: "),
    (('"x86_64-linux"', '"linux"'), "variant.0.platform: "),
    (('"nvcc"', '"gcc"'), "variant.0.toolchain: Input should be 'zig'"),
    (('["ubuntu-24.04"]', '"ubuntu-24.04"'), "variant.0.build-runner: Input should be a valid"),
    (('["ubuntu-24.04"]', "[]"), "variant.0.build-runner: Tuple should have at least 1 item"),
    (('["self-hosted", "gpu"]', '["self-hosted", ""]'), "variant.0.test-runner.1: String should"),
    (('test-runner = ["self-hosted", "gpu"]\n', ""), "variant.0.test-runner: Field required"),
    (('"gpu"]\n', '"gpu"]\nrunner = 1\n'), "variant.0.runner: Extra inputs"),
    (('"gpu"]\n', '"gpu"]\nevidence = "none"\n'), "variant.0.evidence: Input should be 'tested'"),
    (('"gpu"]\n', '"gpu"]\nevidence = "build-only"\n'), "variant.0: a `reason` belongs to"),
    (('"gpu"]\n', '"gpu"]\nreason = "because"\n'), "variant.0: a `reason` belongs to"),
    (('"gpu"]\n', f'"gpu"]\n{BUILD_ONLY.replace("no such hardware", "")}'), "variant.0.reason: "),
    (("[[variant]]", f"{TWICE}[[variant]]"), "variant.1: tvm-ffi01-cu126-x86_64-linux is listed"),
    (
        ("[[variant]]", f"{TWICE.replace('gpu', 'other')}[[variant]]"),
        "variant.1: tvm-ffi01-cu126-x86_64-linux is listed twice",
    ),
    (("[[variant]]", "[variant]"), "variant"),
]


@pytest.mark.parametrize(("edit", "what"), MALFORMED)
def test_malformed(
    edit: tuple[str, str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(replaced(ONE, edit))
    with pytest.raises(InputError) as caught:
        Matrix.read(file)
    assert caught.value.where == str(file)
    assert what in caught.value.what
    assert caught.value.fix == "compare with the matrix of kernel-ci"
    # And the same through the command.
    root = write_tree(tmp_path / "small", SMALL, SMALL_FILES)
    assert main(["plan", str(root), "--matrix", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"bad input: {caught.value}\n"


def test_no_variants(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("variant = []\n" + ONE[: ONE.index("[[variant]]")])
    with pytest.raises(InputError, match="variant: Tuple should have at least 1 item"):
        Matrix.read(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not TOML"):
        Matrix.read(file)


def test_no_such_matrix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        Matrix.read(tmp_path / "gone.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Matrix.read(tmp_path)


def test_kernels_of_the_good_tree_meet_every_variant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its backends are all five, its range of CUDA is the whole of the matrix's.
    assert main(["plan", str(write_tree(tmp_path / "good", BUILDABLE)), "--explain"]) == 0
    printed = capsys.readouterr()
    assert f"{COUNT} planned" in printed.out
    assert "left out" not in printed.out
