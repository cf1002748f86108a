"""The judges of the static audit: facts in, findings out."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_ci import abi
from kernel_ci.abi.window import RuntimeWindow
from kernel_ci.audit import judge
from kernel_ci.audit.facts import DirectoryFacts, Import, LibraryFacts, PythonFacts
from kernel_ci.audit.report import Finding, LibraryReport, VariantReport

CPU = "tvm-ffi01-cpu-x86_64-linux"
STAMP = '{"format": 1, "tvm-ffi": "0.1.15.post2", "header-macro": "0.1.16"}'


def library(**changes: Any) -> LibraryFacts:
    """A good library, with changes."""
    facts: dict[str, Any] = {
        "path": "_relu_cpu_abc.so",
        "size": 1000,
        "format": "elf",
        "arch": "x86_64",
        "os": "linux",
        "needed": ("libtvm_ffi.so", "libc.so.6", "libstdc++.so.6"),
        "version_needs": {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.28")},
        "imports": (
            Import(name="TVMFFIErrorSetRaised"),
            Import(name="memcpy", version="GLIBC_2.14", library="libc.so.6"),
            Import(name="__gmon_start__", weak=True),
        ),
        "functions": ("relu",),
        "stamp": STAMP,
    }
    return LibraryFacts.model_validate(facts | changes)


def mac(**changes: Any) -> LibraryFacts:
    """A good library for macOS, with changes."""
    facts: dict[str, Any] = {
        "path": "_relu_cpu_abc.dylib",
        "format": "macho",
        "arch": "aarch64",
        "os": "darwin",
        "needed": ("@rpath/libtvm_ffi.dylib", "/usr/lib/libSystem.B.dylib"),
        "version_needs": {},
        "imports": (Import(name="TVMFFIErrorSetRaised", library="@rpath/libtvm_ffi.dylib"),),
        "min_os": "15.0",
    }
    return library(**(facts | changes))


def directory(name: str = CPU, **changes: Any) -> DirectoryFacts:
    """A good variant directory, with changes."""
    facts: dict[str, Any] = {
        "name": name,
        "files": ("__init__.py", "_ops.py", "_relu_cpu_abc.so", "metadata.json"),
        "metadata": {
            "name": "relu",
            "id": "_relu_cpu_abc",
            "version": 1,
            "license": "MIT",
            "backend": {"type": "cpu"},
        },
        "digest_faults": (),
        "python": PythonFacts(public=("relu",), ops={"relu": "__init__.py"}),
    }
    return DirectoryFacts.model_validate(facts | changes)


def metadata(**changes: Any) -> dict[str, Any]:
    return {**(directory().metadata or {}), **changes}


def errors(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.check, f.message) for f in findings if f.level == "error"]


def one(findings: list[Finding], check: str, *said: str) -> Finding:
    """Return the only finding of a check, and assert what it says."""
    assert {f.check for f in findings} == {check}
    assert len(findings) == 1
    for text in said:
        assert text in findings[0].message
    return findings[0]


def test_good_library_and_directory() -> None:
    assert judge.library(library(), "cpu") == []
    assert judge.library(mac(), "cpu") == []
    assert judge.directory(directory(), [library()]) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("libtorch.so", "on no list"),
        ("libc10.so", "on no list"),
        ("libcudart.so.13", "belongs to cuda"),
        ("libcuda.so.1", "belongs to cuda"),
        ("libgomp.so.1", "on no list"),
    ],
)
def test_needed_library(name: str, said: str) -> None:
    needed = (*library().needed, name)
    one(judge.library(library(needed=needed), "cpu"), "needed", name, said)


def test_needed_library_of_the_backend() -> None:
    needed = (*library().needed, "libcudart.so.13", "libcuda.so.1")
    imports = (Import(name="cuLaunchKernel"), Import(name="__cudaRegisterFatBinary"))
    facts = library(needed=needed, imports=imports)
    assert judge.library(facts, "cuda") == []
    assert judge.library(facts, None) == []  # nothing tells the backend


def test_needed_library_ignores_case_on_windows_only() -> None:
    facts = library(os="windows", format="pe", needed=("KERNEL32.dll", "tvm_ffi.dll"), imports=())
    assert judge.library(facts, "cpu") == []
    upper = library(needed=("libtvm_ffi.so", "LIBC.so.6"))
    one(judge.library(upper, "cpu"), "needed", "LIBC.so.6")


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("__cxa_call_terminate", "libstdc++ of GCC 13"),
        ("_ZN3c105ErrorC1Ev", "torch's"),
        ("PyErr_SetString", "Python's"),
        ("cudaMalloc", "CUDA's"),
        ("_ZN6kernel5relu_Ev", "nothing that the library may count on"),
    ],
)
def test_undefined_symbol(symbol: str, said: str) -> None:
    facts = library(imports=(*library().imports, Import(name=symbol)))
    one(judge.library(facts, "cpu"), "undefined", symbol, said)


def test_undefined_symbol_that_has_a_provider() -> None:
    weak = Import(name="_ZGTtdlPv", weak=True)
    exported_as_std = Import(name="_ZTVN3tvm3ffi9ModuleObjE")
    facts = library(imports=(weak, exported_as_std))
    assert judge.library(facts, "cpu") == []


@pytest.mark.parametrize(
    ("owner", "version", "bad"),
    [
        ("libc.so.6", "GLIBC_2.28", False),
        ("libc.so.6", "GLIBC_2.29", True),
        ("libc.so.6", "GLIBC_2.9", False),  # numbers, not text
        ("libc.so.6", "GLIBC_2.3.4", False),
        ("libc.so.6", "GLIBC_PRIVATE", True),
        ("libc.so.6", "GLIBC_ABI_DT_RELR", True),
        ("libstdc++.so.6", "GLIBCXX_3.4.24", False),
        ("libstdc++.so.6", "GLIBCXX_3.4.26", True),
        ("libstdc++.so.6", "CXXABI_1.3.12", True),
        ("libstdc++.so.6", "CXXABI_FLOAT128", False),
        ("libgcc_s.so.1", "GCC_3.0", False),
        ("libgcc_s.so.1", "GCC_12.0.0", True),
        ("libcudart.so.13", "libcudart.so.13", False),
    ],
)
def test_symbol_versions(owner: str, version: str, bad: bool) -> None:
    facts = library(
        version_needs={owner: (version,)},
        imports=(Import(name="f", version=version, library=owner),),
    )
    found = judge.library(facts, "cpu")
    if bad:
        one(found, "manylinux", version, "manylinux_2_28", owner, "for f")
    else:
        assert found == []


@pytest.mark.parametrize(
    ("backend", "minimum", "bad"),
    [("cpu", "15.0", False), ("cpu", "15.1", True), ("cpu", "9.0", False), ("cpu", "26.0", True),
     ("metal", "26.0", False), ("metal", "26.1", True), (None, "26.0", False)],
)  # fmt: skip
def test_macos_minimum(backend: str | None, minimum: str, bad: bool) -> None:
    found = judge.library(mac(min_os=minimum), backend)
    if bad:
        one(found, "macos-version", minimum)
    else:
        assert found == []


def test_macos_minimum_missing() -> None:
    one(judge.library(mac(min_os=None), "cpu"), "macos-version", "does not say")


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"rpath": ("/home/me/lib",)}, "rpath"),
        ({"executable_stack": True}, "executable-stack"),
        ({"text_relocations": True}, "text-relocations"),
        ({"functions": ()}, "functions"),
    ],
)
def test_loading(change: dict[str, Any], check: str) -> None:
    assert one(judge.library(library(**change), "cpu"), check).level == "error"


def test_unstripped_is_a_warning() -> None:
    assert one(judge.library(library(stripped=False), "cpu"), "stripped").level == "warning"


# --- stamp, headers, window --------------------------------------------------------------


def stated(floor: str = "0.1.0", built_with: str = "0.1.15.post2", **more: Any) -> RuntimeWindow:
    return RuntimeWindow.model_validate({"built-with": built_with, "floor": floor, **more})


def test_unstripped_is_a_note_on_macos() -> None:
    # zig's linker cannot strip there.
    assert one(judge.library(mac(stripped=False), "cpu"), "stripped").level == "note"


def exit_handlers(*names: str, **changes: Any) -> LibraryFacts:
    imports = [Import(name=name, version="GLIBC_2.2.5", library="libc.so.6") for name in names]
    return library(imports=(*library().imports, *imports), **changes)


def test_exit_handlers_that_nothing_runs() -> None:
    facts = exit_handlers("__cxa_atexit", stays_loaded=False)
    one(judge.library(facts, "cpu"), "unload", "while it ends")


def test_exit_handlers_that_are_run_or_stay() -> None:
    for facts in (
        exit_handlers("__cxa_atexit", stays_loaded=True),
        exit_handlers("__cxa_atexit", "__cxa_finalize", stays_loaded=False),
        exit_handlers(stays_loaded=False),
    ):
        assert judge.library(facts, "cpu") == []


def test_libstdcxx_without_a_version() -> None:
    symbol = "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev"
    facts = library(imports=(*library().imports, Import(name=symbol)))
    one(judge.library(facts, "cpu"), "undefined", "took it from libtvm_ffi")


def test_stamp_agrees() -> None:
    assert judge.headers_of(library(), stated()) == ("0.1.15.post2", [])


def test_stamp_missing() -> None:
    headers, found = judge.headers_of(library(stamp=None), None)
    assert headers is None
    assert one(found, "stamp", "no build stamp").level == "warning"
    assert judge.headers_of(library(stamp=None), stated(built_with="0.1.9"))[0] == "0.1.9"


def test_stamp_and_metadata_disagree() -> None:
    headers, found = judge.headers_of(library(), stated(built_with="0.1.9"))
    assert headers == "0.1.15.post2"
    assert one(found, "stamp", "0.1.15.post2", "0.1.9").level == "error"


def test_stamp_and_headers_disagree() -> None:
    stamp = '{"format": 1, "tvm-ffi": "0.1.9", "header-macro": "0.1.16"}'
    found = judge.headers_of(library(stamp=stamp), None)[1]
    assert one(found, "stamp", "0.1.16", "0.1.9").level == "error"


@pytest.mark.parametrize("stamp", ["", "nonsense", "{}", "[]", '{"format": 2}'])
def test_stamp_malformed(stamp: str) -> None:
    headers, found = judge.headers_of(library(stamp=stamp), None)
    assert headers is None
    assert one(found, "stamp").level == "error"


def test_bad_headers() -> None:
    stamp = '{"format": 1, "tvm-ffi": "0.1.13", "header-macro": "0.1.13"}'
    found = judge.headers_of(library(stamp=stamp), None)[1]
    assert one(found, "headers", "0.1.13").level == "error"


def runtimes(statement: RuntimeWindow | None, **changes: Any) -> list[Finding]:
    facts = library(**changes)
    window = abi.judge(
        [entry.name for entry in facts.imports], facts.features, "0.1.15.post2", facts.platform
    )
    return judge.runtimes(facts, window, statement)


def imports(*names: str) -> tuple[Import, ...]:
    return tuple(Import(name=name) for name in names)


def test_window_stated_right() -> None:
    assert runtimes(stated()) == []
    allocator = imports("TVMFFIGetCustomAllocator")
    assert runtimes(stated(floor="0.1.13"), imports=allocator) == []


def test_window_stated_too_wide() -> None:
    found = runtimes(stated(floor="0.1.12"), imports=imports("TVMFFIGetCustomAllocator"))
    assert one(found, "window", "0.1.12", "TVMFFIGetCustomAllocator").level == "error"
    assert "floor 0.1.13" in found[0].fix


def test_list_below_its_release() -> None:
    found = runtimes(stated(floor="0.1.0"), features=("List",))
    assert one(found, "window", "0.1.0 to 0.1.8.post2", "type List").level == "error"


def test_module_across_its_layouts() -> None:
    found = runtimes(stated(), features=("Module",))
    assert one(found, "window", "0.1.13 to 0.1.13.post0").level == "error"
    denied = [{"version": v, "reason": "x"} for v in ("0.1.13", "0.1.13.post0")]
    assert runtimes(stated(denied=denied), features=("Module",)) == []


def test_stringify_across_its_signatures() -> None:
    old = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyENS0_8OptionalIivEE"
    found = runtimes(stated(), imports=imports(old))
    assert errors(found) == [("window", next(f.message for f in found if f.check == "window"))]
    assert "newest 0.1.12" in next(f.fix for f in found if f.check == "window")
    assert errors(runtimes(stated(newest="0.1.12"), imports=imports(old))) == []


def test_caught_error_below_its_layout_needs_proof() -> None:
    found = runtimes(stated(floor="0.1.0"), imports=imports("TVMFFIErrorMoveFromRaised"))
    assert one(found, "window", "0.1.0 to 0.1.7", "may break").level == "error"
    assert "prove it" in found[0].fix
    assert runtimes(stated(floor="0.1.8"), imports=imports("TVMFFIErrorMoveFromRaised")) == []


def test_caught_error_is_proven_by_a_test_in_its_epoch() -> None:
    facts = library(imports=imports("TVMFFIErrorMoveFromRaised"))
    names = [entry.name for entry in facts.imports]
    window = abi.judge(names, (), "0.1.15.post2", facts.platform)
    old = ("0.1.0", "0.1.5", "0.1.7")
    assert judge.runtimes(facts, window, stated(), old) == []
    one(judge.runtimes(facts, window, stated(), old[1:]), "window", "0.1.0 to 0.1.4")


def test_window_stated_narrower_than_need_be() -> None:
    assert one(runtimes(stated(floor="0.1.9")), "window", "refuses 0.1.0").level == "note"


def test_window_not_stated() -> None:
    assert one(runtimes(None), "window", "0.1.0 to").level == "note"


def test_symbol_of_no_release() -> None:
    found = runtimes(None, imports=imports("TVMFFIInvented"))
    assert one(found, "tvm-ffi-symbol", "TVMFFIInvented").level == "error"


# --- directory ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        ({"files": ("_ops.py", "metadata.json")}, "layout", "is missing"),
        ({"files": (*directory().files, "a.pyc")}, "layout", "bytecode"),
        ({"files": (*directory().files, "__pycache__/x")}, "layout", "bytecode"),
        ({"links": {"x.py": "/etc/passwd"}}, "layout", "symbolic link"),
        ({"metadata_error": "missing field `id`"}, "metadata", "missing field"),
        ({"metadata": metadata(backend={"type": "cuda"}, id="_relu_cuda_abc"),
          "files": ("__init__.py", "_ops.py")}, "metadata", "says backend cuda"),
        ({"metadata": metadata(id="_gelu_cpu_abc")}, "metadata", "_relu_cpu_"),
        ({"metadata": metadata(id="_relu_cpu_a.b")}, "metadata", "_relu_cpu_"),
        ({"digest_faults": None}, "digest", "no digest"),
        ({"digest_faults": ("x.py was added",)}, "digest", "was added"),
        ({"python": PythonFacts(public=("relu",), ops={"relu": "a.py", "gelu": "b.py"})},
         "python-api", "ops.gelu"),
        ({"python": PythonFacts(public=("relu",), ops={"relu": "a.py"},
                                unreadable={"b.py": "invalid syntax"})}, "layout", "valid Python"),
    ],
)  # fmt: skip
def test_directory(change: dict[str, Any], check: str, said: str) -> None:
    found = [f for f in judge.directory(directory(**change), [library()]) if f.level == "error"]
    assert (check, True) in [(f.check, said in f.message) for f in found]
    assert {f.check for f in found} <= {check, "layout"}


def test_directory_name() -> None:
    found = judge.directory(directory("tvm-ffi01-cpu-arm64-linux"), [library()])
    one(found, "variant-name", "arm64")


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (CPU, library(arch="aarch64")),
        ("tvm-ffi01-cpu-aarch64-linux", library()),
        (CPU, library(os="darwin", arch="x86_64")),
        (CPU, library(arch="EM_RISCV")),
    ],
)
def test_wrong_machine(name: str, facts: LibraryFacts) -> None:
    one(judge.directory(directory(name), [facts]), "machine", facts.platform, name[14:])


def test_library_not_named_after_the_id() -> None:
    one(judge.directory(directory(), [library(path="relu.so")]), "layout", "_relu_cpu_abc.so")


def test_no_library() -> None:
    one(judge.directory(directory(), []), "layout", "no library")


def test_functions_of_other_backends_may_be_named() -> None:
    # As upstream's example does: one function for each backend, chosen in Python.
    python = PythonFacts(public=("relu",), ops={"relu_cpu": "a.py", "relu_cuda": "a.py"})
    assert judge.directory(directory(python=python), [library(functions=("relu_cpu",))]) == []
    found = judge.directory(directory(python=python), [library(functions=("relu_cuda",))])
    assert "ops.relu_cpu" in next(f.message for f in found if f.level == "error")


def test_module_attributes_are_no_functions() -> None:
    python = PythonFacts(public=("relu",), ops={"relu": "a.py", "get_function": "a.py"})
    assert judge.directory(directory(python=python), [library()]) == []


def test_function_that_no_python_names_is_a_note() -> None:
    found = judge.directory(directory(), [library(functions=("relu", "extra"))])
    assert one(found, "python-api", "extra").level == "note"


# --- variants together -------------------------------------------------------------------


def variant(
    name: str = CPU, functions: tuple[str, ...] = ("relu",), **changes: Any
) -> VariantReport:
    facts = library(functions=functions)
    window = abi.judge([], (), None, "x86_64-linux")
    return VariantReport(
        facts=directory(name, **changes), libraries=(LibraryReport(facts=facts, window=window),)
    )


CUDA = "tvm-ffi01-cu130-x86_64-linux"
ARM = "tvm-ffi01-cpu-aarch64-linux"


def test_variants_that_go_together() -> None:
    cuda = variant(CUDA, metadata=metadata(id="_relu_cuda_abc"))
    assert judge.build_folder([variant(), cuda, variant(ARM)]) == []


def test_two_variants_with_one_id() -> None:
    found = judge.build_folder([variant(), variant(CUDA)])
    one(found, "unique-id", "_relu_cpu_abc", CPU)


@pytest.mark.parametrize("key", ["name", "version", "license"])
def test_kernel_differs(key: str) -> None:
    other = variant(ARM, metadata=metadata(**{key: "other"}))
    one(judge.build_folder([variant(), other]), "same-identity", key, CPU, ARM)


def test_function_missing_in_one_variant() -> None:
    found = judge.build_folder([variant(functions=("relu", "relu_")), variant(ARM)])
    assert one(found, "parity", "function relu_", CPU).where == ARM


def test_functions_named_after_their_backend() -> None:
    cuda = variant(CUDA, ("relu_cuda",), metadata=metadata(id="_relu_cuda_abc"))
    assert judge.build_folder([variant(functions=("relu_cpu",)), cuda]) == []
    found = judge.build_folder([variant(functions=("relu_cpu",)), variant(ARM, ("gelu_cpu",))])
    assert sorted(f.where for f in found) == [ARM, CPU]


def test_public_name_missing_in_one_variant() -> None:
    found = judge.build_folder([variant(), variant(ARM, python=PythonFacts(public=()))])
    assert one(found, "parity", "public name relu").where == ARM
