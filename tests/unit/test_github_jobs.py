"""Jobs on Hugging Face: what is tried again, and what is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi

from kernel_ci.errors import InfrastructureError
from kernel_ci.github import jobs
from kernel_ci.plan import Plan, Selection, plan_folders
from tests.helpers import REFERENCE


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    return plan_folders([REFERENCE], Selection(only=("*-cpu-x86_64-linux",)))


def test_a_hub_that_cannot_be_reached(plan: Plan, tmp_path: Path) -> None:
    api = HfApi(endpoint="http://127.0.0.1:9", token="hf_none")
    with pytest.raises(InfrastructureError, match="did not take the job"):
        jobs._start(api, plan, plan.cells[0], tmp_path)


@pytest.mark.parametrize("error", [TimeoutError("60 s are over"), KeyboardInterrupt()])
def test_a_job_that_nobody_waits_for_is_cancelled(
    error: BaseException, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, cancelled = [], []

    def start(*arguments: Any) -> tuple[Any, str]:
        started.append(arguments)
        return SimpleNamespace(id="1", url="https://example.com/1", flavor="t4"), "me"

    def wait(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(jobs, "_start", start)
    monkeypatch.setattr(jobs, "_follow", lambda *arguments: "")
    monkeypatch.setattr(HfApi, "wait_for_job", wait)
    monkeypatch.setattr(HfApi, "cancel_job", lambda self, **job: cancelled.append(job["job_id"]))
    told = InfrastructureError if isinstance(error, TimeoutError) else type(error)
    with pytest.raises(told):
        jobs.test_on_jobs(plan, plan.cells[0], tmp_path)
    assert (len(started), cancelled) == (1, ["1"])
