"""build.toml: what is read from it, and what is said about each kind of mistake in it."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tomli
from huggingface_hub.utils._validators import validate_repo_id
from kernels._rust import Backend, Build

from kernel_ci.cli import main
from kernel_ci.errors import InputError
from kernel_ci.kernel import (
    DEPENDENCIES,
    PYTHON_DEPENDENCIES,
    CudaComponent,
    Kernel,
    KernelError,
    numbers,
)
from tests.helpers import kernel_ci
from tests.unit.trees import GOOD, SMALL, SMALL_FILES, replaced, write_tree

Tweak = Callable[[Path], object]


# --- What is refused -----------------------------------------------------------------------


def refused(
    root: Path, capsys: pytest.CaptureFixture[str], where: str, what: str, fix: str
) -> list[tuple[str, str]]:
    """Plan a kernel through the real command; return the faults it told, one of them asked for."""
    status = main(["plan", str(root)])
    printed = capsys.readouterr()
    assert status == 2, printed.err
    assert printed.out == ""
    assert printed.err.startswith("bad input: ")
    assert "Traceback" not in printed.err
    faults = re.findall(r"(.+)\n  fix: (.+)\n", printed.err)
    assert "".join(f"{said}\n  fix: {mend}\n" for said, mend in faults) == printed.err
    assert any(f"{where}: " in said and what in said and fix in mend for said, mend in faults), (
        f"expected {where}: …{what}… fix: …{fix}…, got:\n{printed.err}"
    )
    return faults


def edit(old: str, new: str, key: str, what: str, fix: str, *, id: str, faults: int = 1) -> Any:
    """A case: one place of the good file changed, and what must be said about it."""
    return pytest.param(((old, new),), key, what, fix, faults, id=id)


EDITS = [
    # Shape of the file.
    edit("[general]\n", "[general\n", "", "is not TOML", "correct the line", id="broken-header"),
    edit("version = 3\n", "version = 3\nversion = 4\n", "", "is not TOML", "correct the line",
         id="key-twice"),
    edit("version = 3\n", f"version = {'1' * 5000}\n", "", "cannot be parsed", "huge numbers",
         id="number-of-5000-digits"),
    edit("[tvm-ffi]\n", f"[tvm-ffi]\ndeep = {'[' * 3000}{']' * 3000}\n", "", "cannot be parsed",
         "deep nesting", id="nested-3000-deep"),
    edit("[kernel.on_cpu]\n", "[extra]\n[kernel.on_cpu]\n", "extra", "is not a known key",
         "remove it; known are: general, kernel", id="unknown-section"),
    edit("[kernel.on_cpu]\n", "[kernels.on_cpu]\n", "kernels", "is not a known key",
         "write `kernel`", id="section-misspelt"),
    # Editions.
    edit("edition = 5", 'edition = "5"', "general.edition", "'5' is not supported", "`edition = 5`",
         id="edition-text"),
    edit("edition = 5", "edition = 4", "general.edition", "4 is not supported", "no such key",
         id="edition-4-written"),
    edit("edition = 5", "edition = 6", "general.edition", "6 is not supported", "`edition = 5`",
         id="edition-6"),
    edit("edition = 5", "edition = 5.0", "general.edition", "5.0 is not", "(a number)",
         id="edition-float"),
    edit("edition = 5", "edition = true", "general.edition", "True is not", "(a number)",
         id="edition-bool"),
    edit("edition = 5\n", "", "general.kernel-depends", "needs edition 5", "add `edition = 5`",
         id="edition-4-with-a-key-of-5"),
    # [general], key by key.
    edit('name = "good-kernel"\n', "", "general.name", "is missing", "add `name`", id="no-name"),
    edit("version = 3\n", "", "general.version", "is missing", "add `version`", id="no-version"),
    edit('license = "Apache-2.0"\n', "", "general.license", "is missing", "add `license`",
         id="no-license"),
    edit('backends = ["cpu", "cuda", "metal", "rocm", "xpu"]\n', "", "general.backends",
         "is missing", "add `backends`", id="no-backends"),
    edit('name = "good-kernel"', 'nmae = "good-kernel"', "general.nmae", "is not a known key",
         "write `name`", id="key-misspelt", faults=2),
    edit('name = "good-kernel"', "name = 7", "general.name", "is int 7", "write a string",
         id="name-number"),
    edit("version = 3", 'version = "3"', "general.version", "is str '3'", "without quotes",
         id="version-text"),
    edit("version = 3", "version = 3.0", "general.version", "is float 3.0", "a whole number",
         id="version-float"),
    edit("version = 3", "version = true", "general.version", "is bool True", "a whole number",
         id="version-bool"),
    edit("version = 3", "version = -1", "general.version", "is int -1", "not negative",
         id="version-negative"),
    edit("version = 3", "version = 9223372036854775808", "general.version", "is int 9223",
         "smaller", id="version-beyond-64-bits"),
    edit("version = 3", "version = 2020-01-01", "general.version", "is date", "a whole number",
         id="version-date"),
    edit('"Apache-2.0"', '" "', "general.license", "is empty", "SPDX", id="license-empty"),
    edit('["cpu", "cuda", "metal", "rocm", "xpu"]', '"cpu"', "general.backends", "is str 'cpu'",
         "a list", id="backends-text"),
    edit('["cpu", "cuda", "metal", "rocm", "xpu"]', '["cpu", 1]', "general.backends.1", "is int 1",
         "a string", id="backends-number"),
    edit('"https://git.example/org/upstream"', '"ftp://git.example/x"', "general.upstream",
         "is not a git URL", "https://", id="url-scheme"),
    edit('"https://git.example/org/upstream"', '"org/upstream"', "general.upstream",
         "is not a git URL", "https://", id="url-path"),
    edit('"git@git.example:org/source.git"', '"git.example:org/source.git"', "general.source",
         "is not a git URL", "https://", id="url-scp-without-user"),
    edit('"git@git.example:org/source.git"', '"https://git.example:99999/x"', "general.source",
         "is not a git URL", "https://", id="url-port"),
    edit('"git@git.example:org/source.git"', '"https://git.example/a b"', "general.source",
         "is not a git URL", "https://", id="url-space"),
    edit('["einops", "helion", "tvm-ffi"]', '["numpy"]', "general.python-depends",
         "'numpy' is not known", "use one of: einops, helion, tvm-ffi", id="python-depends"),
    edit("version = 1 }", 'version = 1, revision = "x" }', "general.kernel-depends.0",
         "exactly one of version and revision", "keep one", id="kernel-depends-both"),
    edit(", version = 1 }", " }", "general.kernel-depends.0",
         "exactly one of version and revision", "keep one", id="kernel-depends-neither"),
    edit("version = 1 }", 'version = "1" }', "general.kernel-depends.0.version", "is str '1'",
         "without quotes", id="kernel-depends-version-text"),
    edit("version = 1 }", "version = -1 }", "general.kernel-depends.0.version", "is int -1",
         "not negative", id="kernel-depends-version-negative"),
    edit('revision = "0a1b2c"', 'revision = ""', "general.cuda.kernel-depends.0.revision",
         "is str ''", "not empty", id="kernel-depends-revision-empty"),
    edit('repo-id = "org/general-dep"', 'repo-id = "general-dep"',
         "general.kernel-depends.0.repo-id", "is malformed", "<organisation>/<name>",
         id="kernel-depends-repo-id"),
    edit('repo-id = "org/cuda-dep"', 'repo_id = "org/cuda-dep"',
         "general.cuda.kernel-depends.0.repo_id", "is not a known key", "write `repo-id`",
         id="kernel-depends-underscore", faults=2),
    # Subtables of [general].
    edit("[general.hub]\n", "[general.hug]\n", "general.hug", "is not a known key", "write `hub`",
         id="subtable-misspelt"),
    edit("[general.tpu]\n", "[general.rocm]\n", "general.rocm", "is not a known key",
         "remove it; known are:", id="subtable-of-rocm"),
    edit('repo-id = "org/good-kernel"', 'repo_id = "org/good-kernel"', "general.hub.repo_id",
         "is not a known key", "write `repo-id`", id="hub-underscore"),
    edit('repo-id = "org/good-kernel"', 'colour = "red"', "general.hub.colour",
         "is not a known key", "known are: branch, repo-id", id="hub-unknown-key"),
    edit('"org/good-kernel"', '"good-kernel"', "general.hub.repo-id", "is malformed",
         "<organisation>/<name>", id="repo-id-without-organisation"),
    edit('"org/good-kernel"', '"org/good/kernel"', "general.hub.repo-id", "is malformed",
         "<organisation>/<name>", id="repo-id-three-parts"),
    edit('"org/good-kernel"', '"org/good--kernel"', "general.hub.repo-id", "is malformed",
         "<organisation>/<name>", id="repo-id-two-dashes"),
    edit('"v3-test"', '"feature/x"', "general.hub.branch", "is malformed", "v1",
         id="branch-slash"),
    edit('"v3-test"', '"-v3"', "general.hub.branch", "is malformed", "v1", id="branch-dash"),
    edit('minver = "12.6"\nmaxver', 'minver = "12.x"\nmaxver', "general.cuda.minver",
         "'12.x' is not <major>.<minor>", '"12.6"', id="minver-letters"),
    edit('maxver = "13.2"', 'maxver = ""', "general.cuda.maxver", "'' is not <major>.<minor>",
         '"12.6"', id="maxver-empty"),
    edit('maxver = "13.2"', 'maxver = "13"', "general.cuda.maxver", "'13' is not <major>.<minor>",
         '"12.6"', id="maxver-major-alone"),
    edit('maxver = "13.2"', 'maxver = "13.2.1"', "general.cuda.maxver", "is not <major>.<minor>",
         '"12.6"', id="maxver-three-numbers"),
    edit('maxver = "13.2"', "maxver = 13.2", "general.cuda.maxver", "is float 13.2",
         "a string", id="maxver-number"),
    edit('maxver = "13.2"', 'maxver = "12.4"', "general.cuda.minver",
         "12.6 is newer than maxver 12.4", "swap", id="minver-above-maxver"),
    edit('"nvidia-cutlass-dsl"', '"einops"', "general.cuda.python-depends", "'einops' is not known",
         "use one of: nvidia-cutlass-dsl", id="cuda-python-depends"),
    edit("python-depends = []", 'python-depends = ["jax"]', "general.tpu.python-depends",
         "'jax' is not known", "remove it", id="tpu-python-depends"),
    edit('["onednn"]', '"onednn"', "general.xpu.python-depends", "is str 'onednn'", "a list",
         id="xpu-python-depends-text"),
    # Backends against sections.
    edit('["cpu", "cuda", "metal", "rocm", "xpu"]', "[]", "general.backends", "is empty",
         "at least one", id="backends-empty", faults=6),
    edit('"rocm", "xpu"]', '"rocm", "xpu", "cpu"]', "general.backends", "lists 'cpu' twice",
         "once", id="backend-twice"),
    edit('"rocm", "xpu"]', '"rocm", "xpu", "cudaa"]', "general.backends",
         "'cudaa' is not a backend", "write 'cuda'", id="backend-misspelt"),
    edit('"rocm", "xpu"]', '"rocm", "xpu", "vulkan"]', "general.backends",
         "'vulkan' is not a backend", "use some of: cpu, cuda", id="backend-unknown"),
    edit('"rocm", "xpu"]', '"rocm", "xpu", "tpu"]', "general.backends",
         "'tpu' has no tvm-ffi build", "remove it", id="backend-unsupported"),
    edit('"rocm", "xpu"]', '"rocm", "xpu", "CPU"]', "general.backends", "'CPU' is not a backend",
         "use some of", id="backend-upper-case"),
    edit('"cpu", "cuda", "metal", "rocm", "xpu"]', '"cuda", "metal", "rocm", "xpu"]',
         "kernel.on_cpu.backend", "general.backends does not list", "add 'cpu'",
         id="section-outside-backends"),
    edit('[kernel.on_cpu]\nbackend = "cpu"', '[kernel.on_cpu]\nbackend = "xpu"',
         "general.backends", "no [kernel.<name>] has that backend", "add a kernel section",
         id="backend-without-section"),
    # The framework.
    edit("[tvm-ffi]\n", "[tvm_ffi]\n", "tvm_ffi", "is not a known key", "write `tvm-ffi`",
         id="framework-misspelt", faults=2),
    edit("[tvm-ffi]\n", "[torch]\n", "tvm-ffi", "[torch] kernels are not built",
         "have one section [tvm-ffi]", id="torch-instead"),
    edit("[tvm-ffi]\n", "[torch]\n[torch-noarch]\n", "tvm-ffi", "is missing; [torch]",
         "have one section [tvm-ffi]", id="two-torches-instead"),
    edit("[tvm-ffi]\n", "[torch]\n[tvm-ffi]\n", "tvm-ffi", "stands beside [torch]",
         "have one section [tvm-ffi]", id="torch-beside"),
    edit("[tvm-ffi]\n", "[[tvm-ffi]]\n", "tvm-ffi", "is list", "a table", id="framework-list"),
    edit('src = ["binding/binding.cc", "common.h"]\n', "", "tvm-ffi.src", "is missing",
         "add `src`", id="binding-without-src"),
    edit('["py", "json"]', '[".json"]', "tvm-ffi.pyext", "'.json' is not a file extension",
         "without a dot", id="pyext-dot"),
    edit('["py", "json"]', '[""]', "tvm-ffi.pyext", "'' is not a file extension", "without a dot",
         id="pyext-empty"),
    edit('["py", "json"]', '["a/b"]', "tvm-ffi.pyext", "'a/b' is not a file extension",
         "without a dot", id="pyext-slash"),
    edit('["py", "json"]', '"json"', "tvm-ffi.pyext", "is str 'json'", "a list", id="pyext-text"),
    edit('["-DBINDING"]', '["-DA;-DB"]', "tvm-ffi.cxx-flags", "cannot be passed", "without `;`",
         id="flag-semicolon"),
    # [kernel.<name>].
    edit("[kernel.on_cpu]\n", '[kernel."on cpu"]\n', "kernel.on cpu", "has a malformed name",
         "use letters", id="section-name-space", faults=1),
    edit("[kernel.on_cpu]\n", '[kernel."1\\n::error::x"]\n', "'kernel.1\\n::error::x'",
         "has a malformed name", "use letters", id="section-name-control-characters"),
    edit("[kernel.on_cpu]\n", "[[kernel.on_cpu]]\n", "kernel.on_cpu", "is not a table",
         "[kernel.on_cpu]", id="section-list"),
    edit('backend = "cpu"\n', "", "kernel.on_cpu.backend", "is missing", "use one of: cpu",
         id="section-without-backend"),
    edit('backend = "cpu"', 'backend = "tpu"', "kernel.on_cpu.backend", "'tpu' is not a backend",
         "use one of: cpu", id="section-backend-unsupported"),
    edit('backend = "cpu"', 'backend = ["cpu"]', "kernel.on_cpu.backend", "is not a backend",
         "use one of: cpu", id="section-backend-list"),
    edit('backend = "cpu"\ndepends = []\n', 'backend = "cpu"\n', "kernel.on_cpu.depends",
         "is missing", "add `depends`", id="no-depends"),
    edit('["cutlass_3_6"]', '["cutlass-3-6"]', "kernel.on_cuda.depends",
         "'cutlass-3-6' is not a known dependency", "write 'cutlass_", id="depends-misspelt"),
    edit('["cutlass_3_6"]', '["boost"]', "kernel.on_cuda.depends",
         "'boost' is not a known dependency", "use some of: cutlass_2_10", id="depends-unknown"),
    edit('["cutlass_3_6"]', '"cutlass_3_6"', "kernel.on_cuda.depends", "is str", "a list",
         id="depends-text"),
    edit("cuda-flags =", "cuda_flags =", "kernel.on_cuda.cuda_flags", "is not a known key",
         "write `cuda-flags`", id="kernel-key-underscore"),
    edit('cxx-flags = ["-O2", "-DNAME=a b"]', 'cuda-flags = ["-O2"]', "kernel.on_cpu.cuda-flags",
         "is not a known key", "write `cxx-flags`", id="cuda-key-for-cpu"),
    edit('"-O2", "-DNAME=a b"', r'"-O2\n-O3"', "kernel.on_cpu.cxx-flags", "cannot be passed",
         "one flag an entry", id="flag-newline"),
    edit('"-O2", "-DNAME=a b"', '" "', "kernel.on_cpu.cxx-flags", "cannot be passed",
         "one flag an entry", id="flag-empty"),
    edit('["--use_fast_math"]', '["-a;b"]', "kernel.on_cuda.cuda-flags", "cannot be passed",
         "without `;`", id="cuda-flag-semicolon"),
    edit('["-ffast-math"]', '["-a;b"]', "kernel.on_rocm.hip-flags", "cannot be passed",
         "without `;`", id="hip-flag-semicolon"),
    edit('["-fsycl-id-queries-fit-in-int"]', '["-a;b"]', "kernel.on_xpu.sycl-flags",
         "cannot be passed", "without `;`", id="sycl-flag-semicolon"),
    *(
        edit('["8.0", "9.0a", "10.0f", "12.0+PTX"]', f'["{bad}"]',
             "kernel.on_cuda.cuda-capabilities", f"{bad!r} is malformed", '"9.0"',
             id=f"capability-{number}")
        for number, bad in enumerate(
            ("9", "9.0z", "sm_90", "90", "9.0+ptx", "9.0 ", "10.00", "9.\u0660", "100.0", "")
        )
    ),
    edit('["8.0", "9.0a", "10.0f", "12.0+PTX"]', '["9.0", "9.0"]',
         "kernel.on_cuda.cuda-capabilities", "lists '9.0' twice", "once", id="capability-twice"),
    edit('["8.0", "9.0a", "10.0f", "12.0+PTX"]', "[]", "kernel.on_cuda.cuda-capabilities",
         "is empty", "remove the key", id="capabilities-empty"),
    edit('["8.0", "9.0a", "10.0f", "12.0+PTX"]', "[9.0]", "kernel.on_cuda.cuda-capabilities.0",
         "is float 9.0", "a string", id="capability-number"),
    *(
        edit('["gfx90a", "gfx1100"]', f'["{bad}"]', "kernel.on_rocm.rocm-archs",
             f"{bad!r} is malformed", '"gfx90a"', id=f"gfx-{number}")
        for number, bad in enumerate(("90a", "gfx", "GFX90A", "gfx90g", "gfx99999", "gfx\u06690a"))
    ),
    edit('["gfx90a", "gfx1100"]', '["gfx90a", "gfx90a"]', "kernel.on_rocm.rocm-archs",
         "lists 'gfx90a' twice", "once", id="gfx-twice"),
    edit('["gfx90a", "gfx1100"]', "[]", "kernel.on_rocm.rocm-archs", "is empty", "remove the key",
         id="gfx-empty"),
    edit('cuda-minver = "12.6"', 'cuda-minver = ""', "kernel.on_cuda.cuda-minver",
         "'' is not <major>.<minor>", '"12.8"', id="cuda-minver-empty"),
    edit('cuda-minver = "12.6"', 'cuda-minver = "latest"', "kernel.on_cuda.cuda-minver",
         "'latest' is not <major>.<minor>", '"12.8"', id="cuda-minver-word"),
    # Sources and include folders.
    edit('["cpu/one.cpp", "cpu/two.c"]', "[]", "kernel.on_cpu.src", "is empty",
         "list the source files", id="src-empty"),
    edit('["cpu/one.cpp", "cpu/two.c"]', '["common.h"]', "kernel.on_cpu.src", "has headers only",
         "to be compiled", id="src-headers-only"),
    edit('"cpu/two.c"', '"cpu/one.cpp"', "kernel.on_cpu.src", "lists 'cpu/one.cpp' twice", "once",
         id="src-twice"),
    edit('"cpu/two.c"', '"./cpu/one.cpp"', "kernel.on_cpu.src", "lists 'cpu/one.cpp' twice",
         "once", id="src-twice-spelt-differently"),
    edit('"cpu/two.c"', '"cpu/three.c"', "kernel.on_cpu.src", "'cpu/three.c' does not exist",
         "relative to build.toml", id="src-missing"),
    edit('"cpu/two.c"', '"cpu"', "kernel.on_cpu.src", "'cpu' is a folder", "name a file",
         id="src-folder"),
    edit('"cpu/two.c"', '"../two.c"', "kernel.on_cpu.src", "leads out of the kernel's folder",
         "copy it", id="src-dot-dot"),
    edit('"cpu/two.c"', '"cpu/../../good/cpu/two.c"', "kernel.on_cpu.src", "leads out",
         "copy it", id="src-out-and-back"),
    edit('"cpu/two.c"', '"/etc/hostname"', "kernel.on_cpu.src", "is an absolute path", "copy it",
         id="src-absolute"),
    edit('"cpu/two.c"', '""', "kernel.on_cpu.src", "is not a usable path", "use `/`",
         id="src-empty-name"),
    edit('"cpu/two.c"', r'"cpu\\two.c"', "kernel.on_cpu.src", "is not a usable path", "use `/`",
         id="src-backslash"),
    edit('"cpu/two.c"', r'"cpu/\u0000two.c"', "kernel.on_cpu.src", "is not a usable path",
         "no control characters", id="src-nul"),
    edit('"cpu/two.c"', '"cpu/one.cpp/two.c"', "kernel.on_cpu.src", "cannot be opened",
         "correct it", id="src-below-a-file"),
    edit('"cpu/two.c"', f'"{"a" * 300}.c"', "kernel.on_cpu.src", "cannot be opened: File name too",
         "correct it", id="src-name-too-long"),
    edit('"cpu/two.c"', '"metal/kernel.metal"', "kernel.on_cpu.src", "takes .metal files",
         "use .c, .cc, .cpp, .cxx or a header", id="src-metal-in-cpu"),
    edit('"cpu/two.c"', '"gpu/kernel.cu"', "kernel.on_cpu.src", "takes .cu files", "or a header",
         id="src-cuda-in-cpu"),
    edit('"gpu/kernel.cuh"', '"gpu/kernel.hip"', "kernel.on_cuda.src", "takes .hip files",
         "use .c, .cc, .cpp, .cxx, .cu or", id="src-hip-in-cuda"),
    edit('"binding/binding.cc", "common.h"', '"gpu/kernel.cu"', "tvm-ffi.src", "takes .cu files",
         "or a header", id="src-cuda-in-binding"),
    edit('"cpu/two.c"', '"build.toml"', "kernel.on_cpu.src", "takes .toml files", "or a header",
         id="src-unknown-suffix"),
    edit('["cpu/include"]', '["cpu/includes"]', "kernel.on_cpu.include", "does not exist",
         "relative to build.toml", id="include-missing"),
    edit('["cpu/include"]', '["cpu/one.cpp"]', "kernel.on_cpu.include", "is not a folder",
         "name a folder", id="include-file"),
    edit('["cpu/include"]', '[".."]', "kernel.on_cpu.include", "leads out", "copy it",
         id="include-dot-dot"),
    edit('["cpu/include"]', '["/usr/include"]', "kernel.on_cpu.include", "is an absolute path",
         "copy it", id="include-absolute"),
    edit('["cpu/include"]', '"cpu/include"', "kernel.on_cpu.include", "is str", "a list",
         id="include-text"),
    edit('["."]', f'["{"a" * 300}"]', "tvm-ffi.include", "cannot be opened", "correct it",
         id="include-name-too-long"),
    # The package.
    edit('"good-kernel"', '"other-kernel"', "general.name",
         "the Python package tvm-ffi-ext/other_kernel is missing",
         "write tvm-ffi-ext/other_kernel/__init__.py", id="package-missing"),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "key", "what", "fix", "faults"), EDITS)
def test_faults_in_the_text(
    edits: tuple[tuple[str, str], ...],
    key: str,
    what: str,
    fix: str,
    faults: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = write_tree(tmp_path / "good", replaced(GOOD, *edits))
    where = f"{root / 'build.toml'}: {key}" if key else f"{root / 'build.toml'}"
    told = refused(root, capsys, where, what, fix)
    assert len(told) == faults, told


@pytest.mark.parametrize(
    "name",
    ["", "a", "A-b", "1a", "-ab", "ab-", "a_b", "a b", "ab\\n", "é-a", "a/b", "../ab", "a" * 97],
)
def test_malformed_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "good", replaced(GOOD, ('"good-kernel"', f'"{name}"')))
    where = f"{root / 'build.toml'}: general.name"
    assert len(refused(root, capsys, where, "is malformed", "use 2 to 96 of a-z")) == 1


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_link(path: Path, target: Path | str) -> None:
    path.unlink()
    path.symlink_to(target)


TREES: list[Any] = [
    pytest.param(
        lambda root: _replace_by_link(root / "cpu/two.c", "/etc/hostname"),
        "build.toml: kernel.on_cpu.src", "is a link that leads out", "copy it", id="src-link-out",
    ),
    pytest.param(
        lambda root: _replace_by_link(root / "cpu/two.c", "../gone.c"),
        "build.toml: kernel.on_cpu.src", "does not exist", "relative", id="src-link-dangling",
    ),
    pytest.param(
        lambda root: _replace_by_link(root / "cpu/two.c", "two.c"),
        "build.toml: kernel.on_cpu.src", "cannot be opened", "correct it", id="src-link-loop",
    ),
    pytest.param(
        lambda root: (root / "xpu").rename(root.parent / "xpu")
        and (root / "xpu").symlink_to("../xpu"),
        "build.toml: kernel.on_xpu.src", "is a link that leads out", "copy it",
        id="folder-link-out",
    ),
    pytest.param(
        lambda root: _replace_by_folder(root / "cpu/two.c"),
        "build.toml: kernel.on_cpu.src", "is a folder", "name a file", id="src-is-a-folder",
    ),
    pytest.param(
        lambda root: (root / "tvm-ffi-ext/good_kernel/__init__.py").unlink(),
        "build.toml: general.name", "the Python package", "__init__.py", id="package-without-init",
    ),
    pytest.param(
        lambda root: (root / "tvm-ffi-ext/good_kernel/good_kernel").mkdir(),
        "build.toml: general.name", "would hide the package", "rename", id="package-hides-itself",
    ),
    pytest.param(
        lambda root: (root / "build.toml").unlink(),
        "good", "has no build.toml", "kernel-ci init", id="no-build-toml",
    ),
    pytest.param(
        lambda root: _replace_by_folder(root / "build.toml"),
        "build.toml", "cannot be read: Is a directory", "name a folder", id="build-toml-folder",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_bytes(b""),
        "build.toml: general", "is missing", "add a [general] section", id="empty-file",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_bytes(b"general = 1\n"),
        "build.toml: general", "is not a table", "add a [general] section", id="general-number",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_bytes(b"[[general]]\n"),
        "build.toml: general", "is not a table", "add a [general] section", id="general-list",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_bytes(b"\x7fELF\x02\x01\x01\x00\xff\xfe"),
        "build.toml", "is not UTF-8 (byte 8)", "save the file as UTF-8", id="binary",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_bytes(GOOD.encode("utf-16")),
        "build.toml", "is not UTF-8 (byte 0)", "save the file as UTF-8", id="utf-16",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_text('{"general": {"name": "json"}}'),
        "build.toml", "is not TOML", "correct the line", id="json",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_text(
            '[general]\nname = "old"\nbackends = ["cpu"]\n[torch]\nsrc = []\n'
        ),
        "build.toml: general.edition", "edition 3 or older (no general.version)", "migrate",
        id="edition-3",
    ),
    pytest.param(
        lambda root: (root / "build.toml").write_text(
            '[general]\nname = "old"\nversion = 1\nlicense = "MIT"\nbackends = ["cpu"]\n'
        ),
        "build.toml: general.edition", "edition 3 or older (no framework section)", "migrate",
        id="edition-3-noarch",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tweak", "where", "what", "fix"), TREES)
def test_faults_in_the_folder(
    tweak: Tweak,
    where: str,
    what: str,
    fix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = write_tree(tmp_path / "good")
    tweak(root)
    # Anchored at the left: the file, not only its name.
    refused(root, capsys, str(root.parent / where if where == "good" else root / where), what, fix)


@pytest.mark.parametrize(
    ("kernel", "key", "what", "fix"),
    [
        ("", "general.backends", "no [kernel.<name>] has that backend", "add a kernel section"),
        ("kernel = []\n", "kernel", "is not a table", "[kernel.<name>]"),
        ("kernel = 1\n", "kernel", "is not a table", "[kernel.<name>]"),
        ("kernel.x = 1\n", "kernel.x", "is not a table", "[kernel.x]"),
    ],
)
def test_no_section_for_a_backend(
    kernel: str,
    key: str,
    what: str,
    fix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = kernel + SMALL.partition("[kernel")[0]
    root = write_tree(tmp_path / "small", text, SMALL_FILES)
    refused(root, capsys, f"{root / 'build.toml'}: {key}", what, fix)


def test_all_faults_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = replaced(
        GOOD,
        ('"Apache-2.0"', '""'),
        ('"cpu/two.c"', '"cpu/three.c"'),
        ('["gfx90a", "gfx1100"]', '["mi300"]'),
    )
    root = write_tree(tmp_path / "good", text)
    told = refused(root, capsys, f"{root / 'build.toml'}: general.license", "is empty", "SPDX")
    assert len(told) == 3


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gone", "no such folder"),
        ("n" * 300, "cannot be read: File name too long"),
        ("good/common.h", "cannot be read: Not a directory"),
    ],
)
def test_not_a_folder(
    name: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "good")
    assert main(["plan", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    said, _, fix = printed.err.partition("\n  fix: ")
    assert said.startswith(f"bad input: {tmp_path / name}")
    assert said.endswith(f": {what}")
    assert fix == "name a folder with a build.toml\n"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_in_a_process_of_its_own(number: int, tmp_path: Path) -> None:
    text = (GOOD + "[", replaced(GOOD, ('"cpu/two.c"', '"../two.c"')), "")[number]
    root = write_tree(tmp_path / "good", text)
    done = kernel_ci("plan", root)
    assert done.status == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith(f"bad input: {root / 'build.toml'}")


def test_two_kernels_of_which_one_is_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = write_tree(tmp_path / "small", SMALL, SMALL_FILES)
    bad = write_tree(tmp_path / "good", replaced(GOOD, ("version = 3", "version = -3")))
    assert main(["plan", str(small), str(bad), "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{bad / 'build.toml'}: general.version" in printed.err


# --- What is read --------------------------------------------------------------------------


def test_every_key_is_read(tmp_path: Path) -> None:
    kernel = Kernel.read(write_tree(tmp_path / "good"))
    assert kernel.notices == ()
    assert kernel.path == (tmp_path / "good").resolve()
    assert (kernel.name, kernel.python_name) == ("good-kernel", "good_kernel")
    assert kernel.package == kernel.path / "tvm-ffi-ext" / "good_kernel"
    assert kernel.tests == kernel.path / "tests"
    assert kernel.backends == ("cpu", "cuda", "metal", "rocm", "xpu")
    assert kernel.branch == "v3-test"
    read = {
        "general": kernel.general.model_dump(by_alias=True, exclude_none=True),
        "tvm-ffi": kernel.tvm_ffi.model_dump(by_alias=True),
        "kernel": {n: c.model_dump(by_alias=True) for n, c in kernel.components.items()},
    }
    assert read == tomli.loads(GOOD)


def test_what_metadata_lists(tmp_path: Path) -> None:
    kernel = Kernel.read(write_tree(tmp_path / "good"))
    general = {"repo-id": "org/general-dep", "version": 1}
    assert kernel.kernel_depends("cpu") == [general]
    assert kernel.kernel_depends("cuda") == [
        general,
        {"repo-id": "org/cuda-dep", "revision": "0a1b2c"},
    ]
    assert kernel.kernel_depends("xpu") == [general, {"repo-id": "org/xpu-dep", "version": 0}]
    assert kernel.python_depends("rocm") == ["einops", "helion", "tvm-ffi"]
    assert kernel.python_depends("cuda") == ["einops", "helion", "tvm-ffi", "nvidia-cutlass-dsl"]
    assert kernel.python_depends("xpu") == ["einops", "helion", "tvm-ffi", "onednn"]


def test_components_by_toolkit_version(tmp_path: Path) -> None:
    more = GOOD + (
        '\n[kernel.newer]\nbackend = "cuda"\ndepends = []\nsrc = ["gpu/kernel.cu"]\n'
        'cuda-minver = "13.0"\n'
    )
    kernel = Kernel.read(write_tree(tmp_path / "good", more))
    assert list(kernel.components_of("cuda")) == ["on_cuda", "newer"]
    assert list(kernel.components_of("cuda", "13.0")) == ["on_cuda", "newer"]
    assert list(kernel.components_of("cuda", "12.9")) == ["on_cuda"]
    assert list(kernel.components_of("cuda", "12.4")) == []
    assert list(kernel.components_of("rocm", "7.1")) == ["on_rocm"]
    assert list(kernel.components_of("tpu")) == []


def test_least_that_can_be_written(tmp_path: Path) -> None:
    kernel = Kernel.read(write_tree(tmp_path / "small", SMALL, SMALL_FILES))
    assert kernel.general.version == 0
    assert kernel.branch == "v0"
    assert kernel.general.hub.repo_id is None
    assert kernel.kernel_depends("cpu") == []
    assert kernel.python_depends("cpu") == []


def test_a_build_toml_can_be_named_itself(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "small", SMALL, SMALL_FILES)
    assert Kernel.read(root / "build.toml") == Kernel.read(root)


def test_edition_4_is_read_with_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_tree(tmp_path / "old", replaced(SMALL, ("edition = 5\n", "")), SMALL_FILES)
    new = write_tree(tmp_path / "new", SMALL, SMALL_FILES)
    (notice,) = Kernel.read(old).notices
    assert "edition 4" in notice
    assert "add `edition = 5`" in notice
    assert Kernel.read(old).components == Kernel.read(new).components
    assert main(["plan", str(old), "--json"]) == 0
    printed = capsys.readouterr()
    assert f"notice: {old}: {notice}" in printed.err
    assert json.loads(printed.out)["kernels"][0]["name"] == "small"


@pytest.mark.parametrize("backend", ["cuda", "xpu", "neuron"])
def test_edition_4_has_no_kernel_depends(backend: str, tmp_path: Path) -> None:
    text = replaced(SMALL, ("edition = 5\n", "")) + (
        f'[general.{backend}]\nkernel-depends = [{{ repo-id = "a/b", version = 1 }}]\n'
    )
    root = write_tree(tmp_path / "small", text, SMALL_FILES)
    with pytest.raises(KernelError, match="needs edition 5") as caught:
        Kernel.read(root)
    assert caught.value.faults[0].key == f"general.{backend}.kernel-depends"


@pytest.mark.parametrize(
    ("version", "expected"),
    [("13", (13,)), ("13.0", (13,)), ("12.6", (12, 6)), ("0", ()), ("12.10", (12, 10))],
)
def test_numbers(version: str, expected: tuple[int, ...]) -> None:
    assert numbers(version) == expected
    assert numbers("12.10") > numbers("12.9")


# --- Against upstream's own parser ---------------------------------------------------------

GOOD_EDITS: list[Any] = [
    pytest.param((), id="as-it-is"),
    pytest.param((("version = 3", "version = 0"),), id="version-0"),
    pytest.param((("version = 3", "version = 9223372036854775807"),), id="largest-version"),
    pytest.param((("[general]\n", "\ufeff[general]\n"),), id="byte-order-mark"),
    pytest.param((("[general.tpu]\npython-depends = []\n", "[general.tpu]\n"),), id="empty-table"),
    pytest.param((('"https://git.example/org/upstream"', '"ssh://git@git.example:22/u.git"'),),
                 id="ssh"),
    pytest.param((('"https://git.example/org/upstream"', '"git+https://git.example"'),),
                 id="git+https"),
    pytest.param((('"https://git.example/org/upstream"', '"HTTPS://GIT.EXAMPLE/x"'),), id="upper"),
    pytest.param((('"https://git.example/org/upstream"', '"http://[::1]:8080/x"'),), id="ipv6"),
    pytest.param((('"https://git.example/org/upstream"', '"git@git.example:22:x"'),), id="scp"),
    pytest.param((('minver = "12.6"\nmaxver = "13.2"', 'minver = "13.0"\nmaxver = "13.0"'),),
                 id="equal-range"),
    pytest.param((('minver = "12.6"\nmaxver', "maxver"),), id="maxver-alone"),
    pytest.param((('["8.0", "9.0a", "10.0f", "12.0+PTX"]', '["9.0a+PTX", "12.1", "7.5"]'),),
                 id="capabilities"),
    pytest.param((('["gfx90a", "gfx1100"]', '["gfx906", "gfx942", "gfx1201"]'),), id="gfx"),
    pytest.param((('cuda-minver = "12.6"', 'cuda-minver = "9999.9999"'),), id="cuda-minver"),
    pytest.param((('"cpu/two.c"', '"./cpu/two.c"'),), id="dot-slash"),
    pytest.param((('"cpu/two.c"', '"cpu/include/one.h"'),), id="header-among-sources"),
    pytest.param((('["cpu/include"]', '["cpu/include/", "cpu/./include"]'),), id="trailing-slash"),
    pytest.param((('["py", "json"]', '["tar.gz"]'),), id="pyext-two-parts"),
    pytest.param((('["py", "json"]', "[]"),), id="pyext-none"),
    pytest.param((('license = "Apache-2.0"', 'license = "Größe ∞ 🦙"'),), id="unicode"),
    pytest.param((('"org/good-kernel"', '"Org.1/good_kernel.v2"'),), id="repo-id"),
    pytest.param((("[kernel.on_cpu]", "[kernel.ON-cpu_2]"),), id="section-name"),
    pytest.param((('depends = ["metal-cpp"]', "depends = []"),), id="no-depends"),
]  # fmt: skip


@pytest.mark.parametrize("edits", GOOD_EDITS)
def test_what_is_accepted_is_read_by_upstream_alike(
    edits: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "good", replaced(GOOD, *edits))
    kernel, theirs = Kernel.read(root), Build.open(root)
    assert [str(backend) for backend in theirs.general.backends] == list(kernel.backends)
    for backend in ("cpu", "cuda", "metal", "rocm", "xpu"):
        depends = theirs.all_kernel_depends(Backend.from_str(backend))
        assert [d.repo_id for d in depends] == [
            d["repo-id"] for d in kernel.kernel_depends(backend)
        ]


def test_links_inside_the_folder_are_fine(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "good")
    (root / "cpu/real.c").write_text("")
    _replace_by_link(root / "cpu/two.c", "real.c")
    assert Kernel.read(root).components["on_cpu"].src == ["cpu/one.cpp", "cpu/two.c"]
    # The folder itself may be reached through a link.
    (tmp_path / "link").symlink_to("good")
    assert Kernel.read(tmp_path / "link").path == root.resolve()


def test_python_dependencies_are_those_of_the_client() -> None:
    theirs = json.loads((files("kernels") / "python_depends.json").read_text())
    ours = {backend: set(names) for backend, names in PYTHON_DEPENDENCIES.items() if names}
    known = {"general": theirs["general"], **theirs["backends"]}
    assert ours == {backend: set(names) for backend, names in known.items() if names}


def test_dependencies_are_those_of_upstream(tmp_path: Path) -> None:
    names = ", ".join(f'"{name}"' for name in DEPENDENCIES)
    text = replaced(GOOD, ('["cutlass_3_6"]', f"[{names}]"))
    Build.open(write_tree(tmp_path / "all", text))
    with pytest.raises(ValueError, match="Expected one of"):
        Build.open(
            write_tree(tmp_path / "bad", replaced(GOOD, ('["cutlass_3_6"]', '["cutlass_9_9"]')))
        )


REPO_IDS = [
    "a/b", "org/name", "Org/Na.me_1", "o_/n_", "_a/_b", "a/" + "b" * 96, "a/" + "b" * 97, "a--b/c",
    "a/b--c", "a/b..c", "a/b.git", "a/b.", "a/-b", ".a/b", "a./b", "a/b c", "a/b\n", "é/b", "/b",
    "a/", "a", "a/b/c", "",
]  # fmt: skip


@pytest.mark.parametrize("repo_id", REPO_IDS)
def test_repo_ids_that_are_accepted_the_hub_client_accepts(repo_id: str, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "good", replaced(GOOD, ('"org/good-kernel"', json.dumps(repo_id))))
    try:
        validate_repo_id(repo_id)
        valid = repo_id.count("/") == 1 and repo_id.isascii() and repo_id.strip() == repo_id
    except ValueError:
        valid = False
    if valid:
        assert Kernel.read(root).general.hub.repo_id == repo_id
    else:
        with pytest.raises(KernelError, match=r"general\.hub\.repo-id"):
            Kernel.read(root)


# --- Whatever else is written --------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    0, -1, 1, 5, 2**70, 1.5, float("nan"), float("inf"), True, False, "", " ", "5", "cpu", "cuda",
    "a" * 300, "../x", "/", "a;b", "a\nb", "a\0b", "é🦙", "12.6", "1e9999", "org/name", "$(x)", ".",
    [], [[]], ["cpu"], ["cpu", "cpu"], [1], [""], [{}], {}, {"": ""}, {"backend": "cpu"}, ["."],
    [{"repo-id": "a/b", "version": 1}], ["binding/binding.cc"], ["common.h"], {"x": {"y": [1]}},
)  # fmt: skip


def _places(table: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a document."""
    if isinstance(table, dict):
        keys: list[Any] = list(table)
    elif isinstance(table, list):
        keys = list(range(len(table)))
    else:
        return []
    return [(table, key) for key in keys] + [p for key in keys for p in _places(table[key])]


def _toml(value: Any) -> str:
    """Return a value in TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def test_random_documents_are_read_or_refused(tmp_path: Path) -> None:
    random_ = random.Random(20)
    root = write_tree(tmp_path / "good")
    good = tomli.loads(GOOD)
    outcomes = {"read": 0, "refused": 0}
    without_fix: list[bool] = []
    for _ in range(400):
        data = copy.deepcopy(good)
        for _ in range(random_.choice((1, 1, 2, 4))):
            container, key = random_.choice(_places(data))
            action = random_.choice(("set", "set", "set", "drop", "rename", "double"))
            if action == "set":
                container[key] = random_.choice(VALUES)
            elif action == "drop":
                del container[key]
            elif isinstance(container, list):
                container.append(container[key])
            else:
                container[random_.choice((f"{key}s", str(key).replace("-", "_"), "src"))] = (
                    container[key]
                )
        text = "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in data.items())
        (root / "build.toml").write_text(text)
        try:
            kernel = Kernel.read(root)
        except InputError as error:
            outcomes["refused"] += 1
            without_fix += ["fix: " not in str(error)]
            continue
        outcomes["read"] += 1
        theirs = Build.open(root)
        assert [str(backend) for backend in theirs.general.backends] == list(kernel.backends), text
    assert min(outcomes.values()) >= 25, outcomes
    assert not any(without_fix)


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    random_ = random.Random(21)
    root = write_tree(tmp_path / "good")
    good = GOOD.encode()
    for _ in range(200):
        data = bytearray(good)
        for _ in range(random_.randint(1, 20)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        (root / "build.toml").write_bytes(data)
        try:
            kernel = Kernel.read(root)
        except InputError:
            continue
        Build.open(root)
        assert all(isinstance(c.src, list) for c in kernel.components.values())


def test_kinds_of_components(tmp_path: Path) -> None:
    kernel = Kernel.read(write_tree(tmp_path / "good"))
    cuda = kernel.components["on_cuda"]
    assert isinstance(cuda, CudaComponent)
    assert cuda.cuda_capabilities == ["8.0", "9.0a", "10.0f", "12.0+PTX"]
