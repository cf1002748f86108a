"""Plans: which cells there are, which are left out and why, and that nobody edits them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.cli import main
from kernel_ci.errors import InputError
from kernel_ci.kernel import Kernel
from kernel_ci.matrix import Matrix
from kernel_ci.plan import (
    Plan,
    Selection,
    host_platform,
    make_plan,
    read_plan,
    run_id,
)
from kernel_ci.source import Source
from tests.unit.trees import BUILDABLE, SMALL, SMALL_FILES, replaced, write_tree

HOST = "x86_64-linux"
SOURCE = Source(digest="sha256:" + "5" * 64, commit="c" * 40, tree="7" * 40, dirty=False)

#: A matrix that does not change when the shipped one does.
MATRIX = """\
format = 1

[tvm-ffi]
name = "0.1"
build = "0.1.15"

[archs.cuda]
"12.6" = ["8.0", "9.0+PTX"]
"13.0" = ["9.0", "12.0+PTX"]

[archs.rocm]
"7.0" = ["gfx90a", "gfx942"]

[archs.xpu]
"2025.3" = ["pvc"]
"""
for _backend, _version, _platform, _toolchain in (
    ("cpu", "", "x86_64-linux", "zig"),
    ("cpu", "", "aarch64-linux", "zig"),
    ("cpu", "", "aarch64-darwin", "zig"),
    ("cuda", "12.6", "x86_64-linux", "nvcc"),
    ("cuda", "13.0", "x86_64-linux", "nvcc"),
    ("cuda", "13.0", "aarch64-linux", "nvcc"),
    ("rocm", "7.2", "x86_64-linux", "hipcc"),
    ("xpu", "2025.3", "x86_64-linux", "icpx"),
    ("metal", "", "aarch64-darwin", "xcode"),
):
    MATRIX += f'\n[[variant]]\nbackend = "{_backend}"\n'
    MATRIX += f'version = "{_version}"\n' if _version else ""
    MATRIX += f'platform = "{_platform}"\ntoolchain = "{_toolchain}"\n'
    MATRIX += f'build-runner = ["build-{_toolchain}"]\ntest-runner = ["test", "{_backend}"]\n'
MATRIX += 'evidence = "build-only"\nreason = "no Mac"\n'  # of metal


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    file = tmp_path / "matrix.toml"
    file.write_text(MATRIX)
    return Matrix.read(file)


@pytest.fixture
def good(tmp_path: Path) -> Kernel:
    """A kernel for all backends."""
    return Kernel.read(write_tree(tmp_path / "good", BUILDABLE))


@pytest.fixture
def small(tmp_path: Path) -> Kernel:
    """A kernel for the CPU."""
    return Kernel.read(write_tree(tmp_path / "small", SMALL, SMALL_FILES))


def machine(host: str) -> Callable[[str, str], str | None]:
    """A machine of some platform without any accelerator."""

    def why_not(platform: str, backend: str) -> str | None:
        return None if (platform, backend) == (host, "cpu") else f"{host} cannot run {backend}"

    return why_not


def planned(
    *kernels: Kernel, matrix: Matrix, run: str = "run-1", host: str = HOST, **selection: Any
) -> Plan:
    """Plan kernels as if each lay in `kernels/<name>`, and check what holds of every plan."""
    found = [(kernel, SOURCE, f"kernels/{kernel.name}") for kernel in kernels]
    plan = make_plan(found, matrix, Selection(**selection), run=run, why_not=machine(host))
    every = sorted(f"{k.name}/{v}" for k in kernels for v in matrix.variants().values())
    assert sorted(ids(plan) + [item.id for item in plan.excluded]) == every
    assert ids(plan) == sorted(ids(plan))
    assert [item.id for item in plan.excluded] == sorted(item.id for item in plan.excluded)
    assert [kernel.name for kernel in plan.kernels] == sorted(kernel.name for kernel in kernels)
    assert all(item.reason for item in plan.excluded)
    assert plan.id == plan.computed_id()
    assert Plan.parse(json.loads(plan.to_json()), where="") == plan
    return plan


def ids(plan: Plan) -> list[str]:
    return [cell.id for cell in plan.cells]


def names(plan: Plan) -> list[str]:
    """Return the planned variants of a plan of one kernel, without what all share."""
    return [cell.variant.removeprefix("tvm-ffi01-") for cell in plan.cells]


def why(plan: Plan, variant: str) -> tuple[str, str]:
    """Return who left a variant out, and why."""
    (found,) = [item for item in plan.excluded if item.id.endswith(f"/tvm-ffi01-{variant}")]
    return found.by, found.reason


ALL = [
    "cpu-aarch64-darwin", "cpu-aarch64-linux", "cpu-x86_64-linux", "cu126-x86_64-linux",
    "cu130-aarch64-linux", "cu130-x86_64-linux", "metal-aarch64-darwin", "rocm72-x86_64-linux",
    "xpu20253-x86_64-linux",
]  # fmt: skip


# --- What is chosen ------------------------------------------------------------------------


def test_all_of_the_matrix_by_default(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix)
    assert names(plan) == ALL
    assert plan.excluded == ()
    assert not plan.partial


def test_only_what_the_kernel_lists(small: Kernel, matrix: Matrix) -> None:
    plan = planned(small, matrix=matrix)
    assert names(plan) == ["cpu-aarch64-darwin", "cpu-aarch64-linux", "cpu-x86_64-linux"]
    assert {item.by for item in plan.excluded} == {"kernel"}
    assert why(plan, "rocm72-x86_64-linux")[1] == "build.toml does not list the backend rocm"
    # The author wants no more than this: a release of it is complete.
    assert not plan.partial


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (("*-cpu-*",), ["cpu-aarch64-darwin", "cpu-aarch64-linux", "cpu-x86_64-linux"]),
        (("tvm-ffi01-cu130-x86_64-linux",), ["cu130-x86_64-linux"]),
        (("good-kernel/tvm-ffi01-cu130-x86_64-linux",), ["cu130-x86_64-linux"]),
        (("good-*/*-cu130-*",), ["cu130-aarch64-linux", "cu130-x86_64-linux"]),
        (("*-darwin", "*-rocm*"), ["cpu-aarch64-darwin", "metal-aarch64-darwin",
                                   "rocm72-x86_64-linux"]),
        (("*-cu1[23]?-x86*",), ["cu126-x86_64-linux", "cu130-x86_64-linux"]),
        (("*",), ALL),
        (("*/*",), ALL),
    ],
)  # fmt: skip
def test_only(only: tuple[str, ...], expected: list[str], good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, only=only)
    assert names(plan) == expected
    assert {(e.by, e.reason) for e in plan.excluded} <= {("caller", "no --only pattern matches it")}
    assert plan.partial == (expected != ALL)


def test_skip(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, skip=("*-aarch64-*", "*-cu126-*"))
    assert names(plan) == [n for n in ALL if "aarch64" not in n and "cu126" not in n]
    assert why(plan, "cu126-x86_64-linux") == ("caller", "--skip *-cu126-*")
    assert why(plan, "cpu-aarch64-darwin") == ("caller", "--skip *-aarch64-*")
    assert plan.partial


def test_skip_wins_over_only(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, only=("*-cpu-*",), skip=("*-darwin",))
    assert names(plan) == ["cpu-aarch64-linux", "cpu-x86_64-linux"]


def test_backends_and_tier(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, backends=("rocm", "cpu"))
    assert names(plan) == [*ALL[:3], "rocm72-x86_64-linux"]
    assert why(plan, "metal-aarch64-darwin") == ("caller", "no --backend names it")
    plan = planned(good, matrix=Matrix.read(), tier="quick")
    assert sorted(cell.backend for cell in plan.cells) == ["cpu", "cuda", "metal", "rocm", "xpu"]
    assert {(e.by, e.reason) for e in plan.excluded} == {("caller", "not part of --tier quick")}


def test_patterns_do_not_reach_into_the_kernels_name(tmp_path: Path, matrix: Matrix) -> None:
    # `*` spans a `/`: on whole ids, `*-cpu-*` would match every variant of this kernel.
    text = replaced(BUILDABLE, ('"good-kernel"', '"my-cpu-kernel"'), ('"org/good-kernel"', '"o/m"'))
    root = write_tree(tmp_path / "k", text)
    (root / "tvm-ffi-ext/good_kernel").rename(root / "tvm-ffi-ext/my_cpu_kernel")
    kernel = Kernel.read(root)
    assert names(planned(kernel, matrix=matrix, only=("*-cpu-*",))) == ALL[:3]
    assert names(planned(kernel, matrix=matrix, only=("my-*/*-cpu-*",))) == ALL[:3]
    assert names(planned(kernel, matrix=matrix, skip=("*-cpu-*",))) == ALL[3:]


@pytest.mark.parametrize("option", ["only", "skip", "build_only"])
@pytest.mark.parametrize("pattern", ["*-cuda-*", "cpu", "*-CPU-*", "other/*", "", "*-cu131-*"])
def test_a_pattern_that_matches_nothing(
    option: str, pattern: str, good: Kernel, matrix: Matrix
) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(
            [(good, SOURCE, "good")],
            matrix,
            Selection(**{option: ("*-cpu-*", pattern)}),  # type: ignore[arg-type]
            run="run-1",
            why_not=machine(HOST),
        )
    assert caught.value.where == "--" + option.replace("_", "-")
    assert caught.value.what == f"{pattern!r} matches no variant"
    assert "--explain" in str(caught.value.fix)


def test_nothing_left(small: Kernel, matrix: Matrix) -> None:
    # The pattern is one of the matrix, so the reason is the kernel.
    with pytest.raises(InputError) as caught:
        planned(small, matrix=matrix, only=("*-cu126-*",))
    message = str(caught.value)
    assert "no variant is left to build" in message
    for name, reason in (
        ("cu126-x86_64-linux", "build.toml does not list the backend cuda"),
        ("cpu-x86_64-linux", "no --only pattern matches it"),
    ):
        assert f"  small/tvm-ffi01-{name}: {reason}\n" in message
    assert "fix: " in message


def test_no_kernel(matrix: Matrix) -> None:
    with pytest.raises(InputError, match="no kernel was named"):
        planned(matrix=matrix)


# --- Evidence ------------------------------------------------------------------------------


def test_build_only(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, build_only=("*-rocm*",))
    cells = {cell.variant.removeprefix("tvm-ffi01-"): cell for cell in plan.cells}
    assert names(plan) == ALL
    for name, cell in cells.items():
        declared = {
            "metal-aarch64-darwin": "no Mac",
            "rocm72-x86_64-linux": "declared by the caller: --build-only *-rocm*",
        }.get(name)
        assert cell.reason == declared
        assert cell.evidence == ("tested" if declared is None else "build-only")
        assert ("test" in cell.stages) == (declared is None)
        assert cell.stages[:2] == ("build", "audit")


def test_provable_here(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix, only=("*-cpu-*", "*-metal-*"), provable_here=True)
    # Metal needs no test, so that this machine has nothing to prove.
    assert names(plan) == ["cpu-x86_64-linux", "metal-aarch64-darwin"]
    by, reason = why(plan, "cpu-aarch64-linux")
    assert by == "machine"
    assert "x86_64-linux cannot run cpu" in reason
    assert "--build-only 'tvm-ffi01-cpu-aarch64-linux'" in reason
    assert plan.partial
    plan = planned(
        good, matrix=matrix, only=("*-cpu-*",), build_only=("*-aarch64-*",), provable_here=True
    )
    assert names(plan) == ALL[:3]


def test_a_plan_for_this_machine_is_partial(small: Kernel, matrix: Matrix) -> None:
    plan = planned(small, matrix=matrix, provable_here=True)
    assert {item.by for item in plan.excluded} == {"kernel", "machine"}
    assert plan.partial


def test_where_the_plan_is_made_does_not_matter_otherwise(good: Kernel, matrix: Matrix) -> None:
    assert planned(good, matrix=matrix, host="aarch64-darwin") == planned(good, matrix=matrix)


# --- What a cell holds ---------------------------------------------------------------------


def test_a_cell(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix)
    (cell,) = plan.select(["good-kernel/tvm-ffi01-cu130-aarch64-linux"])
    assert cell.model_dump() == {
        "id": "good-kernel/tvm-ffi01-cu130-aarch64-linux",
        "kernel": "good-kernel",
        "variant": "tvm-ffi01-cu130-aarch64-linux",
        "backend": "cuda",
        "backend_version": "13.0",
        "platform": "aarch64-linux",
        "tvm_ffi": "0.1.15",
        "toolchain": "nvcc",
        "archs": ("8.0", "9.0a", "10.0f", "12.0+PTX"),
        "component_archs": {"on_cuda": ("8.0", "9.0a", "10.0f", "12.0+PTX")},
        "notices": (),
        "build_runner": ("build-nvcc",),
        "test_runner": ("test", "cuda"),
        "evidence": "tested",
        "reason": None,
    }
    assert (str(cell.parsed()), cell.parsed().platform) == (cell.variant, cell.platform)


def archs(plan: Plan, variant: str) -> tuple[str, ...]:
    (cell,) = plan.select([f"{plan.kernels[0].name}/tvm-ffi01-{variant}"])
    return cell.archs


def test_architectures_of_components(tmp_path: Path, matrix: Matrix) -> None:
    def kernel(name: str, *edits: tuple[str, str], more: str = "") -> Kernel:
        return Kernel.read(write_tree(tmp_path / name, replaced(BUILDABLE, *edits) + more))

    own = '["8.0", "9.0a", "10.0f", "12.0+PTX"]'
    listed = f"cuda-capabilities = {own}\n"
    second = '[kernel.second]\nbackend = "cuda"\ndepends = []\nsrc = ["gpu/kernel.cu"]\n'
    plan = planned(kernel("a"), matrix=matrix)
    assert archs(plan, "cpu-x86_64-linux") == archs(plan, "metal-aarch64-darwin") == ()
    assert archs(plan, "rocm72-x86_64-linux") == ("gfx90a", "gfx1100")
    assert archs(plan, "xpu20253-x86_64-linux") == ("pvc",)
    # Without a list: the matrix's, by the toolkit's version.
    plan = planned(kernel("b", (listed, "")), matrix=matrix)
    assert archs(plan, "cu126-x86_64-linux") == ("8.0", "9.0+PTX")
    assert archs(plan, "cu130-x86_64-linux") == ("9.0", "12.0+PTX")
    # Two components: the union, each architecture once.
    plan = planned(
        kernel("c", more=f'{second}cuda-capabilities = ["9.0a", "7.5"]\n'), matrix=matrix
    )
    assert archs(plan, "cu130-x86_64-linux") == ("8.0", "9.0a", "10.0f", "12.0+PTX", "7.5")
    plan = planned(kernel("d", more=second), matrix=matrix)
    assert archs(plan, "cu126-x86_64-linux") == ("8.0", "9.0a", "9.0+PTX")
    # A component that this CUDA is too old for adds nothing.
    newer = f'{second}cuda-capabilities = ["10.3"]\ncuda-minver = "13.0"\n'
    plan = planned(kernel("e", more=newer), matrix=matrix)
    assert archs(plan, "cu126-x86_64-linux") == ("8.0", "9.0a")
    assert archs(plan, "cu130-x86_64-linux")[-1] == "10.3"


@pytest.mark.parametrize(
    ("minver", "maxver", "expected", "reason"),
    [
        ("12.6", "13.2", {"cu126", "cu130"}, None),
        ("12.8", "13.2", {"cu130"}, "build.toml: general.cuda.minver is 12.8"),
        ("12.6", "12.9", {"cu126"}, "build.toml: general.cuda.maxver is 12.9"),
        ("12.6", "12.6", {"cu126"}, "build.toml: general.cuda.maxver is 12.6"),
        ("13.0", "13.0", {"cu130"}, "build.toml: general.cuda.minver is 13.0"),
        ("12.10", "13.0", {"cu130"}, "build.toml: general.cuda.minver is 12.10"),
        ("13.1", "13.2", set(), "build.toml: general.cuda.minver is 13.1"),
    ],
)
def test_range_of_cuda(
    minver: str, maxver: str, expected: set[str], reason: str | None, tmp_path: Path, matrix: Matrix
) -> None:
    text = replaced(
        BUILDABLE,
        ('minver = "12.6"\nmaxver', f'minver = "{minver}"\nmaxver'),
        ('maxver = "13.2"', f'maxver = "{maxver}"'),
    )
    plan = planned(Kernel.read(write_tree(tmp_path / "good", text)), matrix=matrix)
    assert {name.partition("-")[0] for name in names(plan) if name[:2] == "cu"} == expected
    left = {(item.by, item.reason) for item in plan.excluded}
    assert left == ({("kernel", reason)} if reason else set())


def test_cuda_minver_of_the_only_component(tmp_path: Path, matrix: Matrix) -> None:
    text = replaced(BUILDABLE, ('cuda-minver = "12.6"', 'cuda-minver = "13.0"'))
    plan = planned(Kernel.read(write_tree(tmp_path / "good", text)), matrix=matrix)
    assert why(plan, "cu126-x86_64-linux") == (
        "kernel",
        "build.toml: cuda-minver leaves no section for CUDA 12.6",
    )
    assert "cu130-x86_64-linux" in names(plan)


# --- Several kernels -----------------------------------------------------------------------


def test_two_kernels(good: Kernel, small: Kernel, matrix: Matrix) -> None:
    plan = planned(good, small, matrix=matrix, only=("*-cpu-x86*", "good-kernel/*-rocm*"))
    assert ids(plan) == [
        "good-kernel/tvm-ffi01-cpu-x86_64-linux",
        "good-kernel/tvm-ffi01-rocm72-x86_64-linux",
        "small/tvm-ffi01-cpu-x86_64-linux",
    ]
    assert plan.kernel("small").model_dump() == {
        "name": "small",
        "path": "kernels/small",
        "version": 0,
        "license": "MIT",
        "repo_id": None,
        "branch": "v0",
        "source": SOURCE.model_dump(),
        "bench": {"slowdown_limit": 1.1, "required": False},
    }
    assert plan.kernel("good-kernel").repo_id == "org/good-kernel"
    assert plan.kernel("good-kernel").branch == "v3-test"


def test_the_order_of_input_does_not_matter(
    good: Kernel, small: Kernel, matrix: Matrix, tmp_path: Path
) -> None:
    head, *entries = MATRIX.split("\n[[variant]]\n")
    file = tmp_path / "reversed.toml"
    file.write_text("\n[[variant]]\n".join([head + "\n", *(f"{e}\n" for e in reversed(entries))]))
    other = Matrix.read(file)
    assert list(other.variants()) == list(matrix.variants())[::-1]
    selection: dict[str, Any] = {
        "only": ("*-cpu-*", "*-rocm*"), "skip": ("*-darwin", "small/*-aarch64-linux"),
        "allowed_skips": ("b", "a", "b"),
    }  # fmt: skip
    backwards = {key: value[::-1] for key, value in selection.items()}
    plans = {
        planned(*kernels, matrix=table, **chosen).to_json()
        for kernels, table, chosen in itertools.product(
            ((good, small), (small, good)), (matrix, other), (selection, backwards)
        )
    }
    assert len(plans) == 1


def test_same_name_twice(good: Kernel, matrix: Matrix, tmp_path: Path) -> None:
    again = Kernel.read(write_tree(tmp_path / "again"))
    with pytest.raises(InputError, match="two kernels are called 'good-kernel'"):
        planned(good, again, matrix=matrix)
    with pytest.raises(InputError, match="two kernels are called 'good-kernel'"):
        planned(good, good, matrix=matrix)


def test_same_branch_twice(good: Kernel, matrix: Matrix, tmp_path: Path) -> None:
    def other(branch: str) -> Kernel:
        hub = f'[general.hub]\nrepo-id = "org/good-kernel"\nbranch = "{branch}"\n'
        return Kernel.read(write_tree(tmp_path / "other", SMALL + hub, SMALL_FILES))

    with pytest.raises(InputError, match="both go to org/good-kernel v3-test"):
        planned(good, other("v3-test"), matrix=matrix)
    assert len(planned(good, other("v0"), matrix=matrix).kernels) == 2


# --- Identity ------------------------------------------------------------------------------


def test_the_id_is_of_the_content_and_of_the_run(
    good: Kernel, small: Kernel, matrix: Matrix
) -> None:
    plan = planned(good, matrix=matrix)
    assert plan.id.startswith("sha256:")
    assert planned(good, matrix=matrix).id == plan.id
    changed = SOURCE.model_copy(update={"digest": "sha256:" + "6" * 64})
    others = [
        planned(good, matrix=matrix, run="run-2"),
        planned(good, matrix=matrix, only=("*-cpu-*",)),
        planned(good, matrix=matrix, build_only=("*-cpu-*",)),
        planned(good, matrix=matrix, allowed_skips=("*",)),
        planned(good, small, matrix=matrix),
        make_plan(
            [(good, changed, "kernels/good-kernel")],
            matrix,
            Selection(),
            run="run-1",
            why_not=machine(HOST),
        ),
        make_plan(
            [(good, SOURCE, "elsewhere")], matrix, Selection(), run="run-1", why_not=machine(HOST)
        ),
    ]
    assert len({plan.id, *(other.id for other in others)}) == 1 + len(others)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every scalar of a JSON value."""
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in _paths(item, (*path, key))]
    if isinstance(value, list):
        return [p for index, item in enumerate(value) for p in _paths(item, (*path, index))]
    return [path]


def test_every_edit_is_refused(good: Kernel, small: Kernel, matrix: Matrix, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan = planned(good, small, matrix=matrix, skip=("*-rocm*",), allowed_skips=("x",))
    plan.write(file)
    assert read_plan(file) == plan
    original = json.loads(file.read_bytes())
    paths = _paths(original)
    assert len(paths) > 200
    for path in paths:
        data = json.loads(file.read_bytes())
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        old = holder[path[-1]]
        holder[path[-1]] = not old if isinstance(old, bool) else 1 if old == 0 else f"{old or ''}x"
        edited = tmp_path / "edited.json"
        edited.write_text(json.dumps(data))
        with pytest.raises(InputError, match=r"edited\.json"):
            read_plan(edited)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda d: d.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda d: d["cells"][0].update(extra=1), "cells.0.extra: Extra inputs"),
        (lambda d: d.update(format=2), "format is 2, expected 1"),
        (lambda d: d.update(kind="kernel-ci verdict"), "kind is 'kernel-ci verdict'"),
        (lambda d: d.pop("kind"), "kind is None"),
        (lambda d: d.pop("cells"), "cells: Field required"),
        (lambda d: d["cells"].pop(), "was changed after it was made"),
        (lambda d: d["excluded"].pop(), "was changed after it was made"),
        (lambda d: d["cells"].reverse(), "was changed after it was made"),
        (lambda d: d["cells"][0].update(evidence="none"), "cells.0.evidence: Input should be"),
        (lambda d: d["cells"][0].update(toolchain="gcc"), "cells.0.toolchain: Input should be"),
        (lambda d: d["cells"][0].update(evidence="build-only"), "was changed after it was made"),
        (lambda d: d.update(id="sha256:0"), "was changed after it was made"),
    ],
)
def test_edited_plans(edit: Any, what: str, good: Kernel, matrix: Matrix, tmp_path: Path) -> None:
    data = json.loads(planned(good, matrix=matrix, skip=("*-cu*",)).to_json())
    edit(data)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        read_plan(file)
    assert what in caught.value.what
    assert caught.value.where == str(file)
    assert caught.value.fix


def test_select(good: Kernel, matrix: Matrix) -> None:
    plan = planned(good, matrix=matrix)
    first, second = plan.cells[1].id, plan.cells[0].id
    assert plan.select([]) == plan.cells
    assert [cell.id for cell in plan.select([first, second, first])] == [first, second]
    with pytest.raises(InputError, match="no cell 'good-kernel/x' in the plan") as caught:
        plan.select([first, "good-kernel/x"])
    assert second in str(caught.value.fix)


def test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)
    assert run_id() != run_id()
    assert run_id().startswith("local-")
    monkeypatch.setenv("GITHUB_RUN_ID", "")
    assert run_id().startswith("local-")
    monkeypatch.setenv("GITHUB_RUN_ID", "77")
    assert run_id() == "github-77-1"
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    assert run_id() == "github-77-2"


@pytest.mark.parametrize(
    ("machine", "system", "expected"),
    [
        ("x86_64", "Linux", "x86_64-linux"),
        ("aarch64", "Linux", "aarch64-linux"),
        ("arm64", "Darwin", "aarch64-darwin"),
        ("AMD64", "Windows", "x86_64-windows"),
        ("ARM64", "Windows", "aarch64-windows"),
    ],
)
def test_host_platform(
    machine: str, system: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.system", lambda: system)
    assert host_platform() == expected


def test_golden(
    good: Kernel, small: Kernel, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document's form; UPDATE_GOLDEN=1 writes it anew, to be read in the diff."""
    monkeypatch.setattr("kernel_ci.plan.__version__", "0.0.0")
    plan = planned(
        good,
        small,
        matrix=matrix,
        skip=("small/*-aarch64-linux",),
        build_only=("*-rocm*",),
        allowed_skips=("*::test_jax*",),
        only=("*-cpu-*-linux", "*-cu130-*", "*-rocm*", "*-metal-*"),
    )
    golden = Path(__file__).parent / "golden" / "plan.json"
    if os.environ.get("UPDATE_GOLDEN"):
        plan.write(golden)
    assert plan.to_json() == golden.read_text()


# --- The command ---------------------------------------------------------------------------


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "kernels" / "good")
    outside = write_tree(tmp_path / "outside", SMALL, SMALL_FILES)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    monkeypatch.chdir(tmp_path / "kernels")
    monkeypatch.setenv("COLUMNS", "200")
    command = ["plan", "good", str(outside), "--matrix", "../matrix.toml", "--only", "*-cpu-*"]
    assert main([*command, "-o", "out/plan.json", "--json"]) == 0
    printed = capsys.readouterr()
    plan = read_plan(Path("out/plan.json"))
    # Standard output is the machine's, the table is on standard error.
    assert printed.out == plan.to_json()
    assert "6 planned" in printed.err
    assert plan.kernel("good-kernel").path == "good"
    assert plan.kernel("small").path == str(outside)
    assert plan.kernel("small").source.commit is None

    assert main([*command, "--explain"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for item in plan.excluded:
        assert item.id in printed.out
    assert "no --only pattern matches it" in printed.out


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (".", ": cannot be written: "),
        ("file/plan.json", "/plan.json: cannot be written: "),
        ("file/deep/plan.json", "/file/deep: cannot be made: "),
        ("small/plan.json", "/small: is the folder of the kernel small itself"),
    ],
)
def test_the_command_cannot_write(
    output: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tree(tmp_path / "small", SMALL, SMALL_FILES)
    (tmp_path / "file").write_text("")
    assert main(["plan", str(root), "-o", str(tmp_path / output)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"bad input: {tmp_path}")
    assert what in printed.err
    assert "fix: " in printed.err


def test_the_command_with_the_same_kernel_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tree(tmp_path / "small", SMALL, SMALL_FILES)
    assert main(["plan", str(root), str(root)]) == 2
    assert "two kernels are called 'small'" in capsys.readouterr().err
