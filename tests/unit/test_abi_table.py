"""The checked-in ABI table, and how it is generated."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from packaging.version import Version

from kernel_ci.abi import update
from kernel_ci.abi.table import Span, Table, is_tvm_ffi, notes, table
from kernel_ci.errors import InfrastructureError, InputError

# Measured, independently of this table: which release brought each C function.
FIRST = {
    "TVMFFIFunctionCall": "0.1.0",
    "TVMFFIHandleInitOnce": "0.1.5",
    "TVMFFITensorCreateUnsafeView": "0.1.6",
    "TVMFFIErrorCreateWithCauseAndExtraContext": "0.1.8",
    "TVMFFIGetCustomAllocator": "0.1.13",
    "TVMFFIBigIntFromByteArray": "0.1.14.post0",
}
OLD_STRINGIFY = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyENS0_8OptionalIivEE"
NEW_STRINGIFY = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyERKNS0_8OptionalIivEE"


@pytest.mark.parametrize("platform", ["x86_64-linux", "aarch64-linux", "aarch64-darwin"])
def test_cxx_function_that_changed_its_signature(platform: str) -> None:
    old = table().exporting(OLD_STRINGIFY, platform)
    new = table().exporting(NEW_STRINGIFY, platform)
    assert max(old, key=Version) == "0.1.12"
    assert min(new, key=Version) == "0.1.13"
    assert old | new == set(table().versions)
    assert not old & new


@pytest.mark.parametrize(("symbol", "first"), FIRST.items())
@pytest.mark.parametrize(
    "platform", ["x86_64-linux", "aarch64-linux", "aarch64-darwin", "x86_64-windows"]
)
def test_first_release_of_c_functions(symbol: str, first: str, platform: str) -> None:
    exporting = table().exporting(symbol, platform)
    start = table().order(first)
    assert exporting == set(table().versions[start:])


def test_sizes_that_changed() -> None:
    assert table().size("TVMFFIErrorCell", "0.1.7") == 56
    assert table().size("TVMFFIErrorCell", "0.1.8") == 72
    sizes = {v: table().size("Module_GetFunction", v) for v in table().versions}
    assert [v for v, size in sizes.items() if size == 16] == ["0.1.13", "0.1.13.post0"]


def test_yanked_and_misnamed_releases() -> None:
    yanked = {r.version for r in table().releases if r.yanked}
    assert {"0.1.8", "0.1.13", "0.1.13.post0", "0.1.13.post1", "0.1.14", "0.1.15"} <= yanked
    release = table().release("0.1.13.post3")
    assert release is not None
    assert release.header_macro == "0.1.14"


def test_versions_are_ordered_and_unique() -> None:
    versions = [Version(v) for v in table().versions]
    assert versions == sorted(set(versions))


def test_epochs_begin_where_something_changed() -> None:
    starts = {epoch[0] for epoch in table().epochs}
    assert {"0.1.0", "0.1.5", "0.1.6", "0.1.8", "0.1.9", "0.1.13", "0.1.14.post0"} <= starts
    assert [v for epoch in table().epochs for v in epoch] == list(table().versions)
    assert table().representative(table().epoch("0.1.8")) == "0.1.8.post2"
    assert table().representative(table().epoch("0.1.13")) == "0.1.13.post0"  # all yanked


def test_stored_form_and_schema_are_what_the_generator_writes() -> None:
    data = files("kernel_ci") / "data"
    assert (data / "abi.json").read_text() == update.render(table())
    assert (data / "abi.schema.json").read_text() == update.schema()
    assert Table.model_validate(json.loads(update.render(table()))) == table()


def test_notes_speak_of_what_the_table_has() -> None:
    names = {index.name for index in table().type_indices}
    features = {marker.feature for marker in notes().marker}
    for risk in notes().risk:
        assert risk.layout is None or risk.layout in table().sizes
        assert risk.type_index is None or risk.type_index in names
        assert set(risk.features) <= features
        assert (risk.layout is None) != (risk.type_index is None)
        for symbol in risk.imports:
            assert table().exporting(symbol, "x86_64-linux")
    for entry in notes().headers:
        assert all(table().release(version) for version in entry.versions)


def test_every_type_younger_than_the_first_release_has_a_risk() -> None:
    # A release that brings a type needs a marker for it, or its use goes unseen.
    young = {t.name for t in table().type_indices if t.spans[0].first != table().versions[0]}
    assert young == {risk.type_index for risk in notes().risk if risk.type_index}


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("TVMFFIFunctionCall", True),
        (OLD_STRINGIFY, True),
        ("_ZTVN3tvm3ffi9ModuleObjE", True),
        ("_ZNK3tvm3ffi5Error4whatEv", True),
        ("?what@Error@ffi@tvm@@UEBAPEBDXZ", True),
        ("_ZN6kernel3runEN3tvm3ffi10TensorViewE", False),  # the kernel's own function
        ("memcpy", False),
    ],
)
def test_is_tvm_ffi(symbol: str, expected: bool) -> None:
    assert is_tvm_ffi(symbol) is expected


def test_spans_and_changes() -> None:
    versions = ["1", "2", "3", "4"]
    assert update.spans(versions, [True, False, True, True]) == (
        Span(first="1", last="1"),
        Span(first="3"),
    )
    assert update.spans(versions, [False] * 4) == ()
    assert update.spans(versions, [False, True, True, False]) == (Span(first="2", last="3"),)
    assert update.changes(versions, [1, 1, 2, 1]) == [("1", 1), ("3", 2), ("4", 1)]


def test_listing_of_pip() -> None:
    text = (
        "ERROR: Ignored the following yanked versions: 0.1.13, 0.1.8\n"
        "ERROR: Could not find a version that satisfies the requirement apache-tvm-ffi<0"
        " (from versions: 0.1.10, 0.1.9, 0.1.9rc1, 0.1.8.post0)\n"
    )
    assert update.parse_listing(text) == {
        "0.1.8": True,
        "0.1.8.post0": False,
        "0.1.9": False,
        "0.1.10": False,
        "0.1.13": True,
    }
    assert list(update.parse_listing(text)) == ["0.1.8", "0.1.8.post0", "0.1.9", "0.1.10", "0.1.13"]


@pytest.mark.parametrize("text", ["", "ERROR: no network", "(from versions: none)"])
def test_listing_that_is_none(text: str) -> None:
    with pytest.raises(InfrastructureError, match="could not be listed"):
        update.parse_listing(text)


def test_another_document_is_refused() -> None:
    with pytest.raises(InputError, match="format"):
        Table.parse({"kind": "abi-table", "format": 2}, where="x")
