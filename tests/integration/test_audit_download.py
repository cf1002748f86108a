"""The audit of what users have: a download from a Hub, and kernels that others built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_ci.audit.dynamic import Suite, audit_dynamic
from kernel_ci.audit.variant import audit
from tests import probes
from tests.helpers import HOST_VARIANT, REFERENCE, Run, kernel_ci

LOAD = """
import kernels
kernel = kernels.get_kernel(
    "kernel-ci/relu-tvm-ffi", version=1, backend="cpu", trust_remote_code=True
)
print(kernel.__file__)
"""


@pytest.fixture(scope="module")
def download(reference_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the snapshot folder that the real client made of the published kernel."""
    cache = tmp_path_factory.mktemp("cache")
    server = subprocess.Popen(
        [sys.executable, "-m", "kernel_ci", "hub", "serve", reference_run.hub, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        done = subprocess.run(
            [sys.executable, "-B", "-c", LOAD],
            cwd=cache,
            env={**os.environ, "HF_ENDPOINT": url[0], "HF_HUB_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.terminate()
        server.wait(timeout=20)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).parents[2]


def test_download_is_made_of_links(download: Path) -> None:
    library = next((download / "build" / HOST_VARIANT).glob("*.so"))
    assert library.is_symlink()
    assert library.resolve().suffix == ""


def test_download_passes(download: Path) -> None:
    for path in (download, download / "build", download / "build" / HOST_VARIANT):
        report = audit(path)
        assert [f for f in report.findings if f.level != "note"] == []
        assert report.all_libraries()[0].window.headers is not None


def test_download_can_be_run(download: Path) -> None:
    suite = Suite(REFERENCE / "tests")
    report = audit_dynamic(download, "newest", suite=suite)
    assert report.ok
    assert len(report.dynamic[0].verified) == 1
    # What the audit ran left nothing behind.
    assert not list(download.rglob("__pycache__"))


def test_changed_download_fails(download: Path, tmp_path: Path) -> None:
    copy = tmp_path / "models" / "snapshots" / "commit" / "build" / HOST_VARIANT
    copy.mkdir(parents=True)
    for file in (download / "build" / HOST_VARIANT).iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "_ops.py").write_text("import os\n")
    done = kernel_ci("audit", copy, "--json")
    assert done.status == 1
    checks = {f["check"] for f in json.loads(done.out)["findings"] if f["level"] == "error"}
    assert checks == {"digest"}


def test_link_that_leads_elsewhere(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.PLAIN)
    directory = probes.assemble(tmp_path / "repository" / "snapshots" / "commit", library)
    file = directory / f"{probes.IDENTITY}.so"
    file.rename(tmp_path / "elsewhere.so")
    file.symlink_to(tmp_path / "elsewhere.so")
    found = [f for f in audit(directory).findings if f.level == "error"]
    assert [(f.check, f.where) for f in found] == [("layout", file.name)]


def test_kernel_of_other_builders(forge: Path, tmp_path: Path) -> None:
    # As kernel-builder leaves it: no stamp, nothing stated, no check of the runtime.
    library = probes.compile_library(forge, probes.CHECKED, "-Wl,-z,nodelete", stamped=None)
    provenance = {"kernel-builder": {"version": "0.16.0"}}
    directory = probes.assemble(tmp_path, library, floor=None, provenance=provenance)
    report = audit_dynamic(directory)
    levels = {finding.check: finding.level for finding in report.findings}
    assert levels == {"stamp": "warning", "window": "note", "runtime": "note"}
    assert report.all_libraries()[0].window.floor == "0.1.0"
    runs = report.dynamic[0].runs
    assert (runs[0].version, runs[-1].version) == ("0.1.0", probes.NEWEST)
    assert {run.outcome for run in runs} == {"passed"}
    assert report.dynamic[0].verified == ()  # nothing checked its results
