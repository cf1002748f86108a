"""Frameworks that are installed beside a kernel are not part of its dynamic audit.

An old tvm-ffi compiles an addon for torch when it is imported; 0.1.0 does so whatever its
environment says. A stand-in for torch that ends the process when it is imported shows
whether anything imports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci import tvm_ffi
from kernel_ci.audit import runtime_plugin

OLD = "0.1.0"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an old tvm-ffi, and with a torch that must not be imported."""
    runtime = tvm_ffi.runtime(OLD)
    (tmp_path / "frameworks").mkdir()
    (tmp_path / "frameworks" / "torch.py").write_text("import os\nos._exit(99)\n")
    paths = os.pathsep.join([str(runtime), str(tmp_path / "frameworks")])
    return {**os.environ, "PYTHONPATH": paths, runtime_plugin.RUNTIME: str(runtime)}


def test_probe(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernel_ci.audit.runtime_probe", str(tmp_path / "none.so")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    steps = [json.loads(line)["step"] for line in done.stdout.splitlines()]
    assert steps == ["runtime", "refused"]


@pytest.mark.parametrize("kept", [False, True], ids=["hidden", "kept"])
def test_plugin(environment: dict[str, str], tmp_path: Path, kept: bool) -> None:
    # A suite that cannot do without the framework gets it, but tvm-ffi does not.
    test = (
        "def test_it():\n    import torch\n    assert torch is conftest.torch\n"
        if kept
        else "import pytest\n"
        "def test_it():\n"
        "    with pytest.raises(ImportError):\n"
        "        import torch\n"
    )
    if kept:
        # pytest loads it before it configures plugins; upstream's import everything there.
        (tmp_path / "frameworks" / "torch.py").write_text(
            "import os, sys\n"
            "if getattr(sys.modules['tvm_ffi'].__spec__, '_initializing', False):\n"
            "    os._exit(99)\n"
        )
        (tmp_path / "conftest.py").write_text("import tvm_ffi\nimport torch\n")
        test = f"import conftest\n{test}"
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", runtime_plugin.__name__]
    if kept:
        environment[runtime_plugin.FRAMEWORKS] = "1"
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
