"""Every mode of release.yml, and publishing that somebody tries without a green gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflows.harness import Caller, Run
from tests.workflows.test_build import pull_request

RELEASE = """
on: [push, pull_request]
permissions: {}
jobs:
  release:
    permissions:
      contents: read
      id-token: write
    uses: OWNER/kernel-ci/.github/workflows/release.yml@v1
    with:
      hub: HUB
      runners: .github/runners.toml
"""
#: Somebody publishes whatever the gate said; `needs` and `always()` are all that it takes.
ANYHOW = """
on: push
permissions: {}
jobs:
  plan:
    runs-on: ubuntu-24.04
    outputs:
      plan-id: ${{ steps.plan.outputs.plan-id }}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - uses: OWNER/kernel-ci/actions/setup@v1
      - id: plan
        uses: OWNER/kernel-ci/actions/plan@v1
        with:
          only: "*-cpu-x86_64-linux"
  gate:
    needs: plan
    runs-on: ubuntu-24.04
    outputs:
      digest: ${{ steps.gate.outputs.digest }}
    steps:
      - uses: OWNER/kernel-ci/actions/setup@v1
      - id: gate
        uses: OWNER/kernel-ci/actions/gate@v1
        with:
          plan-id: ${{ needs.plan.outputs.plan-id }}
          plan-result: ${{ needs.plan.result }}
  publish:
    needs: [plan, gate]
    if: ${{ always() }}
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - uses: OWNER/kernel-ci/actions/setup@v1
      - uses: OWNER/kernel-ci/actions/publish@v1
        with:
          plan-id: ${{ needs.plan.outputs.plan-id }}
          digest: ${{ needs.gate.outputs.digest }}
          hub: HUB
"""
#: Only this machine's variant can be tested here; the others are declared as built only.
RUNNERS = """
[build-only]
"*-aarch64-*" = "no such machine in this test"
"""


def release(caller: Caller, tag: str, *, event: str = "push") -> Run:
    payload = {"ref": f"refs/tags/{tag}"}
    return caller.run(event, payload, ref=f"refs/tags/{tag}")


@pytest.fixture
def hub(caller: Caller) -> Path:
    folder = caller.scratch / "hub"
    kernel = caller.kernel()
    text = (kernel / "build.toml").read_text()
    backends = 'backends = ["cpu", "cuda", "metal", "rocm", "xpu"]'
    assert backends in text
    parts = text.replace(backends, 'backends = ["cpu"]').split("\n[kernel.")
    kept = [parts[0], *(part for part in parts[1:] if part.startswith("relu_cpu]"))]
    (kernel / "build.toml").write_text("\n[kernel.".join(kept))
    caller.workflow(RELEASE.replace("HUB", str(folder)))
    caller.write(".github/runners.toml", RUNNERS)
    caller.commit()
    return folder


#: Prints the branches of the kernel on a local Hub, nothing where it was never published.
BRANCHES = """
import sys
from pathlib import Path
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from kernel_ci.hub.server import running

with running(Path(sys.argv[1])) as url:
    try:
        api = HfApi(endpoint=url, token=False)
        refs = api.list_repo_refs("acme/relu-tvm-ffi", repo_type="kernel")
    except RepositoryNotFoundError:
        sys.exit()
    print(*sorted(ref.name for ref in refs.branches))
"""


def branches(hub: Path) -> list[str]:
    """Return the branches of the kernel on a local Hub."""
    command = [sys.executable, "-c", BRANCHES, str(hub)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_release(caller: Caller, hub: Path) -> None:
    run = release(caller, "v1.0")

    assert run.exit_code == 0, run
    assert run.ran() == {"tag", "plan", "build-0", "test-0", "gate", "publish"}
    assert run.job("publish").outcome("kernel-ci github publish") == "success"
    assert len(run.cells("build-0")) == 3
    assert "v1" in branches(hub)
    # No cache is asked for.
    assert not (caller.store / "caches.jsonl").exists()


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("v2.0", "build.toml of relu-tvm-ffi says version = 1"),
        ("softmax-v1", "names no kernel of this workflow"),
        ("release-1", "is not a release tag"),
    ],
)
def test_tag_that_does_not_match(caller: Caller, hub: Path, tag: str, message: str) -> None:
    run = release(caller, tag)

    assert run.exit_code != 0
    assert run.job("tag").outcome("kernel-ci github release") == "failure"
    assert "publish" not in run.ran()
    assert "build-0" not in run.ran()
    assert message in run.text
    assert not hub.exists()


def test_rehearsal_on_pull_requests(caller: Caller, hub: Path) -> None:
    caller.write(".github/runners.toml", '[build-only]\n"*-aarch64-*" = "not here"\n')
    caller.commit()

    run = caller.run("pull_request", pull_request(fork=True))

    assert run.exit_code == 0, run
    assert run.ran() == {"tag", "plan", "build-0", "test-0", "gate", "rehearse"}
    assert run.job("rehearse").outcome("kernel-ci github publish") == "success"
    assert branches(hub) == []


def test_red_gate_publishes_nothing(caller: Caller, hub: Path) -> None:
    caller.write(
        "kernels/relu-tvm-ffi/tests/test_wrong.py", "def test_wrong(kernel):\n    assert 0\n"
    )
    caller.commit()

    run = release(caller, "v1.0")

    assert run.exit_code != 0
    assert run.job("gate").outcome("kernel-ci github gate") == "failure"
    assert "publish" not in run.ran()
    assert not hub.exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("", "the gate did not accept this run", id="refused"),
        pytest.param(
            """
path = next(folder.glob("*.run/verdict.json"))
path.write_text(json.dumps(json.loads(path.read_text()) | {"accepted": True}))
""",
            "is not the verdict that the gate gave",
            id="forged",
        ),
        pytest.param(
            "shutil.rmtree(next(folder.glob('*.run')))", "artifact not found", id="no verdict"
        ),
    ],
)
def test_publish_refuses_without_a_green_gate(
    caller: Caller, hub: Path, script: str, message: str
) -> None:
    """Nothing was built, so the gate refuses; a job tries to publish all the same."""
    caller.workflow(ANYHOW.replace("HUB", str(hub)))
    caller.commit()
    caller.before("publish", script)

    run = caller.run()

    assert run.job("gate").outcome("kernel-ci github gate") == "failure"
    publish = run.job("publish")
    assert publish.result == "failure"
    if "artifact" not in message:
        assert publish.outcome("kernel-ci github publish") == "failure"
    assert message in "\n".join(publish.log)
    assert branches(hub) == []
