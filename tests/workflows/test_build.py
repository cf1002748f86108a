"""Every mode of build.yml, really run: what is asserted is which jobs and steps ran."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kernel_ci.hub.server import running
from tests.workflows.harness import Caller, Run

HERE = "*-cpu-x86_64-linux"
VARIANT = "tvm-ffi01-cpu-x86_64-linux"
RELU = f"relu-tvm-ffi/{VARIANT}"

BENCHMARK = """
import numpy as np
from kernels.benchmark import Benchmark


class Relu(Benchmark):
    seed = 1

    def setup(self):
        self.x = np.random.rand(1000).astype(np.float32)
        self.out = np.empty_like(self.x)

    def benchmark_relu(self):
        pass
        self.kernel.relu(self.x, out=self.out)

    def verify_relu(self):
        return np.maximum(self.x, 0)
"""


def calls_build(*inputs: str, on: str = "[push, pull_request]") -> str:
    """Return a caller's workflow with inputs, given as lines."""
    lines = "".join(f"\n      {line}" for line in inputs)
    return f"""
on: {on}
permissions: {{}}
jobs:
  kernels:
    permissions:
      contents: read
    uses: OWNER/kernel-ci/.github/workflows/build.yml@v1
    with:{lines or " {}"}
"""


def only_here(*inputs: str) -> str:
    # Running under many releases of tvm-ffi takes long, and has tests of its own.
    return calls_build(f'only: "{HERE}"', "runtimes: none", *inputs)


def pull_request(*, fork: bool, base: str = "", head: str = "f" * 40) -> dict[str, Any]:
    head_repository = "stranger/caller" if fork else "acme/caller"
    return {
        "pull_request": {
            "number": 7,
            "head": {"sha": head, "repo": {"full_name": head_repository}},
            "base": {"sha": base, "repo": {"full_name": "acme/caller"}},
        }
    }


def refused(run: Run) -> None:
    """Assert that the gate ran and refused."""
    assert run.exit_code != 0
    assert run.job("gate").outcome("kernel-ci github gate") == "failure"


def test_green(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(only_here())
    caller.commit()

    run = caller.run()

    assert run.exit_code == 0, run
    assert {(job.name, job.cell, job.result) for job in run.jobs} == {
        ("plan", None, "success"),
        ("build-0", RELU, "success"),
        ("test-0", RELU, "success"),
        ("gate", None, "success"),
    }
    assert run.job("build-0").outcome("exec kernel-ci github build") == "success"
    assert run.job("test-0").outcome("exec kernel-ci github test") == "success"
    assert run.job("gate").outcome("kernel-ci github gate") == "success"
    verdict = run.verdict()
    assert verdict["accepted"]
    assert verdict["run"] == "github-4711-1"
    assert verdict["cells"][0]["counts"]["passed"] == 4
    # What people see.
    assert "Verdict: accepted" in run.summary
    assert f"`{RELU}` | ok | ok | {verdict['cells'][0]['counts']['passed']} passed" in run.summary
    assert "::add-matcher::" in "\n".join(run.job("build-0").log)
    # The compiler cache was asked for by a key with the exact release of tvm-ffi.
    (request,) = [json.loads(line) for line in (caller.store / "caches.jsonl").open()]
    plan = json.loads(next(caller.store.glob("artifacts/*.plan/plan.json")).read_text())
    assert f"tvm-ffi-{plan['cells'][0]['tvm_ffi']}-" in request["KEY"]
    assert request["KEY"].startswith(request["RESTORE"])


@pytest.mark.parametrize("raises", [False, True])
def test_required_benchmarks(caller: Caller, raises: bool) -> None:
    kernel = caller.kernel()
    (kernel / "kernel-ci.toml").write_text("[bench]\nrequired = true\n")
    benchmark = BENCHMARK.replace("pass", 'raise ValueError("broken")') if raises else BENCHMARK
    (kernel / "benchmarks").mkdir()
    (kernel / "benchmarks" / "benchmark_relu.py").write_text(benchmark)
    caller.workflow(only_here())
    caller.commit()

    with running(caller.scratch / "hub") as url:
        run = caller.run(environment={"HF_ENDPOINT": url})

    test = run.job("test-0")
    if raises:
        refused(run)
        assert test.outcome("exec kernel-ci github test") == "failure"
        # The tests went well and are told to have.
        assert "bench: there is no result" in run.reasons()
        assert "test:" not in run.reasons()
        assert "ValueError: broken" in "\n".join(test.log)
    else:
        assert run.exit_code == 0, run
        assert "does not exist" in run.verdict()["cells"][0]["bench"][0]
        assert "relu" in "\n".join(test.log)


def test_failing_legs(caller: Caller) -> None:
    """One kernel does not compile, one fails its test; the third is still built and proved."""
    caller.kernel("good")
    broken = caller.kernel("broken") / "cpu" / "relu_cpu.cc"
    broken.write_text(broken.read_text() + "\nint Missing() { return nowhere; }\n")
    wrong = caller.kernel("wrong") / "tests" / "test_wrong.py"
    wrong.write_text("def test_wrong(kernel):\n    assert 1 == 2, 'as it should be'\n")
    caller.workflow(only_here())
    caller.commit()

    run = caller.run()

    refused(run)
    built = {
        job.cell: job.outcome("exec kernel-ci github build")
        for job in run.jobs
        if job.name == "build-0"
    }
    assert built == {
        f"broken/{VARIANT}": "failure",
        f"good/{VARIANT}": "success",
        f"wrong/{VARIANT}": "success",
    }
    tested = {
        job.cell: job.outcome("exec kernel-ci github test")
        for job in run.jobs
        if job.name == "test-0"
    }
    assert tested == {
        f"broken/{VARIANT}": "failure",
        f"good/{VARIANT}": "success",
        f"wrong/{VARIANT}": "failure",
    }
    proved = {cell["id"]: cell["proved"] for cell in run.verdict()["cells"]}
    assert proved == {
        f"broken/{VARIANT}": False,
        f"good/{VARIANT}": True,
        f"wrong/{VARIANT}": False,
    }
    # A compiler's message, for the matcher; a failed test, at its line; the way to do it again.
    log = "\n".join(run.job("build-0", f"broken/{VARIANT}").log)
    assert re.search(r"kernels/broken/cpu/relu_cpu\.cc:\d+:\d+: error: .*nowhere", log)
    log = "\n".join(run.job("test-0", f"wrong/{VARIANT}").log)
    assert "::error file=kernels/wrong/tests/test_wrong.py,line=2," in log
    assert f"kernel-ci pipeline kernels/wrong --only {VARIANT}" in run.summary
    assert "as it should be" in run.summary


def test_leg_without_runner_never_runs(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(only_here("runners: |", "  [test]", f'  "{HERE}" = "self-hosted lab"'))
    caller.commit()

    run = caller.run()

    refused(run)
    assert run.ran() == {"plan", "build-0", "gate"}
    assert [(job.name, job.matrix["runner"]) for job in run.skipped] == [
        ("test-0", ["self-hosted", "lab"])
    ]
    assert run.reasons() == (
        f"{RELU}: audit: there is no receipt; the stage did not run\n"
        f"{RELU}: test: there is no receipt; the stage did not run"
    )


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(
            """
for path in folder.glob("*.cell-test.*/*/receipts/*/test.json"):
    receipt = json.loads(path.read_text())
    path.write_text(json.dumps(receipt | {"digest": "sha256:" + 64 * "0"}))
""",
            "test: the variant directory is not the one that the receipt is about",
            id="receipt",
        ),
        pytest.param(
            """
for path in folder.glob("*.cell-build.*/*/build/*/*.so"):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
""",
            "build: the variant directory is not the one that the receipt is about",
            id="library",
        ),
    ],
)
def test_tampered(caller: Caller, script: str, reason: str) -> None:
    caller.kernel()
    caller.workflow(only_here())
    caller.commit()
    caller.before("gate", script)

    run = caller.run()

    assert run.job("test-0").result == "success"
    refused(run)
    assert reason in run.reasons()


def test_replaced_plan(caller: Caller) -> None:
    """A job replaces the plan by one that wants less; its id came another way."""
    caller.kernel()
    caller.workflow(only_here())
    caller.commit()
    caller.before(
        "gate",
        """
from kernel_ci.plan import Plan
path = next(folder.glob("*.plan/plan.json"))
plan = Plan.read(path)
plan = plan.model_copy(update={"allowed_skips": ("*",)})
plan.model_copy(update={"id": plan.computed_id()}).write(path)
""",
    )

    run = caller.run()

    refused(run)
    assert "is not the plan of this run" in run.text


def test_receipt_of_an_earlier_attempt(caller: Caller) -> None:
    """The second attempt's test never runs; the first one's receipt lies in its place."""
    caller.kernel()
    caller.workflow(only_here("runners: |", "  [test]", f'  "{HERE}" = "lab"'))
    caller.commit()
    first = caller.run(runners=("ubuntu-24.04", "lab"))
    assert first.exit_code == 0, first.text
    script = """
names = {path.name.split(".")[1] for path in folder.glob("kernel-ci.*.plan")}
first = next(folder.glob("*.cell-test.*"))
(second,) = names - {first.name.split(".")[1]}
shutil.copytree(first, folder / first.name.replace(first.name.split(".")[1], second))
"""
    caller.before("gate", script)

    run = caller.run(attempt=2)

    refused(run)
    assert "test-0" not in run.ran()
    assert "the receipt is of another run (github-4711-1, not github-4711-2)" in run.text


def test_cancelled_leg(caller: Caller) -> None:
    """The gate of a cancelled run judges all the same, and refuses."""
    slow = caller.kernel() / "tests" / "test_slow.py"
    slow.write_text("import time\n\ndef test_slow(kernel):\n    time.sleep(120)\n")
    caller.workflow(only_here())
    caller.commit()

    run = caller.run(cancel_at="exec kernel-ci github test")

    assert run.job("build-0").result == "success"
    assert run.job("test-0").outcome("exec kernel-ci github test") == "failure"
    refused(run)
    assert f"{RELU}: test: there is no receipt; the stage did not run" in run.reasons()


def test_nothing_selected(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(calls_build('only: "*-cpu-x86_64-beos"'))
    caller.commit()

    run = caller.run()

    assert run.job("plan").outcome("kernel-ci github plan") == "failure"
    assert run.ran() == {"plan", "gate"}
    refused(run)
    assert "'*-cpu-x86_64-beos' matches no variant" in run.text
    assert "there is no plan, so nothing is proved" in run.text


def test_changed_only(caller: Caller) -> None:
    first, second = caller.kernel("first"), caller.kernel("second")
    caller.workflow(only_here("changed-only: true"))
    base = caller.commit()
    with (second / "cpu" / "relu_cpu.cc").open("a") as file:
        file.write("\n// touched\n")
    assert first.is_dir()
    caller.write("docs/about.md", "no part of any kernel")
    head = caller.commit()

    run = caller.run("pull_request", pull_request(fork=False, base=base, head=head))

    assert run.exit_code == 0, run
    assert run.cells("build-0") == run.cells("test-0") == {f"second/{VARIANT}"}
    assert [cell["id"] for cell in run.verdict()["cells"]] == [f"second/{VARIANT}"]
    assert "kernels touched: kernels/second" in run.summary

    caller.write("docs/about.md", "still no part of any kernel")
    last = caller.commit()
    run = caller.run("pull_request", pull_request(fork=False, base=head, head=last))

    assert run.exit_code == 0, run
    assert run.ran() == {"plan", "gate"}
    assert "nothing to prove" in run.summary


def test_three_hundred_cells(caller: Caller) -> None:
    """No cell is dropped: two matrices hold them, and the gate misses each that did not run."""
    for number in range(150):
        caller.kernel(f"k{number:03}")
    # A runner that act does not have: it lists the legs, and there is nothing to wait for.
    lab = ("runners: |", "  [build]", '  "*" = "lab"', "  [test]", '  "*" = "lab"')
    caller.workflow(calls_build('only: "*-cpu-*-linux"', *lab))
    caller.commit()

    run = caller.run()

    expected = {
        f"k{number:03}/tvm-ffi01-cpu-{arch}-linux"
        for number in range(150)
        for arch in ("x86_64", "aarch64")
    }
    for stage in ("build", "test"):
        first, second = (
            [job.cell for job in run.skipped if job.name == f"{stage}-{number}"]
            for number in range(2)
        )
        assert (len(first), len(second)) == (256, 44)
        assert {*first, *second} == expected
    refused(run)
    assert {cell["id"] for cell in run.verdict()["cells"] if not cell["proved"]} == expected


def test_code_of_a_fork_stays_off_own_runners(caller: Caller) -> None:
    caller.kernel("hosted")
    caller.kernel("lab")
    caller.workflow(
        only_here("runners: |", "  [test]", f'  "lab/{HERE}" = "self-hosted"'),
    )
    caller.commit()
    runners = ("ubuntu-24.04", "self-hosted")

    run = caller.run("pull_request", pull_request(fork=True), runners=runners)

    refused(run)
    assert run.cells("build-0") == {f"hosted/{VARIANT}", f"lab/{VARIANT}"}
    assert run.cells("test-0") == {f"hosted/{VARIANT}"}
    assert "waits for a maintainer" in run.summary
    proved = {cell["id"]: cell["proved"] for cell in run.verdict()["cells"]}
    assert proved == {f"hosted/{VARIANT}": True, f"lab/{VARIANT}": False}


def test_pull_request_target_is_refused(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(calls_build(on="pull_request_target"))
    caller.commit()

    run = caller.run("pull_request_target", pull_request(fork=True))

    assert run.ran() == {"plan", "gate"}
    refused(run)
    assert "kernels are not built on pull_request_target" in run.text


def test_runner_of_nobody_is_told_at_once(caller: Caller) -> None:
    caller.kernel()
    caller.workflow(calls_build("tier: quick"))
    caller.commit()

    run = caller.run()

    assert run.ran() == {"plan", "gate"}
    assert "these variants need a runner of your own, and none is named" in run.text
