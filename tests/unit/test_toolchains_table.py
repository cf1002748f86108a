"""What a plan tells about toolkits, without any of them at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel
from kernel_ci.matrix import Matrix
from kernel_ci.toolchains.archs import merge
from kernel_ci.toolchains.table import (
    Archs,
    check_dependencies,
    check_runner,
    resolve,
    toolkits,
)
from kernel_ci.variant import Variant
from tests.unit.trees import BUILDABLE, replaced, write_tree

CUDA_LIST = 'cuda-capabilities = ["8.0", "9.0a", "10.0f", "12.0+PTX"]\n'
ROCM_LIST = 'rocm-archs = ["gfx90a", "gfx1100"]\n'
DEFAULT = ("8.0", "9.0+PTX")


def kernel(tmp_path: Path, *edits: tuple[str, str], more: str = "") -> Kernel:
    return Kernel.read(write_tree(tmp_path / "kernel", replaced(BUILDABLE, *edits) + more))


def cuda(version: str) -> Variant:
    return Variant("cuda", version, "x86_64", "linux")


def listing(tmp_path: Path, archs: str, version: str) -> Archs:
    edited = kernel(tmp_path, (CUDA_LIST, f"cuda-capabilities = {archs}\n"))
    return resolve(edited, cuda(version), DEFAULT, cell="the/cell")


def test_the_default_archs_are_known_everywhere() -> None:
    matrix = Matrix.read()
    for variant in matrix.variants().values():
        if variant.backend in ("cuda", "rocm"):
            known = toolkits().archs(variant.backend, variant.backend_version or "")
            assert known is not None
            listed = {arch.removesuffix("+PTX") for arch in matrix.default_archs(variant)}
            assert listed <= set(known), variant


def test_every_cuda_of_the_matrix_is_in_the_table() -> None:
    versions = {row.version for row in toolkits().cuda}
    assert {
        v.backend_version for v in Matrix.read().variants().values() if v.backend == "cuda"
    } <= (versions)


def test_what_all_know_is_kept(tmp_path: Path) -> None:
    found = listing(tmp_path, '["7.5", "9.0a", "9.0+PTX"]', "12.6")
    assert found == Archs(("7.5", "9.0a", "9.0+PTX"), {"on_cuda": ("7.5", "9.0a", "9.0+PTX")}, ())


def test_what_this_toolkit_does_not_know_is_left_out_and_told(tmp_path: Path) -> None:
    found = listing(tmp_path, '["7.0", "9.0", "10.0f", "12.0+PTX"]', "12.8")
    assert found.union == ("7.0", "9.0", "12.0+PTX")
    assert found.notices == (
        "kernel.on_cuda.cuda-capabilities: CUDA 12.8 does not know '10.0f', which needs CUDA"
        " 12.9 or newer: left out here",
    )
    found = listing(tmp_path, '["7.0", "9.0"]', "13.2")
    assert found.union == ("9.0",)
    assert "'7.0', which is no longer supported" in found.notices[0]


@pytest.mark.parametrize(
    ("archs", "version", "said"),
    [
        ('["9.0", "9.9"]', "13.0", "cuda-capabilities: no CUDA toolkit knows '9.9'"),
        ('["10.0"]', "12.6", "cuda-capabilities: CUDA 12.6 knows none of 10.0"),
        ('["7.0", "7.2"]', "13.0", "CUDA 13.0 knows none of 7.0, 7.2"),
        ('["12.0+PTX", "12.0f"]', "13.0", "12.0 and 12.0f together"),
    ],
)
def test_wrong_combinations(tmp_path: Path, archs: str, version: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        listing(tmp_path, archs, version)
    assert said in error.value.what
    assert error.value.where == "the/cell"
    assert error.value.fix


def test_rocm(tmp_path: Path) -> None:
    variant = Variant("rocm", "7.2", "x86_64", "linux")
    assert resolve(kernel(tmp_path), variant, (), cell="c").union == ("gfx90a", "gfx1100")
    edited = kernel(tmp_path, (ROCM_LIST, 'rocm-archs = ["gfx940"]\n'))
    with pytest.raises(InputError, match=r"rocm-archs: ROCm 7\.2 knows none of gfx940"):
        resolve(edited, variant, (), cell="c")
    old = Variant("rocm", "5.2", "x86_64", "linux")
    assert resolve(edited, old, (), cell="c").union == ("gfx940",)


def test_components_have_lists_of_their_own(tmp_path: Path) -> None:
    second = '[kernel.second]\nbackend = "cuda"\ndepends = []\nsrc = ["gpu/kernel.cu"]\n'
    newer = second.replace("second", "newer") + 'cuda-minver = "13.2"\n'
    found = resolve(kernel(tmp_path, more=second + newer), cuda("13.0"), DEFAULT, cell="c")
    assert found.components == {
        "on_cuda": ("8.0", "9.0a", "10.0f", "12.0+PTX"),
        "second": DEFAULT,
    }
    assert found.union == ("8.0", "9.0a", "10.0f", "12.0+PTX", "9.0+PTX")


def test_ptx_stands_for_the_machine_code_too() -> None:
    assert merge([("8.0", "9.0"), ("9.0+PTX", "8.0")]) == ("8.0", "9.0+PTX")


def test_dependencies(tmp_path: Path) -> None:
    def depending(name: str) -> Kernel:
        return kernel(
            tmp_path, ('backend = "cuda"\ndepends = []', f'backend = "cuda"\ndepends = ["{name}"]')
        )

    check_dependencies(depending("cutlass_3_6"), cuda("13.0"), cell="c")
    # Only what this variant is made of counts.
    check_dependencies(depending("cutlass_4_0"), Variant("cpu", None, "x86_64", "linux"), cell="c")
    with pytest.raises(InputError, match=r"on_cuda\.depends: nothing supplies 'cutlass_4_0'"):
        check_dependencies(depending("cutlass_4_0"), cuda("13.0"), cell="c")
    with pytest.raises(InputError, match="without torch"):
        check_dependencies(depending("torch"), cuda("13.0"), cell="c")


def test_a_runner_whose_compilers_are_all_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    check_runner(cuda("12.6"), ("ubuntu-24.04",), cell="c")  # GCC 12 and 13 will do
    check_runner(cuda("12.6"), ("self-hosted", "mine"), cell="c")
    newer = toolkits().runner.model_copy(update={"gcc": {"ubuntu-26.04": (14, 15)}})
    changed = toolkits().model_copy(update={"runner": newer})
    monkeypatch.setattr("kernel_ci.toolchains.table.toolkits", lambda: changed)
    check_runner(cuda("13.0"), ("ubuntu-26.04",), cell="c")
    with pytest.raises(InputError, match=r"GCC 14 and newer.*takes GCC 13 at most"):
        check_runner(cuda("12.6"), ("x64", "ubuntu-26.04"), cell="c")
