"""Which runtimes a library fits, and what it may state."""

from __future__ import annotations

import pytest

from kernel_ci import abi
from kernel_ci.abi.stamp import ruled_out
from kernel_ci.abi.window import RuntimeWindow
from kernel_ci.errors import InputError, Rejected

NEWEST = abi.table().newest
PLAIN = ["TVMFFIErrorSetRaised", "TVMFFIGetTypeInfo", "memcpy"]
OLD_STRINGIFY = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyENS0_8OptionalIivEE"
NEW_STRINGIFY = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyERKNS0_8OptionalIivEE"
LINUX = "x86_64-linux"


def judge(
    *imports: str, features: tuple[str, ...] = (), headers: str | None = "0.1.15.post2"
) -> abi.Window:
    return abi.judge([*PLAIN, *imports], features, headers, LINUX)


def test_plain_kernel_fits_every_release() -> None:
    window = judge()
    assert window.with_status("fits") == abi.table().versions
    assert (window.floor, window.ceiling) == ("0.1.0", None)


@pytest.mark.parametrize(
    ("symbol", "floor", "ceiling"),
    [
        ("TVMFFIGetCustomAllocator", "0.1.13", None),
        ("TVMFFIBigIntFromByteArray", "0.1.14.post0", None),
        (OLD_STRINGIFY, "0.1.0", "0.1.12"),
        (NEW_STRINGIFY, "0.1.13", None),
    ],
)
def test_imports_bound_the_window(symbol: str, floor: str, ceiling: str | None) -> None:
    window = judge(symbol)
    assert (window.floor, window.ceiling) == (floor, ceiling)
    broken = next(entry for entry in window.releases if entry.status == "breaks")
    assert broken.reasons == (f"it does not export {symbol}",)


def test_symbol_of_no_release() -> None:
    window = judge("TVMFFIInvented")
    assert window.unknown_symbols == ("TVMFFIInvented",)
    assert window.floor is None


def test_list_is_unknown_below_its_release() -> None:
    assert judge(features=("List",)).floor == "0.1.9"


@pytest.mark.parametrize("headers", ["0.1.9", "0.1.15.post2", None])
def test_module_breaks_on_runtimes_of_another_layout(headers: str | None) -> None:
    window = judge(features=("Module",), headers=headers)
    assert window.with_status("breaks") == ("0.1.13", "0.1.13.post0")


def test_module_built_with_the_odd_layout_fits_only_that() -> None:
    window = judge(features=("Module",), headers="0.1.13")
    assert window.with_status("fits") == ("0.1.13", "0.1.13.post0")


def test_caught_errors_make_old_runtimes_unproven() -> None:
    window = judge("TVMFFIErrorMoveFromRaised")
    assert window.floor == "0.1.8"
    assert window.import_floor == "0.1.0"
    assert window.with_status("unproven")[-1] == "0.1.7"
    # Headers of that time have the short error themselves.
    assert judge("TVMFFIErrorMoveFromRaised", headers="0.1.7").floor == "0.1.0"


def test_sources_can_rule_a_risk_out() -> None:
    plain = ruled_out(["TVM_FFI_THROW(ValueError);", "int f();"])
    assert plain == ("error-cell",)
    assert ruled_out(["int f();", "auto c = error.cause_chain();"]) == ()
    window = abi.judge(["TVMFFIErrorMoveFromRaised"], (), "0.1.15.post2", LINUX, ruled_out=plain)
    assert window.floor == "0.1.0"


def test_platform_without_wheels_is_judged_like_linux() -> None:
    assert abi.judge([NEW_STRINGIFY], (), None, "riscv64-linux").floor == "0.1.13"


def test_statement_of_an_open_window() -> None:
    stated = abi.runtime_window(judge(), "0.1.15.post2")
    assert (stated.floor, stated.newest, stated.denied) == ("0.1.0", None, ())
    assert stated.admits("0.1.0")
    assert stated.admits("0.1.99.post3")
    assert not stated.admits("0.2.0")
    assert not stated.admits("1.1.0")


def test_statement_with_holes() -> None:
    stated = abi.runtime_window(judge(features=("Module",)), "0.1.15.post2")
    assert [entry.version for entry in stated.denied] == ["0.1.13", "0.1.13.post0"]
    assert "ModuleObj" in stated.denied[0].reason
    assert stated.admits("0.1.12")
    assert not stated.admits("0.1.13.post0")
    assert stated.admits("0.1.13.post2")


def test_statement_with_an_end() -> None:
    stated = abi.runtime_window(judge(OLD_STRINGIFY, headers="0.1.12"), "0.1.12")
    assert stated.newest == "0.1.12"
    assert not stated.admits("0.1.13")
    assert not stated.admits("0.1.99")


def test_floor_can_be_raised_not_lowered() -> None:
    assert abi.runtime_window(judge(), "0.1.9", at_least="0.1.9").floor == "0.1.9"
    window = judge("TVMFFIGetCustomAllocator")
    assert abi.runtime_window(window, "0.1.15", at_least="0.1.9").floor == "0.1.13"


def test_tests_prove_their_epoch_only() -> None:
    window = judge("TVMFFIErrorMoveFromRaised")
    stated = abi.runtime_window(window, "0.1.15.post2", verified=["0.1.7", "0.1.10"])
    assert stated.floor == "0.1.6"
    assert stated.verified == ("0.1.7", "0.1.10")
    assert abi.runtime_window(window, "0.1.15.post2", verified=["0.1.10"]).floor == "0.1.8"


def test_a_test_lifts_no_certain_break() -> None:
    window = judge(features=("List",))
    assert abi.runtime_window(window, "0.1.15.post2", verified=["0.1.8"]).floor == "0.1.9"


def test_no_release_fits() -> None:
    with pytest.raises(Rejected, match="TVMFFIInvented"):
        abi.runtime_window(judge("TVMFFIInvented"), "0.1.9")
    with pytest.raises(Rejected, match=r"as new as 0\.1\.99"):
        abi.runtime_window(judge(), "0.1.9", at_least="0.1.99")


def test_runtimes_to_test_under() -> None:
    chosen = abi.epoch_runtimes(abi.runtime_window(judge(), "0.1.15.post2"))
    assert chosen[0] == "0.1.0"
    assert chosen[-1] == NEWEST
    for version in chosen[1:]:
        assert any(version in epoch for epoch in abi.table().epochs)
    assert {abi.table().epoch(version) for version in chosen} == set(abi.table().epochs)
    narrow = abi.runtime_window(judge(OLD_STRINGIFY, features=("List",)), "0.1.12")
    assert abi.epoch_runtimes(narrow) == ("0.1.9", "0.1.12")


def test_metadata_round_trip() -> None:
    stated = abi.runtime_window(judge(features=("Module",)), "0.1.15.post2", verified=["0.1.9"])
    metadata = {"kernel-ci": {"tvm-ffi": stated.to_metadata()}}
    assert RuntimeWindow.from_metadata(metadata) == stated
    assert RuntimeWindow.from_metadata({}) is None


@pytest.mark.parametrize(
    "value",
    [None, [], {"floor": "0.1.0"}, {"built-with": "x", "floor": "0.1.0"},
     {"built-with": "0.1.9", "floor": "old"}, {"built-with": "0.1.9", "floor": "0.1.0", "x": 1}],
)  # fmt: skip
def test_malformed_statement(value: object) -> None:
    with pytest.raises(InputError):
        RuntimeWindow.from_metadata({"kernel-ci": {"tvm-ffi": value}})


@pytest.mark.parametrize("version", ["0.1.13", "0.1.13.post0", "0.1.13.post1"])
def test_bad_headers_are_refused(version: str) -> None:
    with pytest.raises(Rejected, match="nothing may be built"):
        abi.check_headers(version)


@pytest.mark.parametrize(
    ("version", "said"),
    [("0.1.7", "lack the cause"), ("0.1.15", "was yanked"), ("0.1.99", "does not know")],
)
def test_doubtful_headers_are_warned_about(version: str, said: str) -> None:
    assert said in (abi.check_headers(version) or "")


def test_good_headers() -> None:
    assert abi.check_headers("0.1.9") is None
    assert abi.check_headers(abi.recommended()) is None
    with pytest.raises(InputError, match="not a version"):
        abi.check_headers("newest")
