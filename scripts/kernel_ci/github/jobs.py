"""Testing a cell on Hugging Face's hardware: a job per cell, and its receipt brought back.

The job gets a payload (the repository at the planned commit, the built variant, this very
kernel-ci as a wheel) from a private dataset, as a mounted volume, and prints its receipt
among its logs. No token enters it: what it runs is a kernel's code.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_ci.build import package
from kernel_ci.errors import InfrastructureError, InputError
from kernel_ci.github import actions
from kernel_ci.github.retry import retry
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.plan import FILE as PLAN_FILE
from kernel_ci.plan import Cell, Plan
from kernel_ci.receipts import Receipt
from kernel_ci.runners import HF_JOBS

if TYPE_CHECKING:
    from huggingface_hub import HfApi, JobInfo

#: The dataset of a namespace that payloads go through.
DATASET = "kernel-ci-jobs"
#: Where a job sees it, and what it runs there.
MOUNT = "/kernel-ci"
SCRIPT = Path(__file__).with_name("job.sh")
#: Begins each line of a job's log that is a part of the receipt, in base64.
MARK = "kernel-ci-receipt:"
#: Seconds that a job may take.
TIMEOUT = 3600


def test_on_jobs(plan: Plan, cell: Cell, folder: Path) -> Receipt:
    """Test a cell's variant directory in a job and leave the job's receipt.

    Args:
        plan: The plan.
        cell: The cell; its test runner is `hf-jobs:<flavour>`.
        folder: The run's folder.

    Returns:
        The receipt.

    Raises:
        InputError: There is no token, it may not start jobs, or the sources are not committed.
        InfrastructureError: The job ended without a receipt, or with one of something else.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not os.environ.get("HF_TOKEN"):
        raise InputError(
            "a job on Hugging Face needs a token",
            where=cell.id,
            fix="pass one that may start jobs: secrets: HF_TOKEN",
        )
    # No Xet: what is sent is small, and sent once.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    api = HfApi(token=os.environ["HF_TOKEN"])
    # Only the start is tried again: a job that has run is paid for, and decides.
    job, namespace = retry(lambda: _start(api, plan, cell, folder))
    print(f"job {job.url} on {job.flavor}", flush=True)
    try:
        text = _follow(api, job.id, namespace)
        stage = api.wait_for_job(job.id, timeout=TIMEOUT, namespace=namespace).status.stage
    except BaseException as error:
        # Nobody waits for it any more, and it costs money.
        with suppress(HfHubHTTPError, httpx2.HTTPError):
            api.cancel_job(job_id=job.id, namespace=namespace)
        if isinstance(error, (HfHubHTTPError, httpx2.HTTPError, TimeoutError)):
            raise InfrastructureError(
                f"the job cannot be followed, and was cancelled: {error}",
                where=cell.id,
                fix=f"see {job.url}",
            ) from None
        raise
    receipt = read_receipt(text, plan, cell, folder)
    if receipt is None:
        raise InfrastructureError(
            f"the job ended ({stage}) and left no receipt", where=cell.id, fix=f"see {job.url}"
        )
    receipt.write(receipt_file(folder, cell, "test"))
    return receipt


def _start(api: HfApi, plan: Plan, cell: Cell, folder: Path) -> tuple[JobInfo, str]:
    """Send what a cell's test needs, start its job, and return that with its namespace."""
    import httpx2
    from huggingface_hub import Volume
    from huggingface_hub.errors import HfHubHTTPError

    try:
        namespace = actions.text("HF_NAMESPACE") or str(api.whoami()["name"])
        dataset = f"{namespace}/{DATASET}"
        name = f"{plan.id.removeprefix('sha256:')[:16]}-{cell.id.replace('/', '.')}.tar.gz"
        with tempfile.TemporaryDirectory(prefix="kernel-ci-job-") as scratch:
            payload = make_payload(plan, cell, folder, Path(scratch))
            api.create_repo(dataset, repo_type="dataset", private=True, exist_ok=True)
            api.upload_file(
                path_or_fileobj=payload,
                path_in_repo=name,
                repo_id=dataset,
                repo_type="dataset",
                commit_message=f"{plan.run}: {cell.id}",
            )
        job = api.run_job(
            image=actions.text("HF_IMAGE", "python:3.12"),
            command=["bash", "-c", SCRIPT.read_text(encoding="utf-8")],
            env={
                "PAYLOAD": f"{MOUNT}/{name}",
                "CELL": cell.id,
                "RECEIPT": f"{cell.kernel}/receipts/{cell.variant}/test.json",
                "PACKAGES": actions.text("PACKAGES"),
                "MARK": MARK,
            },
            flavor=cell.test_runner[0].removeprefix(HF_JOBS),
            timeout=TIMEOUT,
            namespace=namespace,
            labels={"kernel-ci": plan.run},
            volumes=[Volume(type="dataset", source=dataset, mount_path=MOUNT, read_only=True)],
        )
    except (HfHubHTTPError, httpx2.HTTPError) as error:
        raise _explained(error, cell) from None
    return job, namespace


def make_payload(plan: Plan, cell: Cell, folder: Path, scratch: Path) -> Path:
    """Return a tar file with everything that the test of a cell needs.

    Args:
        plan: The plan.
        cell: The cell.
        folder: The run's folder.
        scratch: An empty folder.

    Raises:
        InputError: The planned sources are not in git, or not committed.
    """
    source = plan.kernel(cell.kernel).source
    if source.commit is None or source.dirty:
        raise InputError(
            "only what is committed can be tested in a job", where=cell.id, fix="commit it"
        )
    top = Path(_git(Path(), "rev-parse", "--show-toplevel").strip())
    tree = scratch / "payload"
    tree.mkdir()
    # The planned commit alone, with its identity, which the test stage asks for.
    repository = tree / "repository"
    _git(Path(), "init", "-q", str(repository))
    _git(repository, "fetch", "-q", "--depth", "1", top.as_uri(), source.commit)
    _git(repository, "checkout", "-q", "--detach", "FETCH_HEAD")
    (tree / "prefix").write_text(_git(Path(), "rev-parse", "--show-prefix").strip() or ".")
    plan.write(tree / "run" / PLAN_FILE)
    shutil.copytree(variant_directory(folder, cell), variant_directory(tree / "run", cell))
    write_wheel(tree)
    payload = scratch / "payload.tar.gz"
    with tarfile.open(payload, "w:gz") as archive:
        archive.add(tree, arcname=".")
    return payload


def write_wheel(folder: Path) -> Path:
    """Write the kernel-ci that is running as a wheel, and return it.

    The job must run the same code, which is on no index while it is being worked on.
    """
    installed = distribution("kernel-ci")
    root = Path(__file__).parents[1]
    info = f"kernel_ci-{installed.version}.dist-info"
    contents = {
        f"kernel_ci/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    contents[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    contents[f"{info}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: kernel-ci\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / f"kernel_ci-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return wheel


def read_receipt(log: str, plan: Plan, cell: Cell, folder: Path) -> Receipt | None:
    """Return the receipt in a job's log, None where there is none.

    Raises:
        InfrastructureError: It is broken, or not about what was sent.
    """
    parts = [line.partition(MARK)[2].strip() for line in log.splitlines() if MARK in line]
    if not parts:
        return None
    try:
        text = base64.b64decode("".join(parts), validate=True)
        found = Receipt.model_validate_json(text)
    except ValueError as error:
        raise InfrastructureError(f"the job's receipt is broken: {error}", where=cell.id) from None
    expected = (plan.id, plan.run, cell.id, "test", package.digest(variant_directory(folder, cell)))
    if (found.plan, found.run, found.cell, found.stage, found.digest) != expected:
        raise InfrastructureError("the job's receipt is about something else", where=cell.id)
    return found


def _follow(api: HfApi, job: str, namespace: str) -> str:
    """Print a job's log as it comes, and return all of it."""
    lines = []
    for line in api.fetch_job_logs(job_id=job, follow=True, namespace=namespace):
        lines.append(line)
        if MARK not in line:
            print(line, flush=True)
    return "\n".join(lines)


def _explained(error: Exception, cell: Cell) -> InputError | InfrastructureError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 402, 403):
        return InputError(
            f"Hugging Face refuses the job ({status}): {str(error).splitlines()[0]}",
            where=cell.id,
            fix="use a token that may write and start jobs in a namespace that pays for them",
        )
    return InfrastructureError(
        f"Hugging Face did not take the job: {error}", where=cell.id, fix="try again later"
    )


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InfrastructureError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
