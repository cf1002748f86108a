"""`kernel-ci bench` on real builds: a slower one is caught, the same one is not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_ci.bench.document import BenchResult
from tests.conftest import write_tiny
from tests.helpers import HOST_VARIANT, Done, kernel_ci

CELL = f"negate/{HOST_VARIANT}"

#: How many runs of each kind; 10 is what the goal asks for.
RUNS = int(os.environ.get("KERNEL_CI_BENCH_RUNS", "1"))

BENCHMARK = """
import numpy as np
from kernels.benchmark import Benchmark


class Negate(Benchmark):
    seed = 1

    def setup(self):
        self.x = np.random.rand(10_000).astype(np.float32)
        self.out = np.empty_like(self.x)

    def benchmark_base(self):
        self.kernel.negate(self.x, self.out)

    def verify_base(self):
        return -self.x
"""

#: The same kernel, which does everything ten times over in a way that no compiler sees through.
USUAL = """
#include <tvm/ffi/tvm_ffi.h>
static __attribute__((noinline)) void Part(float* out, const float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = -x[i];
}
void negate(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  auto* to = static_cast<float*>(out.data_ptr());
  const auto* from = static_cast<const float*>(x.data_ptr());
  for (int i = 0; i < 10; ++i) Part(to, from, x.size(0));
}
"""
#: 30 % slower.
SLOWER = USUAL.replace("i < 10", "i < 13")


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Return name -> kernel's folder and run's folder, each built from sources of its own."""
    made = {}
    for name, source in (("usual", USUAL), ("slower", SLOWER), ("again", f"{USUAL}// rebuilt\n")):
        root = tmp_path_factory.mktemp(name)
        kernel = write_tiny(
            root / "negate",
            {
                "negate.cc": source,
                "benchmarks/benchmark.py": BENCHMARK,
                "kernel-ci.toml": "[bench]\nslowdown-limit = 1.1\nrequired = true\n",
            },
        )
        run = root / "run"
        done = kernel_ci("pipeline", kernel, "--only", HOST_VARIANT, "-o", run)
        # All is proved but for the benchmark, which the author requires.
        assert done.status == 1, done.out + done.err
        assert "bench: there is no result" in done.out
        made[name] = kernel, run
    return made


def bench(kernel: Path, run: Path, *arguments: str | Path) -> Done:
    return kernel_ci("bench", kernel, "-o", run, *arguments)


def written(run: Path) -> BenchResult:
    return BenchResult.read(run / "negate" / "receipts" / HOST_VARIANT / "bench.json")


@pytest.mark.parametrize("number", range(RUNS))
def test_a_kernel_made_slower_is_caught(builds: dict[str, tuple[Path, Path]], number: int) -> None:
    kernel, run = builds["slower"]
    done = bench(kernel, run, "--against", builds["usual"][1])
    assert done.status == 1, done.out + done.err
    assert "times as long as" in done.out
    ratio = written(run).workloads[0].ratio
    assert ratio is not None
    print(f"slower: {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    judged = kernel_ci("gate", run / "plan.json", run)
    assert judged.status == 1
    assert "bench: benchmark::Negate::base takes 1." in judged.out


@pytest.mark.parametrize("number", range(RUNS))
def test_an_unchanged_kernel_is_not(builds: dict[str, tuple[Path, Path]], number: int) -> None:
    kernel, run = builds["again"]
    done = bench(kernel, run, "--against", builds["usual"][1], "--json")
    assert done.status == 0, done.out + done.err
    (found,) = json.loads(done.out)
    result = written(run)
    assert found == result.model_dump(mode="json")
    assert result.against is not None
    assert result.against.digest != result.digest
    assert result.workloads[0].verified
    ratio = result.workloads[0].ratio
    assert ratio is not None
    print(f"unchanged: {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    judged = kernel_ci("gate", run / "plan.json", run)
    assert judged.status == 0, judged.out


@pytest.fixture
def broken(builds: dict[str, tuple[Path, Path]], tmp_path: Path) -> Callable[[str | None], Done]:
    """Return a function that runs another benchmark script, or none, on a new plan and build."""

    def run(script: str | None) -> Done:
        kernel = tmp_path / "negate"
        shutil.copytree(builds["usual"][0], kernel, ignore=shutil.ignore_patterns("__pycache__"))
        if script is None:
            shutil.rmtree(kernel / "benchmarks")
        else:
            (kernel / "benchmarks" / "benchmark.py").write_text(script)
        return bench(kernel, tmp_path / "out", "--against", builds["usual"][1])

    return run


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        (None, 2, "there is no benchmark*.py"),
        ("x = 1", 2, "there is no benchmark_* method"),
        ("import nowhere", 1, "benchmark.py: ModuleNotFoundError"),
        (BENCHMARK.replace("return -self.x", "return self.x"), 1, "is not what verify_base"),
        (BENCHMARK.replace("self.kernel.negate(self.x, self.out)", "raise OSError('boom')"), 1,
         "Negate::base: OSError: boom"),
        (BENCHMARK.replace("self.kernel.negate(self.x, self.out)", "import os; os._exit(3)"), 1,
         "the process ended with status 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_no_speed(
    broken: Callable[[str | None], Done], script: str | None, status: int, says: str
) -> None:
    done = broken(script)
    assert done.status == status, done.out + done.err
    assert says in done.err
    assert "Traceback" not in done.err


def test_without_a_check_it_says_so(builds: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    kernel = tmp_path / "negate"
    shutil.copytree(builds["usual"][0], kernel, ignore=shutil.ignore_patterns("__pycache__"))
    (kernel / "kernel-ci.toml").unlink()
    script = BENCHMARK.partition("    def verify_base")[0].replace("10_000", "10")
    (kernel / "benchmarks" / "benchmark.py").write_text(f"{script}        print('chatter')\n")
    done = bench(kernel, tmp_path / "out")
    assert done.status == 0, done.out + done.err
    assert "has no verify_*" in done.out


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ("nowhere", "is no folder, and no release"),
        ("a/b@x", "is no folder, and no release"),
        (".", "holds no build of"),
    ],
)
def test_unknown_baselines(builds: dict[str, tuple[Path, Path]], against: str, says: str) -> None:
    done = bench(*builds["usual"], "--against", against)
    assert done.status == 2
    assert says in done.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"backend": {"type": "cuda"}}, "is for cuda"),
        ({"name": "other"}, "is the kernel other"),
        ({"digest": {"files": {}}}, "not those of its digest"),
        ({"digest": 1}, "has no usable metadata.json"),
    ],
)
def test_baselines_that_are_not_comparable(
    builds: dict[str, tuple[Path, Path]], tmp_path: Path, change: dict[str, object], says: str
) -> None:
    other = tmp_path / "variant"
    shutil.copytree(builds["usual"][1] / "negate" / "build" / HOST_VARIANT, other)
    file = other / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    done = bench(*builds["usual"], "--against", other)
    assert done.status == 2
    assert says in done.err


def test_the_published_build_is_compared_with(
    builds: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    hub = tmp_path / "hub"
    kernel, run = (Path(shutil.copytree(it, tmp_path / it.name)) for it in builds["usual"])
    kernel = builds["usual"][0]
    first = bench(kernel, run, "--hub", hub)
    assert first.status == 0, first.out + first.err
    assert "nothing to compare with: kernel-ci-tests/negate@v1" in first.out
    # A first release is accepted, and says that there was nothing to compare with.
    judged = kernel_ci("gate", run / "plan.json", run)
    assert judged.status == 0, judged.out
    assert "nothing to compare with" in judged.out
    published = kernel_ci("publish", run, "--hub", hub)
    assert published.status == 0, published.out + published.err
    slower, slower_run = builds["slower"]
    for options in ([], ["--against", "kernel-ci-tests/negate@1"]):
        done = bench(slower, slower_run, "--hub", hub, *options)
        assert done.status == 1, done.out + done.err
        found = written(slower_run).against
        assert found is not None
        assert found.digest == written(run).digest
