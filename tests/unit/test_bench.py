"""The statistics of comparisons, the settings, and what the gate makes of results."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from kernel_ci.bench import settings
from kernel_ci.bench.compare import Ratio, compare, pair_ratios
from kernel_ci.bench.document import Baseline, BenchResult, Workload
from kernel_ci.bench.measure import BLOCKS, ROUNDS
from kernel_ci.bench.settings import BenchSettings
from kernel_ci.errors import InputError
from kernel_ci.gate import Found, judge_bench
from kernel_ci.plan import Cell, Plan, PlannedKernel
from kernel_ci.receipts import Machine
from kernel_ci.source import Source


def simulated(slowdown: float, seed: int) -> Ratio:
    """Compare builds on a machine that drifts, has a long tail, and differs from round to round."""
    noise = random.Random(seed)
    clock = 0.0

    def timing(cost: float) -> float:
        nonlocal clock
        clock += 1
        drift = 1 + 0.3 * math.sin(clock / 40)
        # One timing in five is disturbed by somebody else's work, by up to a factor of three.
        disturbed = 1 + 2 * noise.random() if noise.random() < 0.2 else 1
        return cost * drift * disturbed * (1 + noise.expovariate(1 / 0.02))

    rounds = []
    for _ in range(ROUNDS):
        a, b = (cost * noise.lognormvariate(0, 0.02) for cost in (1.0, slowdown))
        rounds.append(
            [
                ratio
                for _ in range(BLOCKS)
                for ratio in pair_ratios(timing(a), timing(b), timing(b), timing(a))
            ]
        )
    return compare(rounds)


@pytest.mark.parametrize("seed", range(10))
def test_a_slowdown_of_30_percent_is_seen_in_noise(seed: int) -> None:
    found = simulated(1.3, seed)
    assert found.slower_than(1.1)
    assert found.low <= found.median <= found.high


@pytest.mark.parametrize("seed", range(10))
def test_an_unchanged_build_is_not_flagged(seed: int) -> None:
    assert not simulated(1.0, seed).slower_than(1.1)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    noise = random.Random(7)
    held, times = 0, 2000
    for _ in range(times):
        found = compare([[noise.lognormvariate(0, 1)] for _ in range(10)])
        held += found.low <= 1 <= found.high
    assert found.confidence == 1 - 2 * 11 / 1024
    assert held / times == pytest.approx(found.confidence, abs=0.01)


def test_one_disturbed_round_decides_nothing() -> None:
    usual = [[1.2]] * 9
    assert compare([*usual, [0.5]]).low == 1.2
    assert compare([*usual, [9.0]]).high == 1.2


def test_a_drift_cancels_out() -> None:
    clock = iter(range(100, 1000))
    rounds = [[r for _ in range(10) for r in pair_ratios(*(next(clock) for _ in range(4)))]] * 10
    assert compare(rounds).median == pytest.approx(1, abs=0.001)


def test_too_few_rounds_give_no_interval() -> None:
    with pytest.raises(ValueError, match="5 rounds are too few"):
        compare([[1.0]] * 5)
    assert compare([[1.0]] * 6).rounds == 6


def test_settings(tmp_path: Path) -> None:
    assert settings.read(tmp_path) == BenchSettings(slowdown_limit=1.1, required=False)
    file = tmp_path / settings.FILE
    file.write_text("[bench]\nslowdown-limit = 1.25\nrequired = true\n")
    assert settings.read(tmp_path) == BenchSettings(slowdown_limit=1.25, required=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[bench]\nslow = 1", "slow"),
        ("[bench]\nslowdown-limit = 0.9", "greater than or equal to 1"),
        ("[bench]\nslowdown-limit = nan", "slowdown-limit"),
        ("[bench]\nslowdown-limit = '1.1'", "slowdown-limit"),
        ("[bench]\nrequired = 'no'", "required"),
        ("[other]", "other"),
        ("[bench", "cannot be read"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / settings.FILE).write_text(text)
    with pytest.raises(InputError, match=says) as raised:
        settings.read(tmp_path)
    assert settings.FILE in str(raised.value)


SLOW = Ratio(median=1.3, low=1.2, high=1.4, confidence=0.979, rounds=10)
UNSURE = Ratio(median=1.3, low=1.05, high=1.4, confidence=0.979, rounds=10)


def judged(
    *, required: bool, evidence: str = "tested", result: BenchResult | str | None
) -> tuple[list[str], bool]:
    cell = Cell.model_validate(
        {
            "id": "negate/v", "kernel": "negate", "variant": "v", "backend": "cpu",
            "backend_version": None, "platform": "x86_64-linux", "tvm_ffi": "0.1.9",
            "toolchain": "zig", "archs": (), "build_runner": (), "test_runner": (),
            "evidence": evidence, "reason": None,
        }
    )  # fmt: skip
    kernel = PlannedKernel(
        name="negate",
        path="negate",
        version=1,
        license="MIT",
        repo_id=None,
        branch="v1",
        source=Source(digest="sha256:1"),
        bench=BenchSettings(slowdown_limit=1.1, required=required),
    )
    plan = Plan(id="p", run="r", kernel_ci="0", kernels=(kernel,), cells=(cell,), excluded=())
    found = Found(digest="sha256:d", receipts={}, bench=result)
    return judge_bench(plan, cell, found)


def result(ratio: Ratio | None = SLOW, **values: object) -> BenchResult:
    work = Workload(name="w", verified=True, calls=1, seconds=1.3, against_seconds=1.0, ratio=ratio)
    found = BenchResult(
        plan="p",
        run="r",
        cell="negate/v",
        digest="sha256:d",
        against=Baseline(name="published", id="_x", digest="sha256:o"),
        slowdown_limit=1.1,
        workloads=(work,),
        machine=Machine(platform="x86_64-linux", system="s", python="3.11"),
        started="now",
        seconds=1,
        reproduce="again",
    )
    return found.model_copy(update=values)


def test_a_required_slowdown_is_red_with_its_numbers() -> None:
    lines, counts = judged(required=True, result=result())
    assert counts
    assert lines == [
        "bench: w takes 1.300 times as long as published"
        " (97.9 % interval 1.200 to 1.400, limit 1.1)"
    ]


def test_an_interval_that_reaches_below_the_limit_is_not_red() -> None:
    assert judged(required=True, result=result(UNSURE)) == ([], True)


def test_what_is_not_required_is_shown_and_never_red() -> None:
    lines, counts = judged(required=False, result=result())
    assert lines
    assert not counts
    assert judged(required=False, result=None) == ([], False)


def test_the_limit_is_the_plans() -> None:
    lines, _ = judged(required=True, result=result(slowdown_limit=50.0))
    assert "limit 1.1" in lines[0]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "there is no result"),
        ("is not JSON", "the result is not valid: is not JSON"),
        (result(cell="other"), "of another cell"),
        (result(run="other"), "of another run"),
        (result(plan="other"), "of another plan"),
        (result(digest="sha256:e"), "of another variant directory"),
        (result(workloads=()), "nothing was timed"),
        (result(None), "was not compared"),
        (result(against=None), "was not compared"),
    ],
)
def test_a_required_result_must_be_there_and_of_this_build(
    found: BenchResult | str | None, says: str
) -> None:
    lines, counts = judged(required=True, result=found)
    assert counts
    assert says in lines[0]


def test_a_cell_that_nobody_tests_needs_no_benchmark() -> None:
    assert judged(required=True, evidence="build-only", result=None) == ([], False)


def test_a_first_release_has_nothing_to_be_slower_than() -> None:
    found = result(None, against=None, nothing_published="org/negate@v1 does not exist")
    lines, counts = judged(required=True, result=found)
    assert not counts
    assert "org/negate@v1 does not exist" in lines[0]
