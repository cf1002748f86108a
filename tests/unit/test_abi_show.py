"""The ABI table as people read it."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from kernel_ci.abi import show, table
from kernel_ci.errors import InputError
from tests.helpers import ROOT


def test_difference_is_the_same_either_way() -> None:
    found = show.difference("0.1.13", "0.1.12")
    assert found == show.difference("0.1.12", "0.1.13")
    assert (found.older, found.newer) == ("0.1.12", "0.1.13")
    assert {"TVMFFIGetCustomAllocator", "TVMFFISetCustomAllocator"} <= set(found.gained)
    assert [symbol for symbol in found.lost if "Stringify" in symbol] == list(found.lost)
    assert {size.type: (size.older, size.newer) for size in found.sizes} == {
        "Module_GetFunction": (8, 16),
        "Optional_Function": (8, 16),
        "Optional_Tensor": (8, 16),
    }
    assert found.types_gained == ("VisitInterrupt",)
    assert not found.same_epoch


def test_difference_tells_who_breaks_where() -> None:
    found = show.difference("0.1.7", "0.1.8")
    assert len(found.risks) == 1
    assert found.risks[0].startswith("built with 0.1.8, on 0.1.7: the cause")
    both = show.difference("0.1.12", "0.1.13").risks
    assert [risk[:27] for risk in both if "`Module`" in risk] == [
        "built with 0.1.13, on 0.1.1",
        "built with 0.1.12, on 0.1.1",
    ]


def test_releases_of_one_epoch() -> None:
    found = show.difference("0.1.15", "0.1.15.post2")
    assert found.same_epoch
    assert (found.gained, found.lost, found.sizes, found.risks) == ((), (), (), ())


@pytest.mark.parametrize("version", ["0.1.99", "0.2"])
def test_unknown_release(version: str) -> None:
    with pytest.raises(InputError, match="does not know"):
        show.difference("0.1.9", version)


def test_epochs_name_what_began() -> None:
    found = show.epochs()
    assert [epoch.releases for epoch in found] == list(table().epochs)
    assert found[0].news == ()
    assert all(epoch.news for epoch in found[1:])
    assert found[4].news == ("type `List`", "type `Dict`")


def test_floors() -> None:
    found = {floor.use: floor.runtimes for floor in show.floors()}
    assert found["the function `TVMFFIHandleInitOnce`"] == "0.1.5 and later"
    assert found["the type `List`"] == "0.1.9 and later"
    module = found["`Module` in C++ (built with the newest headers)"]
    assert module == "0.1.0 and later, but for 0.1.13, 0.1.13.post0"
    stringify = [runtimes for use, runtimes in found.items() if "Stringify" in use]
    assert stringify == ["0.1.0 to 0.1.12", "0.1.13 and later"]
    assert "the function `TVMFFIFunctionCall`" not in found


def test_page_holds_the_table() -> None:
    page = (ROOT / show.PAGE).read_text()
    assert show.embed(page, show.markdown()) == page
    assert show.embed(page, "") != page
    with pytest.raises(InputError, match="marks"):
        show.embed("no marks", "")


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ((), "epochs"),
        (("0.1.13",), "refused"),
        (("0.1.13.post3",), "call themselves: 0.1.14"),
        (("0.1.12", "0.1.13"), "+ TVMFFIGetCustomAllocator"),
        (("0.1.15", "0.1.15.post2"), "nothing that a kernel can see"),
    ],
)
def test_what_is_printed(versions: tuple[str, ...], said: str) -> None:
    output = StringIO()
    show.render(Console(width=160, file=output), versions)
    assert said in output.getvalue()
    assert json.loads(json.dumps(show.as_json(versions)))
