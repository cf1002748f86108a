"""What `kernel-ci init` writes passes as it is: at a desk, and its workflow on GitHub."""

from __future__ import annotations

import re

from tests.helpers import kernel_ci
from tests.workflows.harness import USES, Caller
from tests.workflows.test_build import VARIANT, pull_request


def test_init(caller: Caller) -> None:
    kernel = caller.folder / "my-kernel"
    done = kernel_ci("init", "my-kernel", "--repo-id", "acme/my-kernel", cwd=caller.folder)
    assert done.status == 0, done.err
    workflow = caller.folder / ".github" / "workflows" / "kernels.yml"
    text = workflow.read_text()
    # As it is, but for who hosts kernel-ci.
    assert text.count("kernel-ci/kernel-ci/") == 2
    workflow.write_text(text.replace("kernel-ci/kernel-ci/", f"{USES}/"))
    base = caller.commit()

    # The command of its README.
    (command,) = re.findall(r"^kernel-ci (pipeline .*)$", (kernel / "README.md").read_text(), re.M)
    words = command.replace("'", "").split()
    done = kernel_ci(*words, "-o", caller.scratch / "out", cwd=caller.folder)
    assert done.status == 0, done.out + done.err

    run = caller.run("pull_request", pull_request(fork=True, base=base, head=base))

    assert run.exit_code == 0, run
    assert run.ran() == {"plan", "build-0", "test-0", "gate"}
    (cell,) = run.verdict()["cells"]
    assert (cell["id"], cell["proved"]) == (f"my-kernel/{VARIANT}", True)
    assert cell["counts"]["failed"] == 0
    assert cell["counts"]["passed"] > 10
