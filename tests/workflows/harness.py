"""Running the real workflows with `act`, without containers, from a caller's repository.

A `Caller` is a git repository of somebody who uses kernel-ci. `run` gives it an event and
returns what happened: which jobs ran, with which steps, and what people would see. Kernels
are really built, tested, judged and published; only third-party actions are stood in for
(see `doubles/`), and `$/` in our files, which act does not know, becomes the full name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOUBLES = Path(__file__).parent / "doubles"
#: How callers name kernel-ci.
USES = "acme/kernel-ci"
REFERENCE = ROOT / "kernels" / "relu-tvm-ffi"

SHORT_SUITE = """
import numpy as np
import pytest

@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values(kernel, dtype):
    x = np.array([-np.inf, -1, -0.0, 0, 1, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(kernel.relu(x), np.where(np.isnan(x), x, np.maximum(x, 0)))

def test_output_is_used(kernel):
    out = np.full(3, 7, np.float32)
    kernel.relu(np.array([-1, 0, 1], np.float32), out=out)
    assert list(out) == [0, 0, 1]
"""

_USES = re.compile(
    r"^\s*(?:- )?uses: (?P<name>[\w.-]+/[\w.-]+)(?P<path>(?:/[\w./-]+)?)@(?P<ref>\S+)", re.M
)
#: act's line for a step that ended; what it is called may have several lines.
_STEP = re.compile(
    r"(?P<result>Success|Failure) - Main (?P<name>.+?)(?: \[[\d.µmsh]+\])?$", re.DOTALL
)


@dataclass
class Job:
    """One job of a run.

    Attributes:
        name: Its id in the workflow.
        cell: The cell of its matrix, or None.
        result: `success`, `failure`, or None where it has not ended or never began.
        steps: What each step was, with its result, in order.
        log: What its steps printed.
        matrix: The values of its matrix.
    """

    name: str
    cell: str | None
    result: str | None = None
    steps: list[tuple[str, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    matrix: dict[str, Any] = field(default_factory=dict)

    def outcome(self, command: str) -> str:
        """Return how the step ended that ran a command: `success` or `failure`."""
        found = [result for name, result in self.steps if command in name]
        assert found, f"no step of {self.name} ran {command!r}: {self.steps}"
        return found[0]


@dataclass(repr=False)
class Run:
    """What happened.

    Attributes:
        exit_code: The exit code of act.
        jobs: The jobs that ran.
        skipped: The jobs for whose label there is no runner.
        summary: All step summaries.
        text: All that was printed.
        store: The folder of the doubles' artifacts.
    """

    exit_code: int
    jobs: list[Job]
    skipped: list[Job]
    summary: str
    text: str
    store: Path

    def __repr__(self) -> str:
        """Return what a failed assertion should show."""
        jobs = "\n".join(f"  {job.name} {job.cell}: {job.result}" for job in self.jobs)
        return f"exit code {self.exit_code}\n{jobs}\n{self.text[-6000:]}"

    def job(self, name: str, cell: str | None = None) -> Job:
        """Return the one job of a name, and of a cell where it has a matrix."""
        found = [
            job for job in self.jobs if job.name == name and (cell is None or job.cell == cell)
        ]
        assert len(found) == 1, (name, cell, [(job.name, job.cell) for job in self.jobs], self.text)
        return found[0]

    def ran(self) -> set[str]:
        """Return the names of the jobs that ran."""
        return {job.name for job in self.jobs}

    def cells(self, name: str) -> set[str | None]:
        """Return the cells for which a job ran."""
        return {job.cell for job in self.jobs if job.name == name}

    def verdict(self) -> dict[str, Any]:
        """Return the verdict that the gate uploaded."""
        found = list((self.store / "artifacts").glob("kernel-ci.*.run/verdict.json"))
        assert len(found) == 1, found
        verdict: dict[str, Any] = json.loads(found[0].read_text())
        return verdict

    def reasons(self) -> str:
        """Return why cells are not proved, as one text."""
        return "\n".join(
            f"{cell['id']}: {reason}"
            for cell in self.verdict()["cells"]
            for reason in cell["reasons"]
        )


class Caller:
    """The repository of somebody who uses kernel-ci."""

    def __init__(self, folder: Path):
        self.folder = folder / "caller"
        self.scratch = folder
        self.store = folder / "store"
        self.library = folder / "kernel-ci"
        self.folder.mkdir(parents=True)
        (self.store / "artifacts").mkdir(parents=True)
        _copy_library(self.library)
        self._git("init", "-q", "-b", "main", ".")

    def kernel(self, name: str = "relu-tvm-ffi", *, at: str | None = None) -> Path:
        """Add the reference kernel under a name of its own, with a suite that takes a second."""
        target = self.folder / (at or f"kernels/{name}")
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        # The target may be the repository itself.
        shutil.copytree(REFERENCE, target, ignore=ignored, dirs_exist_ok=True)
        shutil.rmtree(target / "tests")
        (target / "tests").mkdir()
        (target / "tests" / "test_short.py").write_text(SHORT_SUITE)
        build = target / "build.toml"
        text = re.sub(r'(?m)^name = ".*"$', f'name = "{name}"', build.read_text(), count=1)
        text = re.sub(r'(?m)^repo-id = ".*"$', f'repo-id = "acme/{name}"', text, count=1)
        build.write_text(text)
        package = target / "tvm-ffi-ext"
        if name != "relu-tvm-ffi":
            (package / "relu_tvm_ffi").rename(package / name.replace("-", "_"))
        return target

    def workflow(self, text: str, name: str = "kernels.yml") -> None:
        """Add a workflow; `OWNER` in it stands for whoever hosts kernel-ci."""
        path = self.folder / ".github" / "workflows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("OWNER/kernel-ci", USES))

    def write(self, name: str, text: str) -> None:
        """Add a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def before(self, job: str, script: str) -> None:
        """Have a script run (`folder` is where artifacts are) before a job gets artifacts."""
        head = "import json, pathlib, shutil, sys\nfolder = pathlib.Path(sys.argv[1])\n"
        (self.store / f"before-{job}.py").write_text(head + script)

    def commit(self, message: str = "work") -> str:
        """Commit everything and return the commit."""
        self._git("add", "-A")
        self._git(
            "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", message
        )
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.folder), *arguments], check=True, capture_output=True, text=True
        ).stdout

    def run(
        self,
        event: str = "push",
        payload: dict[str, Any] | None = None,
        *,
        workflow: str = "kernels.yml",
        attempt: int = 1,
        ref: str | None = None,
        runners: tuple[str, ...] = ("ubuntu-24.04",),
        secrets: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        timeout: float = 300,
        cancel_at: str | None = None,
    ) -> Run:
        """Have an event happen.

        Args:
            event: The event's name.
            payload: Its content.
            workflow: The workflow that it starts.
            attempt: The attempt of the run.
            ref: The ref that the event is about; None leaves it to act.
            runners: Labels that have a runner; act never starts a job with other labels.
            secrets: The repository's secrets.
            environment: Variables of the runners.
            timeout: Seconds until the run counts as hanging.
            cancel_at: Cancel the run when a step begins that runs this.
        """
        file = self.scratch / "event.json"
        file.write_text(json.dumps(payload or {}))
        command = [
            str(Path(sys.executable).with_name("act")),
            event,
            *("--eventpath", str(file)),
            *("--workflows", f".github/workflows/{workflow}"),
            *("--env", "GITHUB_RUN_ID=4711", "--env", f"GITHUB_RUN_ATTEMPT={attempt}"),
            *("--env", "GITHUB_REPOSITORY=acme/caller"),
            *("--action-cache-path", str(self.scratch / "act")),
            *("--concurrent-jobs", "2"),
            *("--no-cache-server", "--json"),
        ]
        if ref is not None:
            command += ["--env", f"GITHUB_REF={ref}", "--env", "GITHUB_REF_TYPE=tag"]
        for label in runners:
            command += ["-P", f"{label}=-self-hosted"]
        for name, value in (secrets or {}).items():
            command += ["--secret", f"{name}={value}"]
        for name, path in self._mapped().items():
            command += ["--local-repository", f"{name}={path}"]
        bin_folder = str(Path(sys.executable).parent)
        variables = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GITHUB_", "RUNNER_", "HF_", "COVERAGE_"))
        }
        variables |= {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "DOUBLES_STORE": str(self.store),
            "KERNEL_CI_PREINSTALLED": "1",
            "HF_HOME": str(self.scratch / "hf"),
            "HF_HUB_OFFLINE": "0",
            **(environment or {}),
        }
        log = self.scratch / "act.log"
        begun = f"Run Main {cancel_at}"
        deadline = time.monotonic() + timeout
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=variables, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                while process.poll() is None:
                    assert time.monotonic() < deadline, f"still running\n{log.read_text()[-6000:]}"
                    if cancel_at is not None and begun in log.read_text():
                        process.send_signal(signal.SIGINT)
                        cancel_at = None
                    time.sleep(0.1)
            finally:
                process.kill()
        return parse(log.read_text(), process.returncode, self.store)

    def _mapped(self) -> dict[str, Path]:
        """Return every action and workflow that is used, with the folder that stands for it."""
        files = [*(self.folder / ".github" / "workflows").glob("*.yml")]
        files += [*self.library.glob("actions/*/action.yml")]
        files += [*(self.library / ".github" / "workflows").glob("*.yml")]
        found = {}
        for path in files:
            for match in _USES.finditer(path.read_text()):
                name, ref = match["name"], match["ref"]
                owner, _, repository = name.partition("/")
                if name == USES:
                    found[f"{name}@{ref}"] = self.library
                elif owner == "actions":
                    found[f"{name}@{ref}"] = self.scratch / "doubles" / repository
        return found


def _copy_library(target: Path) -> None:
    """Copy what GitHub would fetch of kernel-ci, with `$/` as act can read it."""
    shutil.copytree(ROOT / "actions", target / "actions")
    shutil.copytree(ROOT / ".github" / "workflows", target / ".github" / "workflows")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / name, target / name)
    for path in [*target.rglob("*.yml")]:
        text = re.sub(r"uses: \$/(\S+)", rf"uses: {USES}/\1@v1", path.read_text())
        path.write_text(text)
    for action in DOUBLES.glob("*/action.yml"):
        folder = target.parent / "doubles" / action.parent.name
        shutil.copytree(action.parent, folder)
        text = action.read_text().replace("/../store.py", "/store.py")
        (folder / "action.yml").write_text(text)
        shutil.copyfile(DOUBLES / "store.py", folder / "store.py")


def parse(text: str, exit_code: int, store: Path) -> Run:
    """Read what act prints as JSON, one object a line."""
    jobs: dict[tuple[str, str], Job] = {}
    skipped: dict[tuple[str, str], Job] = {}
    summaries: list[str] = []
    plain: list[str] = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            plain.append(line)
            continue
        message = str(entry.get("msg", ""))
        plain.append(f"[{entry.get('job', '')}] {message}".rstrip())
        if "jobID" not in entry:
            continue
        matrix = entry.get("matrix") or {}
        name, cell = entry["jobID"], matrix.get("cell")
        if "Skipping unsupported platform" in message:
            # Said once for each label.
            skipped.setdefault((name, str(cell)), Job(name, cell, matrix=matrix))
            continue
        if "step" not in entry and "jobResult" not in entry:
            continue
        job = jobs.setdefault((entry["job"], str(cell)), Job(name, cell, matrix=matrix))
        if entry.get("raw_output"):
            job.log.append(message.rstrip("\n"))
        elif message.startswith("  ⚙  Summary - "):
            summaries.append(message.removeprefix("  ⚙  Summary - "))
        if entry.get("command") or message.strip().startswith("❗"):
            job.log.append(str(entry.get("raw") or message))
        if (step := _STEP.search(message)) is not None:
            job.steps.append((step["name"], step["result"].lower()))
        if "jobResult" in entry:
            job.result = entry["jobResult"]
    return Run(
        exit_code,
        list(jobs.values()),
        list(skipped.values()),
        "\n".join(summaries),
        "\n".join(plain),
        store,
    )
