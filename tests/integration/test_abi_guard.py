"""The check in `_ops.py` under real releases of tvm-ffi."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci import abi, tvm_ffi
from kernel_ci.abi import guard
from tests import probes

LOAD = "import sys; sys.path.insert(0, sys.argv[1]); import _ops; print(_ops.ops is not None)"


def load(directory: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Import a variant's `_ops.py` under a release."""
    return subprocess.run(
        [sys.executable, "-B", "-c", LOAD, str(directory)],
        env={**os.environ, "PYTHONPATH": str(tvm_ffi.runtime(version))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "good", "bad", "said"),
    [
        (probes.LIST, ("0.1.9", "0.1.15.post2"), "0.1.8.post2",
         'Run: pip install "apache-tvm-ffi>=0.1.9,<0.2"'),
        (probes.MODULE, ("0.1.0", "0.1.13.post2"), "0.1.13",
         'Run: pip install "apache-tvm-ffi>=0.1.0,<0.2,!=0.1.13,!=0.1.13.post0"'),
        (probes.JSON, ("0.1.0", "0.1.12"), "0.1.13",
         'Run: pip install "apache-tvm-ffi>=0.1.0,<=0.1.12"'),
    ],
    ids=["floor", "hole", "end"],
)  # fmt: skip
def test_runtimes_outside_the_window_are_refused(
    source: str, good: tuple[str, ...], bad: str, said: str, forge: Path, tmp_path: Path
) -> None:
    from kernel_ci.audit.variant import audit

    library = probes.compile_library(forge, source)
    judged = audit(library).libraries[0].window
    window = abi.runtime_window(judged, probes.HEADERS)
    directory = probes.assemble(tmp_path, library)
    ops = directory / "_ops.py"
    ops.write_text(guard.source("probe", window) + "\n" + ops.read_text())
    for version in good:
        done = load(directory, version)
        assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    done = load(directory, bad)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"ImportError: probe cannot use the installed apache-tvm-ffi {bad}: ")
    assert said in last
