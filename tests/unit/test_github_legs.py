"""How a plan's cells become jobs, and whom a fork's code may meet."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_ci.errors import InputError
from kernel_ci.github import legs
from kernel_ci.plan import Cell, Plan
from kernel_ci.runners import RunnerMap

HOSTED = ("ubuntu-24.04", "macos-1?")
LAB = ("self-hosted", "gpu")


def cell(name: str, *, build: tuple[str, ...] = ("ubuntu-24.04",), **changes: Any) -> Cell:
    values: dict[str, Any] = {
        "id": f"{name}/tvm-ffi01-cpu-x86_64-linux",
        "kernel": name,
        "variant": "tvm-ffi01-cpu-x86_64-linux",
        "backend": "cpu",
        "backend_version": None,
        "platform": "x86_64-linux",
        "tvm_ffi": "0.1.15.post2",
        "toolchain": "zig",
        "archs": (),
        "build_runner": build,
        "test_runner": ("ubuntu-24.04",),
        "evidence": "tested",
        "reason": None,
    }
    return Cell(**(values | changes))


def plan(*cells: Cell) -> Plan:
    made = Plan(id="", run="github-1-1", kernel_ci="0.1.0", kernels=(), cells=cells, excluded=())
    return made.model_copy(update={"id": made.computed_id()})


def lay_out(*cells: Cell, **changes: Any) -> legs.Legs:
    values: dict[str, Any] = {
        "declared": RunnerMap(),
        "hosted": HOSTED,
        "fork": False,
        "commit": None,
        "environment": "",
        "reviewed": lambda name: None,
    }
    return legs.lay_out(plan(*cells), **(values | changes))


def declared(toml: str) -> RunnerMap:
    return RunnerMap.parse(toml, where="test")


LAB_MAP = declared('[test]\n"*" = "self-hosted gpu"\n')


def test_every_cell_gets_a_leg_for_each_stage() -> None:
    laid = lay_out(cell("a"), cell("b"))
    for stage in (laid.build, laid.test):
        assert [[leg.cell for leg in matrix] for matrix in stage] == [
            ["a/tvm-ffi01-cpu-x86_64-linux", "b/tvm-ffi01-cpu-x86_64-linux"]
        ]


@pytest.mark.parametrize(
    ("labels", "runs_on"),
    [
        (("ubuntu-24.04",), "ubuntu-24.04"),
        (("self-hosted", "gpu"), ("self-hosted", "gpu")),
        (("group:big",), {"group": "big"}),
        (("group:big", "gpu", "x64"), {"group": "big", "labels": ("gpu", "x64")}),
        (("hf-jobs:a10g-small",), "ubuntu-24.04"),
    ],
)
def test_runs_on(labels: tuple[str, ...], runs_on: object) -> None:
    laid = lay_out(cell("a", test_runner=labels), declared=LAB_MAP)
    (leg,) = laid.test[0]
    assert leg.runner == runs_on
    assert leg.hf_jobs == ("a10g-small" if "hf-jobs" in labels[0] else "")


def test_build_only_is_audited_where_it_was_built() -> None:
    laid = lay_out(cell("a", evidence="build-only", reason="no GPU", test_runner=LAB))
    assert laid.test[0][0].runner == "ubuntu-24.04"


@pytest.mark.parametrize("count", [1, 256, 257, 1024])
def test_no_cell_is_dropped(count: int) -> None:
    cells = [cell(f"k{number:04}") for number in range(count)]
    laid = lay_out(*cells)
    for stage in (laid.build, laid.test):
        assert [leg.cell for matrix in stage for leg in matrix] == [each.id for each in cells]
        assert all(len(matrix) <= 256 for matrix in stage)
        assert len(legs.matrices(stage)) == 4


def test_more_than_the_matrices_hold_is_refused() -> None:
    with pytest.raises(InputError, match="1025 cells: one call runs at most 1024"):
        lay_out(*(cell(f"k{number:04}") for number in range(1025)))


def test_a_test_leg_is_in_the_matrix_of_its_build_leg() -> None:
    """The tests of a matrix only wait for the builds of the same number."""
    cells = [cell(f"k{number:04}") for number in range(300)]
    first = cells[0].model_copy(update={"test_runner": LAB})
    laid = lay_out(first, *cells[1:], declared=LAB_MAP, fork=True)
    assert len(laid.withheld) == 1
    for built, tested in zip(laid.build, laid.test, strict=True):
        assert {leg.cell for leg in tested} <= {leg.cell for leg in built}


def test_an_undeclared_runner_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        lay_out(cell("a", test_runner=LAB))
    assert "self-hosted gpu: tvm-ffi01-cpu-x86_64-linux" in str(caught.value)
    assert "[test]" in str(caught.value)
    assert lay_out(cell("a", test_runner=LAB), declared=LAB_MAP).test[0][0].runner == LAB


def test_code_of_a_fork_waits_by_default() -> None:
    laid = lay_out(cell("a"), cell("b", test_runner=LAB), declared=LAB_MAP, fork=True)
    assert [leg.cell[0] for leg in laid.build[0]] == ["a", "b"]
    assert [leg.cell[0] for leg in laid.test[0]] == ["a"]
    (held,) = laid.withheld
    assert (held.cell[0], held.stage) == ("b", "test")
    assert "waits for a maintainer" in held.reason


def test_code_of_a_fork_runs_in_an_environment_that_asks_a_reviewer() -> None:
    laid = lay_out(
        cell("a"), cell("b", test_runner=LAB), declared=LAB_MAP, fork=True, environment="fork"
    )
    assert {leg.cell[0]: leg.environment for leg in laid.test[0]} == {"a": "", "b": "fork"}
    assert laid.withheld == ()


def test_an_environment_without_a_reviewer_releases_nothing() -> None:
    laid = lay_out(
        cell("b", test_runner=LAB),
        declared=LAB_MAP,
        fork=True,
        environment="fork",
        reviewed=lambda name: "asks no reviewer",
    )
    assert laid.test == ((),)
    assert "'fork' asks no reviewer" in laid.withheld[0].reason


def test_an_environment_is_not_asked_for_where_nobody_is_a_stranger() -> None:
    laid = lay_out(cell("b", test_runner=LAB), declared=LAB_MAP, environment="fork")
    assert laid.test[0][0].environment == ""


def test_a_forks_own_map_cannot_call_a_runner_hosted() -> None:
    """Only GitHub's own labels count; a map comes with the fork's code."""
    laid = lay_out(
        cell("a", build=("gpu",)), declared=declared('[build]\n"*" = "gpu"\n'), fork=True
    )
    assert laid.build == ((),)


def test_code_of_a_fork_gets_no_job_on_hugging_face() -> None:
    laid = lay_out(
        cell("a", test_runner=("hf-jobs:t4",)),
        declared=LAB_MAP,
        fork=True,
        environment="fork",
    )
    assert laid.test == ((),)
    assert "gets no token" in laid.withheld[0].reason


def test_artifacts_are_named_by_plan_and_cell() -> None:
    name = legs.artifact("sha256:" + "ab" * 32, "cell-test", "relu/tvm-ffi01-cpu-x86_64-linux")
    assert name == "kernel-ci.abababababababab.cell-test.relu.tvm-ffi01-cpu-x86_64-linux"


def test_known_hosted_labels() -> None:
    from fnmatch import fnmatchcase

    globs = legs.hosted_labels()
    for label in ("ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "macos-26", "ubuntu-latest"):
        assert any(fnmatchcase(label, glob) for glob in globs)
    for label in ("self-hosted", "ubuntu-24.04-16core", "linux", "gpu", "ubuntu-24.04 "):
        assert not any(fnmatchcase(label, glob) for glob in globs)


def test_every_runner_of_the_matrix_is_hosted_or_self_hosted() -> None:
    from fnmatch import fnmatchcase

    from kernel_ci.matrix import Matrix

    for entry in Matrix.read().variant:
        for labels in (entry.build_runner, entry.test_runner):
            hosted = len(labels) == 1 and any(
                fnmatchcase(labels[0], glob) for glob in legs.hosted_labels()
            )
            assert hosted or labels[0] == "self-hosted", labels


def test_an_engine_builds_for_its_runners_own_platform() -> None:
    arm, x86, mac = ("ubuntu-24.04-arm",), ("ubuntu-24.04",), ("macos-26",)
    for platform, runner, expected in (
        ("x86_64-linux", x86, "cibuildwheel"),
        ("x86_64-linux", LAB, "cibuildwheel"),
        ("aarch64-linux", arm, "cibuildwheel"),
        ("aarch64-linux", ("self-hosted", "linux", "ARM64"), "cibuildwheel"),
        ("aarch64-linux", ("our-aarch64",), "cibuildwheel"),
        ("x86_64-linux", ("our-farm",), "cibuildwheel"),
        ("aarch64-linux", x86, "host"),
        ("aarch64-darwin", x86, "host"),
        ("aarch64-darwin", mac, "host"),
    ):
        built = cell("a", build=runner, platform=platform)
        assert legs.engine_of(built, "cibuildwheel") == expected
        assert legs.engine_of(built, "host") == "host"
