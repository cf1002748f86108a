"""Variant names, against the real client's parser."""

from __future__ import annotations

from itertools import product

import pytest
from kernels.variants import ArchVariant, TvmFfi, parse_variant
from packaging.version import Version

from kernel_ci.errors import InputError
from kernel_ci.variant import ARCHS, BACKENDS, COMPUTE_PREFIX, SYSTEMS, VERSIONED, Variant

#: Every release that each backend may have in the next years.
VERSIONS: dict[str, list[str | None]] = {
    "cpu": [None],
    "metal": [None],
    "cuda": [f"{major}.{minor}" for major in range(10, 20) for minor in range(10)],
    "rocm": [f"{major}.{minor}" for major in range(1, 10) for minor in range(10)],
    "xpu": [f"{year}.{minor}" for year in range(2023, 2031) for minor in range(10)],
}
TVM_FFI = [(0, 0), (0, 1), (0, 9), (0, 10), (0, 11), (1, 0), (1, 12), (9, 99)]


def read_by_client(name: str) -> tuple[str, str | None, str, str, str]:
    """Return backend, its version, arch, os and tvm-ffi, as the client reads a name."""
    variant = parse_variant(name)
    assert isinstance(variant, ArchVariant)
    assert isinstance(variant.framework, TvmFfi)
    backend = variant.arch.backend
    version = getattr(backend, "version", None)
    return (
        backend.name,
        None if version is None else str(version),
        variant.arch.platform,
        variant.arch.os,
        str(variant.framework.version),
    )


def read_by_us(name: str) -> tuple[str, str | None, str, str, str]:
    v = Variant.parse(name)
    return (v.backend, v.backend_version, v.arch, v.os, f"{v.tvm_ffi[0]}.{v.tvm_ffi[1]}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_name_is_read_as_the_client_reads_it(backend: str) -> None:
    count = 0
    for version, arch, os, tvm_ffi in product(VERSIONS[backend], ARCHS, SYSTEMS, TVM_FFI):
        if backend == "metal" and os != "darwin":
            continue
        variant = Variant(backend, version, arch, os, tvm_ffi)
        name = str(variant)
        assert Variant.parse(name) == variant
        assert read_by_us(name) == read_by_client(name)
        assert parse_variant(name).variant_str == name
        count += 1
    assert count >= 16


#: Parts of names, good ones and odd ones; every combination is tried.
FRAMEWORKS = [
    "tvm-ffi01", "tvm-ffi10", "tvm-ffi010", "tvm-ffi19", "tvm-ffi001", "tvm-ffi101", "tvm-ffi1",
    "tvm-ffi", "tvm-ffi0.1", "tvm-ffi0a", "tvm-ffi\u06601", "tvm-ffi-1", "TVM-FFI01", "tvmffi01",
    "tvm-ffi01-cxx11", "torch", "torch29", "torch29-cxx11", "torch-stable-abi29", "noarch", "",
]  # fmt: skip
COMPUTES = [
    "cpu", "metal", "cu126", "cu130", "cu90", "cu13", "cu1", "cu", "cu1210", "cu0126", "cu013",
    "cu13\u0660", "cu130 ", "CU130", "cuda130", "rocm71", "rocm710", "rocm7", "rocm100", "rocm07",
    "rocm", "xpu20253", "xpu2025", "xpu202510", "xpu20251x", "xpu253", "xpu02025", "cpu1", "CPU",
    "metal4", "cann81", "neuron", "tpu", "npu", "universal", "",
]  # fmt: skip
PLATFORMS = [
    "x86_64-linux", "aarch64-linux", "aarch64-darwin", "x86_64-windows", "arm64-darwin",
    "amd64-linux", "x86-64-linux", "x86_64-Linux", "x86_64-macos", "x86_64-win32", "x86_64",
    "linux", "x86_64-linux-musl", "x86_64-linux-", "-linux", "x86_64-", "x86_64-linux\n",
    " x86_64-linux", "x86_64_linux", "",
]  # fmt: skip


def test_no_odd_name_is_read_differently() -> None:
    accepted = []
    for framework, compute, platform in product(FRAMEWORKS, COMPUTES, PLATFORMS):
        for name in (f"{framework}-{compute}-{platform}", f" {framework}-{compute}-{platform}"):
            try:
                variant = Variant.parse(name)
            except InputError:
                continue
            assert str(variant) == name
            assert read_by_us(name) == read_by_client(name)
            assert parse_variant(name).variant_str == name
            accepted.append(name)
    frameworks = {"-".join(name.split("-")[:2]) for name in accepted}
    assert frameworks == {"tvm-ffi01", "tvm-ffi10", "tvm-ffi010", "tvm-ffi19"}
    assert {name.split("-")[2] for name in accepted} == {
        "cpu", "metal", "cu126", "cu130", "rocm71", "xpu20253",
    }  # fmt: skip
    # Four frameworks; four platforms, on one of which alone there is Metal.
    assert len(accepted) == 4 * (5 * 4 + 1)


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("tvm-ffi01-rocm710-x86_64-linux", "as rocm 71.0", "1 digit and a minor version of one"),
        ("tvm-ffi01-cu1210-x86_64-linux", "as cuda 121.0", "2 digits and a minor version of one"),
        ("tvm-ffi01-cu90-x86_64-linux", "as cuda 9.0", "2 digits"),
        ("tvm-ffi01-xpu202510-x86_64-linux", "as xpu 20251.0", "4 digits"),
        ("tvm-ffi01-xpu20251x-x86_64-linux", "unknown compute part 'xpu20251x'", "xpu<year>"),
        ("tvm-ffi01-cpu-arm64-darwin", "unknown architecture 'arm64'", "write aarch64"),
        ("tvm-ffi01-cpu-riscv64-linux", "unknown architecture", "x86_64 or aarch64"),
        ("tvm-ffi01-cpu-x86_64-macos", "unknown system 'macos'", "linux, darwin, windows"),
        ("tvm-ffi01-metal-aarch64-windows", "metal does not exist on windows", "use darwin"),
        ("tvm-ffi001-cpu-x86_64-linux", "is not canonical", "write tvm-ffi01-cpu-x86_64-linux"),
        ("tvm-ffi1-cpu-x86_64-linux", "not the name of a tvm-ffi variant", "tvm-ffi<major>"),
        (f"tvm-ffi0{'1' * 5000}-cpu-x86_64-linux", "not the name", "tvm-ffi<major>"),
        ("torch29-cxx11-cu130-x86_64-linux", "not the name of a tvm-ffi variant", "tvm-ffi<major>"),
        ("torch-cpu", "not the name of a tvm-ffi variant", "tvm-ffi<major>"),
        ("tvm-ffi01-cpu-x86_64-linux\n", "unknown system 'linux\\n'", "linux"),
        ("", "'' is not the name", "tvm-ffi<major>"),
    ],
)
def test_refused_names(name: str, what: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        Variant.parse(name)
    assert what in caught.value.what
    assert fix in str(caught.value.fix)
    assert caught.value.where == "variant"


@pytest.mark.parametrize(
    ("backend", "version", "what"),
    [
        ("cuda", None, "cuda needs a version"),
        ("cpu", "1.0", "cpu has no version"),
        ("metal", "4.0", "metal has no version"),
        ("tpu", None, "unknown backend 'tpu'"),
        ("cuda", "13", "is not <major>.<minor>"),
        ("cuda", "13.0.1", "is not <major>.<minor>"),
        ("cuda", "13.00", "is not <major>.<minor>"),
        ("cuda", "013.0", "is not <major>.<minor>"),
        ("cuda", "13.0\n", "is not <major>.<minor>"),
        ("cuda", "1\u0663.0", "is not <major>.<minor>"),
        ("cuda", "13.x", "is not <major>.<minor>"),
        ("cuda", "12.10", "two-digit minor version"),
        ("rocm", "7.10", "two-digit minor version"),
        ("cuda", "9.2", "'cu92' would be read by the kernels client as cuda 9.2"),
        ("rocm", "10.0", "'rocm100' would be read by the kernels client as rocm 10.0"),
        ("xpu", "25.3", "'xpu253' would be read by the kernels client as xpu 25.3"),
    ],
)
def test_refused_parts(backend: str, version: str | None, what: str) -> None:
    with pytest.raises(InputError) as caught:
        Variant(backend, version, "x86_64", "darwin" if backend == "metal" else "linux")
    assert what in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize("tvm_ffi", [(10, 0), (-1, 0), (0, -1)])
def test_refused_tvm_ffi(tvm_ffi: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="has no name"):
        Variant("cpu", None, "x86_64", "linux", tvm_ffi)


def test_two_digit_minors_of_tvm_ffi_are_not_ambiguous() -> None:
    # The client takes one digit as major and all others as minor, and compares that with
    # the major and minor of the installed tvm-ffi.
    for installed, name in (("0.10.2", "tvm-ffi010"), ("1.0.0", "tvm-ffi10"), ("1.1", "tvm-ffi11")):
        version = Version(installed)
        variant = Variant("cpu", None, "x86_64", "linux", (version.major, version.minor))
        assert str(variant).startswith(f"{name}-")
        theirs = parse_variant(str(variant))
        assert isinstance(theirs, ArchVariant)
        assert isinstance(theirs.framework, TvmFfi)
        assert theirs.framework.version == Version(f"{version.major}.{version.minor}")


def test_parts_of_a_variant() -> None:
    variant = Variant.parse("tvm-ffi01-cu130-x86_64-linux")
    assert variant == Variant("cuda", "13.0", "x86_64", "linux", (0, 1))
    assert variant.compute == "cu130"
    assert variant.platform == "x86_64-linux"
    assert [Variant("cpu", None, "x86_64", os).library_suffix for os in SYSTEMS] == [
        ".so",
        ".dylib",
        ".dll",
    ]
    assert set(VERSIONS) == set(BACKENDS) == set(COMPUTE_PREFIX)
    assert {backend for backend, found in VERSIONS.items() if found != [None]} == VERSIONED
