"""Planted defects, built from source by real compilers: each is found, and nothing else is."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_ci import tvm_ffi
from kernel_ci.audit.dynamic import Suite, audit_dynamic
from kernel_ci.audit.report import AuditReport, Finding
from kernel_ci.audit.variant import audit
from tests import probes
from tests.helpers import HOST_VARIANT, Run

MAC = "tvm-ffi01-cpu-aarch64-darwin"
ARM = "tvm-ffi01-cpu-aarch64-linux"
CUDA = "tvm-ffi01-cu130-x86_64-linux"


def errors(report: AuditReport) -> set[str]:
    return {finding.check for finding in report.findings if finding.level == "error"}


def found(report: AuditReport, check: str, *besides: str) -> Finding:
    """Return a finding, and assert that it and `besides` are the only errors."""
    assert errors(report) == {check, *besides}, report.findings
    return next(f for f in report.findings if f.check == check and f.level == "error")


def plain(folder: Path, forge: Path, *options: str, **changes: Any) -> AuditReport:
    """Audit a variant around the plain library, built with some options."""
    library = probes.compile_library(forge, probes.PLAIN, *options)
    return audit(probes.assemble(folder, library, **changes))


def outcomes(report: AuditReport) -> dict[str, str]:
    return {run.version: run.outcome for run in report.dynamic[0].runs}


def under(folder: Path, library: Path, runtimes: str, body: str, **changes: Any) -> AuditReport:
    """Audit a variant under some runtimes with a quick test; it states nothing by default."""
    directory = probes.assemble(folder / "build", library, **{"floor": None, **changes})
    suite = Suite(probes.write_suite(folder / "tests", body))
    return audit_dynamic(directory, runtimes, suite=suite)


# --- Good ones ------------------------------------------------------------------------------


def test_good_library(forge: Path, tmp_path: Path) -> None:
    assert plain(tmp_path, forge).findings == ()


def test_good_library_for_another_machine(forge: Path, tmp_path: Path) -> None:
    arm = probes.compile_library(
        forge, probes.PLAIN, compiler=probes.ZIG_AARCH64, platform="aarch64-linux"
    )
    assert audit(probes.assemble(tmp_path, arm, name=ARM)).findings == ()
    mac = probes.compile_library(
        forge, probes.PLAIN, compiler=probes.zig_macos("15.0"), platform="aarch64-darwin"
    )
    report = audit(probes.assemble(tmp_path, mac, name=MAC, suffix=".dylib"))
    assert report.findings == ()
    facts = report.all_libraries()[0].facts
    assert {entry.name: entry.library for entry in facts.imports} == {
        "TVMFFIErrorSetRaisedFromCStr": "@rpath/libtvm_ffi.dylib",
        "dyld_stub_binder": "/usr/lib/libSystem.B.dylib",
    }


def test_good_library_runs_everywhere(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(
        forge, probes.CHECKED, "-Wl,-z,nodelete", compiler=probes.ZIG, headers=probes.NEWEST
    )
    body = "assert kernel.run(3) == 3\nwith pytest.raises(ValueError, match='negative: -1'):\n"
    report = under(
        tmp_path,
        library,
        "floor,0.1.8.post2,0.1.13,0.1.14.post0,newest",
        body + "    kernel.run(-1)",
        built_with=probes.NEWEST,
        floor="0.1.0",
    )
    assert report.findings == ()
    assert report.dynamic[0].verified == (
        "0.1.0", "0.1.8.post2", "0.1.13", "0.1.14.post0", probes.NEWEST,
    )  # fmt: skip
    assert all(run.agrees for run in report.dynamic[0].runs)


def test_good_reference_kernel(reference_run: Run) -> None:
    directory = reference_run.folder / "relu-tvm-ffi" / "build" / HOST_VARIANT
    assert audit(directory).findings == ()


# --- The directory --------------------------------------------------------------------------


def test_stale_digest(forge: Path, tmp_path: Path) -> None:
    plain(tmp_path, forge)
    directory = tmp_path / probes.CPU
    with (directory / "__init__.py").open("a") as file:
        file.write("# changed\n")
    assert "is not what was hashed" in found(audit(directory), "digest").message


def test_file_added(forge: Path, tmp_path: Path) -> None:
    plain(tmp_path, forge)
    (tmp_path / probes.CPU / "extra.txt").write_text("x")
    assert found(audit(tmp_path / probes.CPU), "digest").where == "extra.txt"


def test_stamp_and_metadata_disagree(forge: Path, tmp_path: Path) -> None:
    report = plain(tmp_path, forge, built_with="0.1.12")
    assert "states 0.1.12" in found(report, "stamp").message


def test_stamp_of_another_release_than_the_headers(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.PLAIN, stamped="0.1.12")
    report = audit(probes.assemble(tmp_path, library, built_with="0.1.12"))
    assert "call themselves 0.1.9" in found(report, "stamp").message


def test_wrong_machine_under_the_name(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(
        forge, probes.PLAIN, compiler=probes.ZIG_AARCH64, platform="aarch64-linux"
    )
    report = audit(probes.assemble(tmp_path, library))
    assert "for aarch64-linux in a variant for x86_64-linux" in found(report, "machine").message


def test_two_variants_with_one_id(forge: Path, tmp_path: Path) -> None:
    plain(tmp_path, forge)
    plain(tmp_path, forge, name=CUDA, backend={"type": "cuda"})
    report = audit(tmp_path)
    assert f"has the id of {probes.CPU}" in found(report, "unique-id", "metadata").message


def test_function_missing_in_one_variant(forge: Path, tmp_path: Path) -> None:
    plain(tmp_path, forge)
    more = probes.compile_library(forge, probes.PLAIN, '-DCALLS="TVMFFIGetVersion"')
    identity = "_probe_cuda_abc1234"
    probes.assemble(tmp_path, more, name=CUDA, identity=identity, backend={"type": "cuda"})
    finding = found(audit(tmp_path), "parity")
    assert (finding.where, finding.message) == (
        probes.CPU, f"lacks the function more, which {CUDA} has",
    )  # fmt: skip


# --- What a library needs from the system ---------------------------------------------------


def test_rpath_left(forge: Path, tmp_path: Path) -> None:
    report = plain(tmp_path, forge, "-Wl,-rpath,/home/me/lib")
    assert "/home/me/lib" in found(report, "rpath").message


def test_undefined_cxa_call_terminate(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.PLAIN, '-DCALLS="__cxa_call_terminate"')
    report = audit_dynamic(probes.assemble(tmp_path, library), "newest")
    assert "GCC 13" in found(report, "undefined", "runtime").message
    assert "undefined symbol: __cxa_call_terminate" in report.dynamic[0].runs[0].faults[0]


@pytest.mark.parametrize(
    ("name", "whose"),
    [("libcudart.so.13", "belongs to cuda"), ("libtorch_cpu.so", "on no list"),
     ("libc10.so", "on no list")],
)  # fmt: skip
def test_runtime_of_another_backend_needed(
    forge: Path, tmp_path: Path, name: str, whose: str
) -> None:
    library = probes.empty_library(tmp_path, name)
    report = plain(tmp_path / "build", forge, "-Wl,--no-as-needed", str(library))
    message = found(report, "needed").message
    assert name in message
    assert whose in message


def test_torch_symbol_undefined(forge: Path, tmp_path: Path) -> None:
    report = plain(tmp_path, forge, '-DCALLS="_ZN3c104warnERKNS_7WarningE"')
    assert "torch" in found(report, "undefined").message


@pytest.mark.parametrize("linker", ["g++ and strip", "lld"])
def test_glibcxx_too_new(forge: Path, tmp_path: Path, linker: str) -> None:
    # These headers use a constructor of std::ostringstream that GCC 9 brought.
    options: tuple[str, ...] = ()
    if linker == "lld":
        (tmp_path / "ld.lld").write_text(f'#!/bin/sh\nexec {shlex.join(probes.LLD)} "$@"\n')
        (tmp_path / "ld.lld").chmod(0o755)
        options = ("-fuse-ld=lld", f"-B{tmp_path}")
    built = probes.compile_library(
        forge, probes.CHECKED, *options, compiler=("g++",), headers=probes.NEWEST
    )
    library = tmp_path / "library.so"
    library.write_bytes(built.read_bytes())
    assert (b"LLD" in library.read_bytes()) == (linker == "lld")
    subprocess.run(["strip", "--strip-all", str(library)], check=True)
    report = audit(library)
    assert report.libraries[0].facts.stripped
    message = found(report, "manylinux").message
    assert "GLIBCXX_3.4.26 is newer than GLIBCXX_3.4.24" in message


def test_libstdcxx_out_of_libtvm_ffi(forge: Path) -> None:
    # No version table shows this one.
    report = audit(probes.compile_library(forge, probes.JSON, headers="0.1.12"))
    assert "up to 0.1.12 exports some of libstdc++" in found(report, "undefined").message


@pytest.mark.parametrize("minimum", ["15.1", "26.0"])
def test_macos_too_new(forge: Path, tmp_path: Path, minimum: str) -> None:
    library = probes.compile_library(
        forge, probes.PLAIN, compiler=probes.zig_macos(minimum), platform="aarch64-darwin"
    )
    report = audit(probes.assemble(tmp_path, library, name=MAC, suffix=".dylib"))
    assert f"needs macOS {minimum}" in found(report, "macos-version").message


def test_macos_undefined(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(
        forge, probes.PLAIN, '-DCALLS="_nowhere"', "-Wl,-undefined,dynamic_lookup",
        compiler=probes.zig_macos("15.0"), platform="aarch64-darwin",
    )  # fmt: skip
    report = audit(probes.assemble(tmp_path, library, name=MAC, suffix=".dylib"))
    assert "nowhere is undefined" in found(report, "undefined").message


# --- tvm-ffi ------------------------------------------------------------------------------


def test_built_with_bad_headers(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(
        forge, probes.CHECKED, "-Wl,-z,nodelete", compiler=probes.ZIG, headers="0.1.13"
    )
    report = under(
        tmp_path, library, "0.1.12,0.1.13", "assert kernel.run(3) == 3",
        built_with="0.1.13", floor="0.1.0",
    )  # fmt: skip
    assert "nothing may be built" in found(report, "headers", "window", "runtime").message
    assert outcomes(report) == {"0.1.12": "failed", "0.1.13": "passed"}


#: What an ordinary test sees of that library: good values, and no more after an error.
ORDINARY = """
import sys, tvm_ffi
run = tvm_ffi.load_module(sys.argv[1]).get_function("run")
print(tvm_ffi.__version__, run(3), flush=True)
try:
    run(-1)
except ValueError:
    print("raised")
"""


def test_why_binding_must_be_immediate(forge: Path, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    built = probes.compile_library(forge, probes.CHECKED, headers="0.1.13")
    library.write_bytes(built.read_bytes())
    values = {key: value for key, value in os.environ.items() if key != "LD_BIND_NOW"}
    for version, printed, status in (
        ("0.1.12", "0.1.12 3\n", 127),
        ("0.1.13", "0.1.13 3\nraised\n", 0),
    ):
        done = subprocess.run(
            [sys.executable, "-c", ORDINARY, str(library)],
            env={**values, "PYTHONPATH": str(tvm_ffi.runtime(version))},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == (printed, status), done.stderr


def test_symbol_newer_than_the_stated_floor(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.PLAIN, '-DCALLS="TVMFFIGetCustomAllocator"',
                                     headers=probes.NEWEST)  # fmt: skip
    directory = probes.assemble(tmp_path, library, floor="0.1.9", built_with=probes.NEWEST)
    report = audit_dynamic(directory, "floor")
    message = found(report, "window", "runtime").message
    assert "include 0.1.9 to 0.1.12, where it breaks" in message
    assert outcomes(report) == {"0.1.9": "failed"}
    assert "undefined symbol: TVMFFIGetCustomAllocator" in report.dynamic[0].runs[0].faults[0]


def test_list_below_its_release(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.LIST)
    stating = audit(probes.assemble(tmp_path, library, floor="0.1.8.post2"))
    assert "does not know the type List" in found(stating, "window").message
    report = under(
        tmp_path / "run", library, "0.1.8.post2,0.1.9", "assert list(kernel.run(2)) == [0, 1]"
    )
    assert errors(report) == set()
    assert outcomes(report) == {"0.1.8.post2": "failed", "0.1.9": "passed"}
    assert all(run.agrees for run in report.dynamic[0].runs)


def test_module_across_its_change(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.MODULE)
    message = found(audit(probes.assemble(tmp_path, library)), "window").message
    assert "include 0.1.13 to 0.1.13.post0" in message
    report = under(
        tmp_path / "run", library, "0.1.12,0.1.13,0.1.13.post2",
        "ops = kernel._ops.ops\nassert kernel.run(ops, 'run')\nassert not kernel.run(ops, 'no')",
    )  # fmt: skip
    assert outcomes(report) == {"0.1.12": "passed", "0.1.13": "failed", "0.1.13.post2": "passed"}
    assert all(run.agrees for run in report.dynamic[0].runs)


@pytest.mark.parametrize(
    ("headers", "good", "bad", "span"),
    [("0.1.9", "0.1.12", "0.1.13", "0.1.13 to 0.1.15.post2"),
     ("0.1.13.post3", "0.1.13", "0.1.12", "0.1.0 to 0.1.12")],
)  # fmt: skip
def test_stringify_across_its_change(
    forge: Path, tmp_path: Path, headers: str, good: str, bad: str, span: str
) -> None:
    library = probes.compile_library(forge, probes.JSON, headers=headers)
    besides = errors(audit(library)) & {"manylinux"}  # with headers that g++ 12 is too new for
    stating = audit(probes.assemble(tmp_path, library, built_with=headers))
    assert f"include {span}" in found(stating, "window", *besides).message
    report = under(
        tmp_path / "run", library, f"{good},{bad}", "assert kernel.run([1, 2]) == '[1,2]'"
    )
    assert outcomes(report) == {good: "passed", bad: "failed"}
    assert all(run.agrees for run in report.dynamic[0].runs)


def test_cause_of_an_error_below_its_release(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.CAUSE)
    message = found(audit(probes.assemble(tmp_path, library)), "window").message
    assert "include 0.1.0 to 0.1.7, where it may break" in message
    report = under(
        tmp_path / "run", library, "0.1.7,0.1.8.post2",
        "def bad():\n    raise ValueError('x')\nassert kernel.run(bad) is False",
    )  # fmt: skip
    assert outcomes(report) == {"0.1.7": "failed", "0.1.8.post2": "passed"}


def test_crash_when_unloaded_at_exit(forge: Path, tmp_path: Path) -> None:
    library = probes.compile_library(forge, probes.CHECKED, compiler=probes.ZIG)
    report = under(
        tmp_path, library, "0.1.14.post0,0.1.14.post1", "assert kernel.run(3) == 3", floor="0.1.0"
    )
    found(report, "unload", "runtime")
    assert outcomes(report) == {"0.1.14.post0": "failed", "0.1.14.post1": "passed"}
    (fault,) = report.dynamic[0].runs[0].faults
    assert fault == "the process died by SIGSEGV while ending, after every call was right"


def test_command_fails_on_a_defect(forge: Path, tmp_path: Path) -> None:
    from tests.helpers import kernel_ci

    library = probes.compile_library(forge, probes.CHECKED, compiler=probes.ZIG)
    directory = probes.assemble(tmp_path, library)
    done = kernel_ci("audit", directory, "--runtimes", "floor", "--json")
    assert done.status == 1
    report = json.loads(done.out)
    assert report["dynamic"][0]["runs"][0]["outcome"] == "failed"
    assert "while ending" in done.err
    done = kernel_ci("audit", directory, "--runtimes", "newes")
    assert (done.status, "neither a version nor one of all, floor" in done.err) == (2, True)
    done = kernel_ci("audit", library, "--runtimes", "floor", "--tests", tmp_path)
    assert (done.status, "needs a variant directory" in done.err) == (2, True)
    assert kernel_ci("audit", directory, "--runtimes", "floor", "--tests", "nowhere").status == 2
    assert kernel_ci("audit", directory, "--tests", tmp_path).status == 2
