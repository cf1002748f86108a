"""The stages as jobs of a workflow: inputs from the environment, results as artifacts.

What is built, judged and published is the same as at a desk; here is only how a job gets
its part of the work and hands on what came of it. A job's files:

<RUNNER_TEMP>/kernel-ci/plan/        plan.json and legs.json
<RUNNER_TEMP>/kernel-ci/leg/         the cell of a build or test job, laid out as a run's folder
<RUNNER_TEMP>/kernel-ci/proof/       the receipts of a test job
<RUNNER_TEMP>/kernel-ci/artifacts/   what all jobs left, one folder each
<RUNNER_TEMP>/kernel-ci/run/         the run's folder, as the gate puts it together
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from rich.console import Console

from kernel_ci import gate
from kernel_ci.build import Engine
from kernel_ci.documents import canonical_digest
from kernel_ci.errors import InputError, Rejected
from kernel_ci.github import actions, changed, legs, summary
from kernel_ci.github.actions import folder
from kernel_ci.github.collect import collect
from kernel_ci.github.retry import retry
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.plan import FILE as PLAN_FILE
from kernel_ci.plan import Cell, Plan, Selection, plan_folders, read_plan
from kernel_ci.runners import RunnerMap
from kernel_ci.variant import BACKENDS


def plan() -> int:
    """Decide what must exist, and lay it out as jobs."""
    event = actions.read_event()
    _warn_callers()
    kernels = find_kernels(actions.words("KERNELS"))
    notes = []
    if actions.flag("CHANGED_ONLY"):
        kernels, reason = changed.only_touched(kernels, actions.text("BASE") or event.base)
        notes.append(reason)
        actions.annotate("notice", reason, title="kernel-ci: changed-only")
        if not kernels:
            actions.summary("## Plan: nothing to do\n\nNo kernel was touched by this change.\n")
            actions.outputs(plan_id="", nothing="true")
            return 0
    declared = _runner_map(actions.text("RUNNERS"))
    backends = actions.words("BACKENDS")
    for name in backends:
        if name not in BACKENDS:
            raise InputError(
                f"no backend {name!r}", where="backends", fix=f"use: {', '.join(BACKENDS)}"
            )
    engine = actions.choice("ENGINE", get_args(Engine))
    made = plan_folders(
        kernels,
        Selection(
            only=actions.words("ONLY"),
            skip=actions.words("SKIP"),
            build_only=actions.words("BUILD_ONLY"),
            allowed_skips=actions.words("ALLOW_SKIP"),
            backends=backends,
            tier="quick" if actions.choice("TIER", ("full", "quick")) == "quick" else "full",
            runners=declared,
        ),
    )
    laid = legs.lay_out(
        made,
        declared=declared,
        hosted=legs.hosted_labels(),
        fork=event.fork,
        commit=event.head,
        environment=actions.text("FORK_ENVIRONMENT"),
        reviewed=lambda name: _asks_reviewer(event.repository, name),
    )
    here = _fresh("plan")
    made.write(here / PLAN_FILE)
    laid.write(here / legs.FILE)
    from kernel_ci.report import show_plan

    show_plan(_console(), made, explain=True)
    for held in laid.withheld:
        actions.annotate("warning", f"{held.cell}: {held.stage} {held.reason}", title="withheld")
    if engine != "host":
        taken = [cell.id for cell in made.cells if legs.engine_of(cell, engine) == engine]
        notes.append(f"{engine} builds {len(taken)} of {len(made.cells)}: {', '.join(taken)}")
    actions.summary(summary.plan_summary(made, laid, notes))
    values = {"plan_id": made.id, "artifact": legs.artifact(made.id, "plan"), "nothing": "false"}
    for stage, found in (("build", laid.build), ("test", laid.test)):
        for number, matrix in enumerate(legs.matrices(found)):
            values[f"{stage}_{number}"] = json.dumps(matrix, separators=(",", ":"))
    actions.outputs(**values)
    return 0


def names() -> int:
    """Tell the names of the artifacts of a cell, before any is there."""
    plan_id, cell_id = actions.required("PLAN_ID"), actions.text("CELL")
    values = {
        "plan": legs.artifact(plan_id, "plan"),
        "run": legs.artifact(plan_id, "run"),
        "cells": legs.artifact(plan_id, "cell-*"),
    }
    if cell_id:
        values["build"] = legs.artifact(plan_id, "cell-build", cell_id)
        values["test"] = legs.artifact(plan_id, "cell-test", cell_id)
    actions.outputs(**values)
    return 0


def build() -> int:
    """Build one cell."""
    from kernel_ci.build import build_cell
    from kernel_ci.github import cache
    from kernel_ci.report import show_receipt

    made, cell = _planned()
    here = _fresh("leg")
    os.environ.update(cache.launchers(cell.toolchain, os.environ))
    print(f"::group::build {cell.id}", flush=True)
    engine = legs.engine_of(cell, actions.choice("ENGINE", get_args(Engine)))
    receipt = retry(lambda: build_cell(made, cell, here, engine=engine))
    show_receipt(_console(wrap=False), receipt)
    print("::endgroup::", flush=True)
    summary.annotate_receipt(made, cell, receipt)
    return 1 if receipt.outcome == "failed" else 0


def cache_key() -> int:
    """Name the compiler cache of one cell."""
    from kernel_ci.github import cache

    made, cell = _planned()
    found = cache.describe(made, cell)
    actions.outputs(key=found.key, restore_keys=found.prefix, path="\n".join(found.paths))
    return 0


def test() -> int:
    """Audit and test one cell, here or on Hugging Face's hardware, and keep its receipts."""
    from kernel_ci.audit.dynamic import DEFAULT
    from kernel_ci.audit.stage import audit_cell
    from kernel_ci.bench.against import PUBLISHED
    from kernel_ci.bench.document import STAGE as BENCH
    from kernel_ci.bench.report import show_result
    from kernel_ci.bench.stage import bench_cell
    from kernel_ci.report import show_receipt
    from kernel_ci.testing.stage import test_cell

    made, cell = _planned()
    here, proof = folder() / "leg", _fresh("proof")
    if not variant_directory(here, cell).is_dir():
        raise Rejected(
            "there is nothing to test: it was not built", where=cell.id, fix="see its build"
        )
    console = _console(wrap=False)
    runtimes = actions.text("RUNTIMES", DEFAULT)
    receipts = [retry(lambda: audit_cell(made, cell, here, runtimes=runtimes))]
    on_this_runner = cell.evidence == "tested" and not cell.test_runner[0].startswith("hf-jobs:")
    if cell.evidence == "tested":
        print(f"::group::test {cell.id}", flush=True)
        if not on_this_runner:
            from kernel_ci.github.jobs import test_on_jobs

            receipts.append(test_on_jobs(made, cell, here))
        else:
            receipt, result = test_cell(made, cell, here)
            console.print(result.output, markup=False, highlight=False)
            receipts.append(receipt)
        print("::endgroup::", flush=True)
    for receipt in receipts:
        show_receipt(console, receipt)
        summary.annotate_receipt(made, cell, receipt)
        _keep(here, proof, cell, receipt.stage)
    if any(receipt.outcome == "failed" for receipt in receipts):
        return 1
    if on_this_runner and made.kernel(cell.kernel).bench.required:
        # On the machine that tested the variant, and only where the author asked for it.
        print(f"::group::time {cell.id}", flush=True)
        timed = retry(lambda: bench_cell(made, cell, here, baseline=PUBLISHED))
        print("::endgroup::", flush=True)
        show_result(console, timed)
        _keep(here, proof, cell, BENCH)
    return 0


def _keep(here: Path, proof: Path, cell: Cell, stage: str) -> None:
    """Copy what a stage left to what the job brings."""
    target = receipt_file(proof, cell, stage)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(receipt_file(here, cell, stage), target)


def judge() -> int:
    """Judge the run by what its jobs left."""
    from kernel_ci.report import show_verdict

    if actions.text("PLAN_RESULT") != "success":
        actions.outputs(verdict="rejected")
        raise Rejected("there is no plan, so nothing is proved", fix="see the job `plan`")
    if actions.flag("NOTHING"):
        actions.summary("## Verdict: nothing to prove\n\nNo kernel was touched by this change.\n")
        actions.outputs(verdict="nothing")
        return 0
    made, laid = _read_plan(), legs.Legs.read(folder() / "plan" / legs.FILE)
    here = _fresh("run")
    for name in collect(made, folder() / "artifacts", here):
        actions.annotate("warning", f"not part of the plan, left behind: {name}", title="kernel-ci")
    made.write(here / PLAN_FILE)
    verdict = gate.judge(made, gate.collect(made, here))
    verdict.write(here / gate.FILE)
    show_verdict(_console(), made, verdict)
    actions.summary(summary.verdict_summary(made, laid, verdict))
    summary.annotate_verdict(verdict)
    actions.outputs(
        verdict="accepted" if verdict.accepted else "rejected",
        artifact=legs.artifact(made.id, "run"),
        digest=_digest(verdict),
    )
    return 0 if verdict.accepted else 1


def release() -> int:
    """Tell whether what was pushed may be released, and which kernels it names."""
    from kernel_ci.github.tags import release_of
    from kernel_ci.kernel import Kernel

    event = actions.read_event()
    _warn_callers()
    folders = find_kernels(actions.words("KERNELS"))
    kernels = [(path.as_posix(), Kernel.read(path)) for path in folders]
    versions = {kernel.name: kernel.general.version for _, kernel in kernels}
    chosen = release_of(event.tag, versions)
    rehearse = event.tag is None
    paths = [path for path, kernel in kernels if kernel.name in chosen]
    what = "rehearsal, for no tag was pushed" if rehearse else f"release of {event.tag}"
    actions.annotate("notice", f"{what}: {', '.join(sorted(chosen))}", title="kernel-ci: release")
    actions.outputs(kernels=" ".join(paths), publish="false" if rehearse else "true")
    return 0


def publish() -> int:
    """Publish a run that the gate has accepted; always rehearsed on a Hub of its own first."""
    from kernel_ci import cli

    here = folder() / "run"
    made = _read_plan(here)
    # As with the plan: the output is the gate's, the artifact could be any job's. The digests
    # of what is published are in the verdict.
    if _digest(gate.Verdict.read(here / gate.FILE)) != actions.required("DIGEST"):
        raise Rejected(
            "is not the verdict that the gate gave",
            where=here / gate.FILE,
            fix="see which job replaced the artifact",
        )
    words = ["publish", str(here), "--rehearse"]
    hub = actions.text("HUB")
    if hub:
        words += ["--hub", hub]
    if actions.flag("REHEARSE"):
        words.append("--dry-run")
    elif not hub or hub.startswith("https://"):
        _identify(made)
    return cli.main(words)


def _digest(verdict: gate.Verdict) -> str:
    return canonical_digest(verdict.model_dump(mode="json"))


def _identify(made: Plan) -> None:
    """Have the Hub take the job's identity where there is no token.

    Raises:
        InputError: There is neither, or the identity cannot stand for all repositories.
    """
    if os.environ.get("HF_TOKEN"):
        return
    if "ACTIONS_ID_TOKEN_REQUEST_URL" not in os.environ:
        raise InputError(
            "there is neither an identity nor a token to publish with",
            where="permissions",
            fix="add to the job that calls release.yml:\n"
            "    permissions:\n      contents: read\n      id-token: write\n"
            "  or pass a token: secrets: HF_TOKEN",
        )
    repositories = sorted({str(kernel.repo_id) for kernel in made.kernels})
    if len(repositories) > 1:
        # The Hub exchanges an identity for a token of one repository (RFC 8693, `resource`).
        raise InputError(
            f"one identity publishes to one repository, not to {len(repositories)}",
            where="HF_TOKEN",
            fix="tag one kernel, as <kernel>-v<version>, or pass a token: secrets: HF_TOKEN",
        )
    os.environ["HF_OIDC_RESOURCE"] = f"kernels/{repositories[0]}"


STAGES: dict[str, Callable[[], int]] = {
    "plan": plan,
    "names": names,
    "cache-key": cache_key,
    "build": build,
    "test": test,
    "gate": judge,
    "release": release,
    "publish": publish,
}


def find_kernels(patterns: tuple[str, ...]) -> list[Path]:
    """Return the folders of kernels that paths or globs name, relative to the current one.

    Without any: the repository itself where it is a kernel, else all in `kernels/`.

    Raises:
        InputError: A pattern leads out of the repository or matches no kernel.
    """
    if not patterns:
        patterns = (".",) if Path("build.toml").is_file() else ("kernels/*",)
    found: dict[Path, None] = {}
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise InputError(
                f"{pattern!r} leads out of the repository",
                where="kernels",
                fix="name kernels by paths inside it",
            )
        is_glob = any(character in pattern for character in "*?[")
        try:
            paths = sorted(Path().glob(pattern)) if is_glob else [Path(pattern)]
        except ValueError as error:
            raise InputError(
                f"{pattern!r} is no glob: {error}", where="kernels", fix="use e.g. kernels/*"
            ) from None
        matches = [path for path in paths if (path / "build.toml").is_file()]
        if not matches:
            raise InputError(
                f"{pattern!r} matches no folder with a build.toml",
                where="kernels",
                fix="name the folder of a kernel, or a glob such as kernels/*",
            )
        found.update(dict.fromkeys(matches))
    return list(found)


def _planned() -> tuple[Plan, Cell]:
    made = _read_plan()
    return made, made.select([actions.required("CELL")])[0]


def _read_plan(where: Path | None = None) -> Plan:
    """Read the plan, and check that it is the one that the plan job made.

    Its id came as the output of that job, which no later job can change; the file came as an
    artifact, which every job of the run could.
    """
    path = (where or folder() / "plan") / PLAN_FILE
    made, expected = read_plan(path), actions.required("PLAN_ID")
    if made.id != expected:
        raise Rejected(
            f"is not the plan of this run ({legs.short(made.id)}, not {legs.short(expected)})",
            where=path,
            fix="see which job replaced the artifact",
        )
    return made


def _runner_map(given: str) -> RunnerMap:
    """Read the input `runners`: TOML, or the path of a file in the repository."""
    if not given:
        return RunnerMap()
    if "=" in given or "\n" in given:
        return RunnerMap.parse(given, where="input runners")
    if Path(given).is_absolute() or ".." in Path(given).parts:
        raise InputError(
            f"{given!r} leads out of the repository",
            where="input runners",
            fix="name a file inside it",
        )
    return RunnerMap.read(Path(given))


def _asks_reviewer(repository: str, environment: str) -> str | None:
    from kernel_ci.github.environments import why_not_reviewed

    return why_not_reviewed(repository, environment)


def _warn_callers() -> None:
    from kernel_ci.github import callers

    try:
        findings = callers.check(Path())
    except InputError as error:
        # Another workflow of the repository, and no reason not to build.
        actions.annotate("warning", str(error), title="permissions")
        return
    for finding in findings:
        actions.annotate(
            "warning", finding.message, file=finding.file, line=finding.line, title="permissions"
        )


def _fresh(name: str) -> Path:
    """Return an empty folder of the job."""
    here = folder() / name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    return here


def _console(*, wrap: bool = True) -> Console:
    """Return a console for the log; a compiler's lines stay whole, for the problem matchers."""
    return Console(width=160, soft_wrap=not wrap)
