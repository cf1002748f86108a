"""Running suites of all kinds against a real variant: what counts as a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.testing.suite import SuiteResult, run_suite
from tests.helpers import HOST_VARIANT, Run

GOOD = "def test_good(kernel):\n    assert kernel.relu is not None\n"


def run(reference_run: Run, tmp_path: Path, *files: str) -> SuiteResult:
    tests = tmp_path / "kernel" / "tests"
    tests.mkdir(parents=True)
    for number, content in enumerate(files):
        (tests / f"test_{number}.py").write_text(content)
    variant = (reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT).resolve()
    return run_suite(tests, backend="cpu", variant=variant, repo_id="org/name")


def test_good(reference_run: Run, tmp_path: Path) -> None:
    result = run(reference_run, tmp_path, GOOD)
    assert result.passed, result.output
    assert result.counts.passed == 1


@pytest.mark.parametrize(
    ("suite", "finding"),
    [
        ("", "no test was run"),
        ("def test_it(kernel):\n    assert False, 'wrong'\n", "test_0.py::test_it: "),
        ("import nothing_like_this\n", "test_0.py: "),
        ("def test_it(:\n", "test_0.py: "),
        ("import pytest\npytest.skip('later', allow_module_level=True)\n", "no test was run"),
        ("import pytest\n@pytest.mark.skip(reason='x')\ndef test_it(kernel): ...\n",
         "no test was run"),
        ("import pytest\n@pytest.mark.needs('no_such_module')\ndef test_it(kernel): ...\n",
         "no test was run"),
        ("import pytest\n@pytest.mark.xfail\ndef test_it(kernel):\n    assert False\n",
         "no test was run"),
        ("import pytest\n@pytest.mark.no_such_fixture\ndef test_it(other): ...\n",
         "test_0.py::test_it: "),
        ("def test_it(): ...\n", "the suite never loaded the variant under test"),
        ("import os\ndef test_it(kernel):\n    os.abort()\n",
         "the process died by SIGABRT after test_0.py::test_it began"),
        ("import os\nos.abort()\n", "the process died by SIGABRT before the first test"),
        ("import atexit, os\ndef test_it(kernel):\n    atexit.register(os.abort)\n",
         "the process died by SIGABRT while ending"),
        ("import os\ndef test_it(kernel):\n    os._exit(0)\n", "the suite did not end"),
        ("import pytest\ndef test_it(kernel):\n    pytest.exit('enough', 0)\n",
         "no test was run"),
        ("import pytest\n@pytest.fixture\ndef broken():\n    yield\n    raise OSError('late')\n"
         "def test_it(kernel, broken): ...\n", "test_0.py::test_it: "),
    ],
    ids=["empty", "fails", "import error", "syntax error", "module skipped", "all skipped",
         "nothing covered", "only expected failures", "missing fixture", "never loads", "dies",
         "dies at import", "dies at exit", "leaves early", "pytest.exit", "teardown fails"],
)  # fmt: skip
def test_no_success(suite: str, finding: str, reference_run: Run, tmp_path: Path) -> None:
    result = run(reference_run, tmp_path, suite)
    assert not result.passed
    assert any(found.startswith(finding) for found in result.findings), result.findings


def test_skips_are_told_apart(reference_run: Run, tmp_path: Path) -> None:
    suite = (
        "import pytest\n"
        "@pytest.mark.skip(reason='later')\ndef test_skipped(kernel): ...\n"
        "@pytest.mark.needs('no_such_module')\ndef test_module(kernel): ...\n"
        "@pytest.mark.needs_memory(10**9)\ndef test_memory(kernel): ...\n"
    )
    result = run(reference_run, tmp_path, GOOD, suite)
    assert result.passed
    assert result.skips == ("test_1.py::test_skipped: later",)
    assert result.not_covered[0] == "test_1.py::test_module: needs no_such_module"
    assert result.not_covered[1].startswith("test_1.py::test_memory: needs 1000000000 GiB")
    assert (result.counts.passed, result.counts.skipped, result.counts.not_covered) == (1, 1, 2)


def test_the_surroundings_do_not_decide(
    reference_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A configuration above the suite, options of the shell, and another kernel by that name.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("LOCAL_KERNELS", "org/name=/nonexistent")
    monkeypatch.setenv("KERNEL_CI_HUB", "org/other@1")
    assert run(reference_run, tmp_path, GOOD).passed


def test_upstream_style_suite_gets_the_variant(reference_run: Run, tmp_path: Path) -> None:
    suite = (
        "import kernels\nimport pytest\n\n"
        "relu = kernels.get_kernel('org/name', version=1, backend='cpu')\n\n"
        "@pytest.mark.kernels_ci\ndef test_it():\n    assert relu.relu is not None\n"
    )
    result = run(reference_run, tmp_path, suite)
    assert result.passed, result.output


def test_no_suite(reference_run: Run, tmp_path: Path) -> None:
    result = run_suite(tmp_path / "tests", backend="cpu", variant=tmp_path)
    assert not result.passed
    assert "there is no test suite" in result.findings[0]
