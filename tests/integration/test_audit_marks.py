"""Where in a library the marks of tvm-ffi's features are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.abi.table import notes
from kernel_ci.audit.readers import read_library
from tests import probes

MARKER = next(marker for marker in notes().marker if marker.text)


@pytest.mark.parametrize(
    ("section", "found"),
    [
        (".rodata.str1.8", True),
        (".data", True),
        (".data.rel.ro.other", True),
        (".lrodata", True),
        (".nv_fatbin", False),
        (".hip_fatbin", False),
        ("__CLANG_OFFLOAD_BUNDLE__sycl-spir64", False),
    ],
)
def test_code_for_gpus_is_left_out(forge: Path, section: str, found: bool) -> None:
    source = (
        f'{probes.PLAIN}\nextern "C" EXPORT __attribute__((used, section("{section}")))'
        f' const char mark[] = "{MARKER.text[0]}";\n'
    )
    library = probes.compile_library(forge, source)
    assert MARKER.text[0].encode() in library.read_bytes()
    assert (MARKER.feature in read_library(library).features) is found
