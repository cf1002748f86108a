"""The command line: the interface that workflows, nox sessions and people use.

People's text goes to standard output, or to standard error with `--json`, which gives
standard output to the machine. Handlers import what they need when they run, so that
`kernel-ci --help` starts fast.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_ci import __version__
from kernel_ci.errors import InputError, KernelCIError
from kernel_ci.variant import BACKENDS

if TYPE_CHECKING:
    from rich.console import Console

    from kernel_ci.plan import Plan

_GLOB = "a glob over variant names and cell ids, e.g. '*-cpu-*'; may be repeated"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `kernel_ci.errors`)."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        return int(options.run(options))
    except KernelCIError as error:
        print(f"{error.label}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernel-ci",
        description="Build, prove and publish every variant of TVM FFI kernels.",
        epilog="exit codes: 0 done, 1 judged and found wanting, 2 bad input,"
        " 75 infrastructure (try again)",
    )
    parser.add_argument("--version", action="version", version=f"kernel-ci {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(run=run)
        return added

    plan = command("plan", _plan, "decide which variants must be built and proved")
    _add_selection(plan)
    plan.add_argument(
        "--changed-since",
        metavar="REF",
        help="leave out kernels that no change since this commit touches",
    )
    plan.add_argument("--explain", action="store_true", help="also list why variants are left out")
    plan.add_argument("-o", "--output", type=Path, metavar="FILE", help="write plan.json here")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")

    build = command("build", _build, "build a plan's cells")
    build.add_argument("plan", type=Path, help="plan.json")
    _add_cells(build)
    build.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the run's folder (default: the plan's)"
    )
    build.add_argument("--compiler", help="a C++ compiler to use in place of the default one")
    build.add_argument("-j", "--jobs", type=_positive, help="compilers that run at once")
    build.add_argument(
        "--engine",
        choices=("host", "cibuildwheel"),
        default="host",
        help="where it is built: here (default), or in a manylinux container, as a wheel too",
    )

    audit = command("audit", _audit, "tell what a built variant is, and whether that is right")
    audit.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a library, a variant directory or a kernel's build folder, from anyone;"
        " with --plan the run's folder",
    )
    audit.add_argument("--plan", type=Path, help="audit this plan's cells, and leave receipts")
    _add_cells(audit)
    audit.add_argument(
        "--runtimes",
        metavar="WORDS",
        help="also load and call it under these releases of tvm-ffi (which runs its code):"
        " floor, epochs, newest, all, versions, separated by commas, or none"
        " (default: none; floor,epochs,newest with --plan)",
    )
    audit.add_argument(
        "--tests", type=Path, metavar="DIR", help="the kernel's tests, to run the quick ones too"
    )
    audit.add_argument("--json", action="store_true", help="print the report as JSON")

    abi = command("abi", lambda _: 0, "what is known of the ABI of tvm-ffi's releases")
    actions = abi.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="the table, a release, or what separates two")
    show.add_argument("versions", nargs="*", metavar="VERSION", help="none, one or two releases")
    show.add_argument("--json", action="store_true", help="print it as JSON")
    show.set_defaults(run=_abi_show)

    test = command("test", _test, "run the kernels' suites on what was built")
    test.add_argument("plan", type=Path, help="plan.json")
    test.add_argument("folder", type=Path, metavar="DIR", help="the run's folder")
    _add_cells(test)
    test.add_argument(
        "--emulate",
        action="store_true",
        help="run the quick tests of aarch64-linux CPU variants with qemu where this machine is"
        " another; receipts say so",
    )

    bench = command("bench", _bench, "time a kernel's benchmarks, against another build too")
    bench.add_argument("kernel", type=Path, metavar="KERNEL", help="the kernel's folder")
    bench.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        default=Path("out"),
        help="the run's folder; where it holds no plan, what this machine can run is built there",
    )
    bench.add_argument(
        "--against",
        metavar="BUILD",
        help="compare with this build: a variant directory, a run's folder, ORG/NAME@VERSION,"
        " or `published` (the default where the author requires benchmarks)",
    )
    bench.add_argument(
        "--hub", metavar="DIR|URL", help="where published builds are (default: the real Hub)"
    )
    _add_cells(bench)
    bench.add_argument("--json", action="store_true", help="print the results as JSON")

    gate = command("gate", _gate, "judge a run by the evidence that it left")
    gate.add_argument("plan", type=Path, help="plan.json")
    gate.add_argument("folder", type=Path, metavar="DIR", help="the run's folder")
    gate.add_argument("--json", action="store_true", help="print the verdict as JSON")

    publish = command("publish", _publish, "publish a run that the gate has accepted")
    publish.add_argument("folder", type=Path, metavar="DIR", help="the run's folder")
    publish.add_argument(
        "--hub", metavar="DIR|URL", help="a local Hub's folder, or a URL (default: the real Hub)"
    )
    publish.add_argument("--dry-run", action="store_true", help="only tell what would change")
    publish.add_argument(
        "--rehearse",
        action="store_true",
        help="first publish to a local Hub of its own, and load what this machine can load",
    )
    publish.add_argument(
        "--replace", action="store_true", help="put other content in place of what a version has"
    )
    publish.add_argument(
        "--drop", action="store_true", help="let variants vanish that a version has"
    )
    publish.add_argument(
        "--allow-partial",
        action="store_true",
        help="publish to the real Hub though --only, --skip or this machine left variants out",
    )
    publish.add_argument(
        "--pull-request", action="store_true", help="propose the release to those who can write"
    )
    publish.add_argument("--unsigned", action="store_true", help="do not sign")
    publish.add_argument(
        "--signed-by",
        metavar="WORKFLOW",
        help="refuse what this workflow has not signed"
        " (https://github.com/OWNER/NAME/.github/workflows/FILE.yml@REF)",
    )
    publish.add_argument(
        "--signed-for",
        metavar="OWNER/NAME",
        help="the repository whose run signed (default: the one this runs for)",
    )
    publish.add_argument("--json", action="store_true", help="print what became of it as JSON")

    pipeline = command("pipeline", _pipeline, "plan, build, audit, test, gate and publish")
    _add_selection(pipeline)
    pipeline.add_argument(
        "--hub", metavar="DIR|URL", help="publish there (default: do not publish)"
    )
    pipeline.add_argument(
        "-o", "--output", type=Path, metavar="DIR", default=Path("out"), help="the run's folder"
    )
    pipeline.add_argument("--compiler", help="a C++ compiler to use in place of the default one")
    pipeline.add_argument(
        "--fresh",
        action="store_true",
        help="do everything anew (default: take over what a former run in the folder proved and"
        " nothing has changed)",
    )

    hub = command("hub", lambda _: 0, "the local Hub")
    actions = hub.add_subparsers(title="actions", metavar="ACTION", required=True)
    serve = actions.add_parser("serve", help="serve a local Hub's folder over HTTP")
    serve.add_argument("folder", type=Path, metavar="DIR")
    serve.add_argument("--port", type=int, default=8765, help="0 takes a free one")
    serve.set_defaults(run=_hub_serve)
    check = actions.add_parser("check", help="verify a local Hub's folder")
    check.add_argument("folder", type=Path, metavar="DIR")
    check.add_argument(
        "--repair", action="store_true", help="remove what is of no use; damage stays as it is"
    )
    check.set_defaults(run=_hub_check)

    wheel = command("wheel", lambda _: 0, "wheels of kernels")
    actions = wheel.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="tell what a wheel is, and whether that is right")
    check.add_argument("file", type=Path, metavar="FILE", help="a kernel's wheel, from anyone")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=_wheel_check)

    init = command("init", _init, "write a new kernel with its tests and a workflow")
    init.add_argument("name", metavar="NAME", help="the kernel's name, e.g. my-kernel")
    init.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where to (default: a folder of that name)"
    )
    init.add_argument(
        "--repo-id", metavar="ORG/NAME", help="the Hub repository that it will be published to"
    )

    from kernel_ci.github.commands import add_commands

    add_commands(command("github", lambda _: 0, "the stages as a GitHub workflow runs them"))
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernels", type=Path, nargs="+", metavar="KERNEL", help="a kernel's folder")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help=_GLOB)
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help=_GLOB)
    parser.add_argument(
        "--build-only",
        action="append",
        default=[],
        metavar="GLOB",
        help="do not ask for a test of these; shown as such everywhere",
    )
    parser.add_argument(
        "--allow-skip",
        action="append",
        default=[],
        metavar="GLOB",
        help="accept that tests matching this are skipped, e.g. '*::test_jax*'",
    )
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        choices=BACKENDS,
        help="the variants of this backend alone; may be repeated",
    )
    parser.add_argument(
        "--tier",
        choices=("quick", "full"),
        default="full",
        help="quick takes one variant a backend, for pull requests (default: full)",
    )
    parser.add_argument(
        "--runners", type=Path, metavar="FILE", help="a runner map: where which cells run"
    )
    parser.add_argument("--matrix", type=Path, metavar="FILE", help="another support matrix")


def _add_cells(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cell", action="append", default=[], metavar="ID", help="this cell alone; may be repeated"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _console(options: argparse.Namespace) -> Console:
    from rich.console import Console

    # Logs of CI are not terminals, and 80 columns would fold every table there.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(stderr=getattr(options, "json", False), width=width, soft_wrap=False)


def _make_plan(options: argparse.Namespace, *, provable_here: bool = False) -> Plan:
    from kernel_ci.plan import Selection, plan_folders
    from kernel_ci.runners import RunnerMap

    selection = Selection(
        only=tuple(options.only),
        skip=tuple(options.skip),
        build_only=tuple(options.build_only),
        allowed_skips=tuple(options.allow_skip),
        provable_here=provable_here,
        backends=tuple(options.backend),
        tier=options.tier,
        runners=RunnerMap.read(options.runners) if options.runners else RunnerMap(),
    )
    return plan_folders(options.kernels, selection, matrix=options.matrix)


def _plan(options: argparse.Namespace) -> int:
    from kernel_ci.layout import write_plan
    from kernel_ci.report import show_plan

    if options.changed_since is not None:
        from kernel_ci.github.changed import only_touched

        options.kernels, reason = only_touched(options.kernels, options.changed_since)
        print(reason, file=sys.stderr)
        if not options.kernels:
            return 0
    # All that a plan makes stays: to look among it for what can go took a tenth of the time.
    gc.disable()
    try:
        plan = _make_plan(options)
        if options.output is not None:
            write_plan(plan, options.output)
    finally:
        gc.enable()
    show_plan(_console(options), plan, explain=options.explain)
    if options.json:
        print(plan.to_json(), end="")
    return 0


def _build(options: argparse.Namespace) -> int:
    from kernel_ci.build import build_cell
    from kernel_ci.plan import read_plan
    from kernel_ci.report import show_receipt

    plan = read_plan(options.plan)
    folder = options.output or options.plan.parent
    console = _console(options)
    failed = 0
    for cell in plan.select(options.cell):
        receipt = build_cell(
            plan,
            cell,
            folder,
            compiler=options.compiler,
            jobs=options.jobs,
            engine=options.engine,
        )
        show_receipt(console, receipt)
        failed += receipt.outcome == "failed"
    return 1 if failed else 0


def _audit(options: argparse.Namespace) -> int:
    if options.plan is not None:
        return _audit_plan(options)
    if options.cell:
        raise InputError("needs --plan", where="--cell", fix="name the plan with --plan")
    console = _console(options)
    if options.runtimes in (None, "none"):
        # Only what it needs is imported: reading a library takes less time than the rest would.
        from kernel_ci.audit.variant import audit

        if options.tests:
            from kernel_ci.audit.dynamic import DEFAULT

            fix = f"say under which releases, e.g. --runtimes {DEFAULT}"
            raise InputError("needs --runtimes", where="--tests", fix=fix)
        report = audit(options.path)
    else:
        from kernel_ci.audit.dynamic import Suite, audit_dynamic

        suite = Suite(options.tests) if options.tests else None
        with console.status("running it") as status:
            report = audit_dynamic(options.path, options.runtimes, suite=suite, say=status.update)
    from kernel_ci.audit.report import render

    render(report, console)
    if options.json:
        print(report.to_json(), end="")
    return 0 if report.ok else 1


def _audit_plan(options: argparse.Namespace) -> int:
    from kernel_ci.audit.dynamic import DEFAULT
    from kernel_ci.audit.stage import audit_cell
    from kernel_ci.plan import read_plan
    from kernel_ci.report import show_receipt

    if options.tests:
        raise InputError("the plan names the tests", where="--tests", fix="leave it out")
    plan = read_plan(options.plan)
    console = _console(options)
    failed = 0
    for cell in plan.select(options.cell):
        with console.status(f"auditing {cell.id}") as status:
            receipt = audit_cell(
                plan, cell, options.path, runtimes=options.runtimes or DEFAULT, say=status.update
            )
        show_receipt(console, receipt)
        failed += receipt.outcome == "failed"
    return 1 if failed else 0


def _abi_show(options: argparse.Namespace) -> int:
    import json

    from kernel_ci.abi import show

    if len(options.versions) > 2:
        raise InputError("takes two releases at most", where="abi show", fix="name two")
    if options.json:
        print(json.dumps(show.as_json(options.versions), indent=1))
    else:
        show.render(_console(options), options.versions)
    return 0


def _test(options: argparse.Namespace) -> int:
    from kernel_ci.plan import read_plan
    from kernel_ci.report import show_receipt
    from kernel_ci.testing.stage import test_cell

    plan = read_plan(options.plan)
    console = _console(options)
    failed = 0
    for cell in plan.select(options.cell):
        if cell.evidence == "build-only" and not options.cell:
            console.print(f"build-only {cell.id}: {cell.reason}", highlight=False)
            continue
        receipt, result = test_cell(plan, cell, options.folder, emulate=options.emulate)
        if receipt.outcome == "failed":
            console.print(result.output, markup=False, highlight=False)
        show_receipt(console, receipt)
        failed += receipt.outcome == "failed"
    return 1 if failed else 0


def _bench(options: argparse.Namespace) -> int:
    import json

    from kernel_ci import devices
    from kernel_ci.bench.report import show_result
    from kernel_ci.bench.stage import bench_cell
    from kernel_ci.build import build_cell
    from kernel_ci.kernel import Kernel
    from kernel_ci.layout import write_plan
    from kernel_ci.plan import FILE, Selection, plan_folders, read_plan
    from kernel_ci.report import show_receipt

    console = _console(options)
    kernel = Kernel.read(options.kernel)
    file = options.output / FILE
    if file.is_file():
        plan = read_plan(file)
    else:
        plan = plan_folders([options.kernel], Selection(provable_here=True))
        write_plan(plan, file)
        for cell in plan.select(options.cell):
            built = build_cell(plan, cell, options.output)
            show_receipt(console, built)
            if built.outcome == "failed":
                return 1
    cells = [
        cell
        for cell in plan.select(options.cell)
        if cell.kernel == kernel.name
        and (options.cell or devices.why_not(cell.platform, cell.backend) is None)
    ]
    if not cells:
        raise InputError(
            f"the plan has no variant of {kernel.name} that this machine can run",
            where=file,
            fix="name another folder with -o",
        )
    baseline = options.against or ("published" if kernel.bench.required else None)
    results = []
    for cell in cells:
        with console.status(f"timing {cell.id}"):
            result = bench_cell(plan, cell, options.output, baseline=baseline, hub=options.hub)
        show_result(console, result)
        results.append(result)
    if options.json:
        print(json.dumps([result.model_dump(mode="json") for result in results], indent=1))
    return 1 if any(result.slower(result.slowdown_limit) for result in results) else 0


def _gate(options: argparse.Namespace) -> int:
    from kernel_ci import gate
    from kernel_ci.plan import read_plan
    from kernel_ci.report import show_verdict

    plan = read_plan(options.plan)
    if not options.folder.is_dir():
        raise InputError("no such folder", where=options.folder, fix="name the run's folder")
    verdict = gate.judge(plan, gate.collect(plan, options.folder))
    verdict.write(options.folder / gate.FILE)
    show_verdict(_console(options), plan, verdict)
    if options.json:
        print(verdict.to_json(), end="")
    return 0 if verdict.accepted else 1


def _publish(options: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from kernel_ci.plan import FILE, read_plan
    from kernel_ci.publish import Options, publish, rehearse, verify
    from kernel_ci.publish.signing import signer_of
    from kernel_ci.publish.target import connect

    if options.signed_for and not options.signed_by:
        raise InputError("needs --signed-by", where="--signed-for", fix="name the workflow too")
    wanted = Options(
        replace=options.replace,
        drop=options.drop,
        allow_partial=options.allow_partial,
        pull_request=options.pull_request,
        unsigned=options.unsigned,
        signer=signer_of(options.signed_by, options.signed_for) if options.signed_by else None,
    )
    console = _console(options)
    good = True
    with connect(options.hub) as target:
        # What is refused is refused before the rehearsal, which takes longer.
        first = options.dry_run or options.rehearse
        done = publish(options.folder, target, dry_run=first, options=wanted, console=console)
        if options.rehearse:
            good = rehearse(options.folder, console)
            if good and not options.dry_run:
                done = publish(options.folder, target, options=wanted, console=console)
        if good and not options.dry_run and not options.pull_request:
            plan = read_plan(options.folder / FILE)
            for it in done:
                good = verify.load(plan, it.kernel, it.repo_id, target, console) and good
    if options.json:
        print(json.dumps([asdict(it) for it in done], indent=1))
    return 0 if good else 1


def _pipeline(options: argparse.Namespace) -> int:
    from kernel_ci.pipeline import run_pipeline

    plan = _make_plan(options, provable_here=True)
    return run_pipeline(
        plan,
        options.output,
        _console(options),
        hub=options.hub,
        compiler=options.compiler,
        fresh=options.fresh,
    )


def _wheel_check(options: argparse.Namespace) -> int:
    from kernel_ci.audit.report import render
    from kernel_ci.wheel.check import check_wheel

    report = check_wheel(options.file)
    render(report, _console(options))
    if options.json:
        print(report.to_json(), end="")
    return 0 if report.ok else 1


def _init(options: argparse.Namespace) -> int:
    from kernel_ci.init import write_kernel

    folder = options.output or Path(options.name)
    for path in write_kernel(options.name, folder, repo_id=options.repo_id):
        print(path)
    print(f"next: kernel-ci pipeline {folder} --only '*-cpu-*'")
    return 0


def _hub_serve(options: argparse.Namespace) -> int:
    from kernel_ci.hub.server import serve

    serve(options.folder, port=options.port)
    return 0


def _hub_check(options: argparse.Namespace) -> int:
    from kernel_ci.hub.check import check

    findings = check(options.folder, repair=options.repair)
    for finding in findings:
        print(finding)
    damaged = sum(finding.kind == "damage" for finding in findings)
    of_no_use = [finding.where for finding in findings if finding.kind == "leftover"]
    gone = sum(not (options.folder / where).exists() for where in of_no_use)
    print(f"{damaged} damaged, {len(of_no_use) - gone} of no use, {gone} removed")
    return 1 if damaged else 0
