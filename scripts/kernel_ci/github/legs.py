"""A plan's cells as jobs of GitHub: which runner, in which matrix, or why not at all.

Policy for code of a fork: it runs on GitHub's own runners, which are new for each job and
hold no secret. It gets to any other runner only through an environment whose protection
rules ask a reviewer: a job that names it waits, and an approval holds for that run alone,
which has one commit. Nothing that a fork can edit (inputs, files) weakens this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Literal

from kernel_ci.build import Engine
from kernel_ci.documents import Document, Model
from kernel_ci.errors import InputError
from kernel_ci.github.known import known
from kernel_ci.plan import Cell, Plan
from kernel_ci.runners import GROUP, HF_JOBS, RunnerMap

FILE = "legs.json"

#: Jobs that one matrix may have (GitHub's limit), and matrices that build.yml has for a stage.
MOST_LEGS = 256
MATRICES = 4

#: Where the job runs that only starts a job elsewhere.
_LIGHT_RUNNER = "ubuntu-24.04"

LegStage = Literal["build", "test"]


class Leg(Model):
    """One job of a matrix.

    Attributes:
        cell: The cell's id.
        runner: What `runs-on` takes: a label, labels, or a group with labels.
        environment: The environment whose reviewers release the job; empty for none.
        hf_jobs: The flavour of Hugging Face's hardware that it tests on; empty for none.
    """

    cell: str
    runner: str | tuple[str, ...] | dict[str, str | tuple[str, ...]]
    environment: str = ""
    hf_jobs: str = ""


class Withheld(Model):
    """A stage of a cell that this run gives to nobody.

    Attributes:
        cell: The cell's id.
        stage: The stage.
        reason: Why, and what makes it run.
    """

    cell: str
    stage: LegStage
    reason: str


class Legs(Document):
    """How the jobs of a run are laid out.

    Attributes:
        plan: Id of the plan.
        commit: The commit that people know the code by, or None.
        build: The legs of each matrix that builds.
        test: The legs of each matrix that audits and tests.
        withheld: What no job does.
    """

    kind: Literal["kernel-ci legs"] = "kernel-ci legs"
    format: Literal[1] = 1
    plan: str
    commit: str | None
    build: tuple[tuple[Leg, ...], ...]
    test: tuple[tuple[Leg, ...], ...]
    withheld: tuple[Withheld, ...]


def hosted_labels() -> tuple[str, ...]:
    """Return globs of the labels that GitHub's own runners have."""
    return tuple(known()["hosted-labels"])


def short(plan_id: str) -> str:
    """Return the part of a plan's id that artifact names carry."""
    return plan_id.removeprefix("sha256:")[:16]


def artifact(plan_id: str, what: str, cell_id: str | None = None) -> str:
    """Return an artifact's name: unique for a plan, hence for a run and its attempt.

    Two calls of the workflow in one run, and a second attempt, so never share an artifact.
    """
    name = f"kernel-ci.{short(plan_id)}.{what}"
    return f"{name}.{cell_id.replace('/', '.')}" if cell_id else name


def lay_out(
    plan: Plan,
    *,
    declared: RunnerMap,
    hosted: tuple[str, ...],
    fork: bool,
    commit: str | None,
    environment: str,
    reviewed: Callable[[str], str | None],
) -> Legs:
    """Lay a plan's cells out as jobs.

    Args:
        plan: The plan.
        declared: The caller's runner map, which names the runners that it has.
        hosted: Globs of the labels of GitHub's own runners.
        fork: Whether the code comes from a fork.
        commit: The commit that people know the code by.
        environment: The environment that releases a fork's jobs; empty for none.
        reviewed: Tells why an environment does not ask a reviewer; None where it does.

    Raises:
        InputError: A runner is needed that the caller has not named, or there are more cells
            than matrices can hold.
    """
    if len(plan.cells) > MOST_LEGS * MATRICES:
        raise InputError(
            f"{len(plan.cells)} cells: one call runs at most {MOST_LEGS * MATRICES}",
            where="kernels",
            fix="split the kernels over several calls of the workflow",
        )
    _check_declared(plan, declared, hosted)
    refusal = _refusal(environment, reviewed) if fork else None
    legs: dict[LegStage, list[list[Leg]]] = {"build": [], "test": []}
    withheld: list[Withheld] = []
    stages: tuple[LegStage, ...] = ("build", "test")
    for start in range(0, len(plan.cells), MOST_LEGS):
        chunk = plan.cells[start : start + MOST_LEGS]
        for stage in stages:
            legs[stage].append([])
            for cell in chunk:
                labels = _labels(cell, stage)
                trusted = _is_hosted(labels, hosted)
                if fork and _flavour(labels):
                    reason = "code of a fork gets no token, which a job on Hugging Face needs"
                    withheld.append(Withheld(cell=cell.id, stage=stage, reason=reason))
                elif fork and not trusted and refusal is not None:
                    withheld.append(Withheld(cell=cell.id, stage=stage, reason=refusal))
                else:
                    legs[stage][-1].append(
                        Leg(
                            cell=cell.id,
                            runner=_runs_on(labels),
                            environment=environment if fork and not trusted else "",
                            hf_jobs=_flavour(labels),
                        )
                    )
    return Legs(
        plan=plan.id,
        commit=commit,
        build=tuple(tuple(matrix) for matrix in legs["build"]),
        test=tuple(tuple(matrix) for matrix in legs["test"]),
        withheld=tuple(withheld),
    )


#: What runners for aarch64 are called, as a part of a label: GitHub's and self-hosted ones.
_ARM = re.compile(r"\b(arm|arm64|aarch64)\b", re.IGNORECASE)


def engine_of(cell: Cell, asked: str) -> Engine:
    """Return what builds a cell when the caller asks for an engine.

    cibuildwheel builds for the runner's own platform. So what is cross-built keeps the host
    engine, and so does macOS, where no container gives another toolchain than the runner has.
    """
    arm = any(_ARM.search(label) for label in cell.build_runner)
    own = cell.platform == ("aarch64-linux" if arm else "x86_64-linux")
    return "cibuildwheel" if own and asked == "cibuildwheel" else "host"


def matrices(legs: tuple[tuple[Leg, ...], ...]) -> list[list[dict[str, Any]]]:
    """Return the `include` of each matrix, one for each that the workflow has."""
    found = [[leg.model_dump(mode="json") for leg in matrix] for matrix in legs]
    return found + [[] for _ in range(MATRICES - len(found))]


def _refusal(environment: str, reviewed: Callable[[str], str | None]) -> str | None:
    """Return why a fork's code may not get to the caller's own runners, or None."""
    waits = "waits for a maintainer: code of a fork runs on GitHub's own runners only"
    if not environment:
        return f"{waits}; `fork-environment` names an environment whose reviewers release it"
    reason = reviewed(environment)
    return None if reason is None else f"{waits}; the environment {environment!r} {reason}"


def _where(cell: Cell, stage: LegStage) -> LegStage:
    """Return whose runner a stage takes: what is only built is audited where it was built."""
    return "build" if cell.evidence == "build-only" else stage


def _labels(cell: Cell, stage: LegStage) -> tuple[str, ...]:
    return cell.build_runner if _where(cell, stage) == "build" else cell.test_runner


def _flavour(labels: tuple[str, ...]) -> str:
    return labels[0].removeprefix(HF_JOBS) if labels[0].startswith(HF_JOBS) else ""


def _is_hosted(labels: tuple[str, ...], hosted: tuple[str, ...]) -> bool:
    return len(labels) == 1 and any(fnmatchcase(labels[0], glob) for glob in hosted)


def _runs_on(labels: tuple[str, ...]) -> str | tuple[str, ...] | dict[str, str | tuple[str, ...]]:
    if _flavour(labels):
        return _LIGHT_RUNNER
    group = next((label.removeprefix(GROUP) for label in labels if label.startswith(GROUP)), None)
    rest = tuple(label for label in labels if not label.startswith(GROUP))
    if group is not None:
        return {"group": group, "labels": rest} if rest else {"group": group}
    return rest[0] if len(rest) == 1 else rest


def _check_declared(plan: Plan, declared: RunnerMap, hosted: tuple[str, ...]) -> None:
    """Refuse cells for which the caller has named no runner of its own.

    A job for a label that no runner has waits for 24 hours and fails then.
    """
    missing: dict[tuple[str, ...], list[str]] = {}
    for cell in plan.cells:
        placed = declared.place(cell.kernel, cell.variant)
        named = {"build": placed.build, "test": placed.test}
        stages: tuple[LegStage, ...] = ("build", "test")
        for stage in stages:
            labels = _labels(cell, stage)
            if named[_where(cell, stage)] is None and not _is_hosted(labels, hosted):
                missing.setdefault(labels, []).append(cell.variant)
    if not missing:
        return
    lines = [
        f"{' '.join(labels)}: {', '.join(sorted(set(variants)))}"
        for labels, variants in missing.items()
    ]
    raise InputError(
        "these variants need a runner of your own, and none is named\n  " + "\n  ".join(lines),
        where="runners",
        fix="name one in the runner map, e.g.\n"
        '    [test]\n    "*-cu*" = "self-hosted linux x64 cuda"\n'
        "  or declare that there is none:\n"
        '    [build-only]\n    "*-cu*" = "no GPU here"\n'
        "  or leave the variants out with `skip`",
    )
