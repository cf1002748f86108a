"""What CI runs, by hand: `nox -l` lists the sessions, `nox -s NAME` runs one.

Arguments after `--` reach the command behind a session, e.g.
`nox -s pipeline -- --only '*-cpu-x86_64-*'`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox
import nox.command

# From then on a failed command says its exit code.
nox.needs_version = ">=2026.7.11"
# `uv` would wait for a download where an interpreter is missing.
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "tests", "pipeline"]
nox.options.error_on_missing_interpreters = True

REFERENCE = "kernels/relu-tvm-ffi"
OUT = "out"

#: What kernel-ci ends with where a machine lacks what it needs (EX_TEMPFAIL).
UNAVAILABLE = 75


def install(session: nox.Session, *groups: str, target: str = ".") -> None:
    """Install kernel-ci and dependency groups; in CI with the locked versions."""
    arguments = ["--editable", target]
    for group in groups:
        arguments += ["--group", group]
    if os.environ.get("CI"):
        arguments += ["--constraint", "constraints.txt"]
    # --group needs pip 25.1.
    session.install("--quiet", "pip>=25.1")
    session.install("--quiet", *arguments)


def kernels(session: nox.Session) -> list[str]:
    """Return the session's arguments, with the reference kernel where none is named."""
    named = any(Path(argument, "build.toml").is_file() for argument in session.posargs)
    return [*([] if named else [REFERENCE]), *session.posargs]


@nox.session
def plan(session: nox.Session) -> None:
    """Decide which variants must be built and proved."""
    install(session)
    session.run("kernel-ci", "plan", *kernels(session), "-o", f"{OUT}/plan.json")


@nox.session
def build(session: nox.Session) -> None:
    """Build the planned cells; arguments choose them, e.g. --only '*-cpu-*'."""
    install(session)
    session.run("kernel-ci", "plan", *kernels(session), "-o", f"{OUT}/plan.json")
    session.run("kernel-ci", "build", f"{OUT}/plan.json", "-o", OUT)


@nox.session(name="test-cpu")
def test_cpu(session: nox.Session) -> None:
    """Build and test this machine's CPU variant on NumPy, PyTorch and JAX."""
    install(session, "frameworks")
    session.run("kernel-ci", "pipeline", *kernels(session), "--only", "*-cpu-*", "-o", OUT)


def test_attached(session: nox.Session, backend: str) -> None:
    """Build and test kernels for this machine's own accelerator, with its toolkit and torch.

    A torch for the accelerator is the machine's, so the environment sees what is installed.
    """
    install(session)
    command = ("python", "-m", "kernel_ci.testing.attached", backend)
    try:
        session.run(*command, *kernels(session), "-o", OUT)
    except nox.command.CommandFailed as failed:
        # Otherwise nox's own code would hide that it was the machine and not the kernel.
        if failed.return_code == UNAVAILABLE:
            sys.exit(UNAVAILABLE)
        raise


@nox.session(name="test-cuda", venv_params=["--system-site-packages"])
def test_cuda(session: nox.Session) -> None:
    """Build and test on this machine's NVIDIA GPU; --build-only needs none."""
    test_attached(session, "cuda")


@nox.session(name="test-rocm", venv_params=["--system-site-packages"])
def test_rocm(session: nox.Session) -> None:
    """Build and test on this machine's AMD GPU; --build-only needs none."""
    test_attached(session, "rocm")


@nox.session(name="test-xpu", venv_params=["--system-site-packages"])
def test_xpu(session: nox.Session) -> None:
    """Build and test on this machine's Intel GPU; --build-only needs none."""
    test_attached(session, "xpu")


@nox.session(name="test-metal", venv_params=["--system-site-packages"])
def test_metal(session: nox.Session) -> None:
    """Build and test on this Mac's GPU; --build-only needs none."""
    test_attached(session, "metal")


@nox.session
def carry(session: nox.Session) -> None:
    """Download into ./wheels all that `test-cuda` and the like need, for a machine without network.

    To be run on the same platform with the same Python; docs/testing.md has the rest.
    """
    install(session)
    build = ("hatchling>=1.27", "editables", "pip>=25.1", "nox")
    session.run("pip", "download", "--quiet", "--dest", "wheels", ".", *build)
    session.run("python", "-m", "kernel_ci.testing.carry", "wheels")


@nox.session
def pipeline(session: nox.Session) -> None:
    """Do all of it: plan, build, audit, test, gate, publish to the local Hub in ./hub, load."""
    install(session)
    session.run("kernel-ci", "pipeline", *kernels(session), "-o", OUT, "--hub", "hub")


def run_tests(session: nox.Session, *paths: str) -> None:
    """Run pytest on paths, on all cores unless the arguments say otherwise."""
    install(session, "test", "dev", target=".[wheel]")
    workers = [] if any(a.startswith("-n") for a in session.posargs) else ["-n", "auto"]
    session.run("pytest", *workers, *paths, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Test kernel-ci itself, but for the workflows; arguments go to pytest."""
    run_tests(session, "tests", "--ignore=tests/workflows")


@nox.session(name="tests-workflows")
def tests_workflows(session: nox.Session) -> None:
    """Run the workflows under act, with real builds; arguments go to pytest."""
    run_tests(session, "tests/workflows")


@nox.session
def abi(session: nox.Session) -> None:
    """Run what the arguments name under every release of tvm-ffi, or prove docs/abi.md.

    E.g. `nox -s abi -- out/relu-tvm-ffi/build --tests kernels/relu-tvm-ffi/tests`.
    """
    install(session, "test")
    if session.posargs:
        session.run("kernel-ci", "audit", *session.posargs, "--runtimes", "all")
    else:
        matrix = "tests/integration/test_abi_matrix.py"
        session.run("pytest", matrix, env={"KERNEL_CI_MATRIX": "all"})


@nox.session(name="abi-update")
def abi_update(session: nox.Session) -> None:
    """Write the ABI table and docs/abi.md anew, from the published wheels of tvm-ffi."""
    install(session)
    session.run("python", "-m", "kernel_ci.abi.update")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types, of the code and of the workflows."""
    install(session, "dev", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    workflows = sorted(str(path) for path in Path(".github/workflows").glob("*.yml"))
    actions = sorted(str(path) for path in Path("actions").glob("*/action.yml"))
    session.run("zizmor", "--offline", "--pedantic", "--quiet", *workflows, *actions)
    session.run("actionlint", *workflows)
    schema = ("check-jsonschema", "--builtin-schema")
    session.run(*schema, "vendor.github-workflows", *workflows)
    session.run(*schema, "vendor.github-actions", *actions)
    scripts = (".ci/run", "actions/setup/setup.sh", "scripts/kernel_ci/github/job.sh")
    session.run("shellcheck", *scripts)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure kernel-ci itself against the goals of docs/performance.md; arguments choose."""
    install(session, "bench", "frameworks")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def support(session: nox.Session) -> None:
    """Write the table of docs/support.md anew, from the support matrix."""
    install(session)
    session.run("python", "-m", "kernel_ci.support")


@nox.session
def lock(session: nox.Session) -> None:
    """Write constraints.txt anew: the exact versions that CI installs."""
    session.install("--quiet", "uv")
    session.run(
        "uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.10",
        "--group", "dev", "--group", "lint", "--group", "test", "--group", "frameworks",
        "--extra", "wheel", "--no-annotate", "--no-header", "--upgrade",
        "--output-file", "constraints.txt",
        env={"UV_PYTHON_DOWNLOADS": "never"},
    )  # fmt: skip
