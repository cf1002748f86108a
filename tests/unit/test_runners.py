"""The runner map: which cells a glob means, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ci.errors import InputError
from kernel_ci.runners import RunnerMap, matches

CPU = "tvm-ffi01-cpu-x86_64-linux"
CUDA = "tvm-ffi01-cu130-x86_64-linux"


@pytest.mark.parametrize(
    ("pattern", "kernel", "variant", "expected"),
    [
        ("*-cpu-*", "relu", CPU, True),
        ("*-cpu-*", "my-cpu-kernel", CUDA, False),
        ("*", "relu", CPU, True),
        ("relu/*", "relu", CPU, True),
        ("relu/*", "silu", CPU, False),
        ("*/*-cu*", "relu", CUDA, True),
        # A glob stands for the whole of a name.
        ("cpu", "relu", CPU, False),
        ("rel/*", "relu", CPU, False),
    ],
)
def test_matches(pattern: str, kernel: str, variant: str, expected: bool) -> None:
    assert matches(pattern, kernel, variant) is expected


def test_the_last_glob_that_matches_counts() -> None:
    found = RunnerMap.parse(
        """
        [test]
        "*" = "ubuntu-24.04"
        "*-cu*" = "self-hosted cuda"
        "relu/*-cu*" = { group = "gpu", labels = ["h200"] }
        [build]
        "silu/*" = ["big"]
        [build-only]
        "*-cpu-*" = "why not"
        """,
        where="here",
    )
    relu, silu, cpu = (
        found.place("relu", CUDA), found.place("silu", CUDA), found.place("my-cuda", CPU)
    )  # fmt: skip
    assert (relu.build, relu.test, relu.build_only) == (None, ("group:gpu", "h200"), None)
    assert (silu.build, silu.test) == (("big",), ("self-hosted", "cuda"))
    assert (cpu.test, cpu.build_only) == (("ubuntu-24.04",), "why not")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[test", "is not TOML: "),
        ("x = " + "[" * 5000 + "]" * 5000, "cannot be parsed: "),
        ("x = " + "9" * 5000, "cannot be parsed: "),
        ('[tests]\n"*" = "a"', "tests: Extra inputs are not permitted"),
        ('[test]\n"*" = ""', r"test\.\*: Tuple should have at least 1 item"),
        ('[test]\n"*" = [""]', r"test\.\*\.0: String should have at least 1 character"),
        ('[test]\n"*" = 7', r"test\.\*: Input should be a valid tuple"),
        ('[test]\n"*" = [7]', r"test\.\*\.0: Input should be a valid string"),
        ('[test]\n"*" = { labels = "a" }', r"test\.\*: a table names a `group`"),
        ('[test]\n"*" = { group = "" }', r"test\.\*: a table names a `group`"),
        ('[test]\n"*" = { group = "a", label = "b" }', r"test\.\*: a table names a `group`"),
        ('[test]\n"*" = { group = "a", labels = 7 }', r"test\.\*: `labels` is a list"),
        ('[test]\n"*" = "hf-jobs:"', "test: hf-jobs:<flavour> stands alone"),
        ('[test]\n"*" = "hf-jobs:a b"', "test: hf-jobs:<flavour> stands alone"),
        ('[build]\n"*" = "hf-jobs:a"', "build: hf-jobs:… only tests"),
        ('[build-only]\n"*" = ""', r"build-only\.\*: String should have at least 1 character"),
        ("test = 7", "test: Input should be a valid dictionary"),
    ],
)
def test_what_is_no_runner_map(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^here: {message}") as caught:
        RunnerMap.parse(text, where="here")
    assert caught.value.fix


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "runners.toml"
    with pytest.raises(InputError, match="cannot be read: No such file"):
        RunnerMap.read(file)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        RunnerMap.read(tmp_path)
    file.write_bytes(b'[build-only]\n"*" = "\xff"\n')
    with pytest.raises(InputError, match=r"is not UTF-8 \(byte 20\)"):
        RunnerMap.read(file)
    file.write_bytes(b"\xef\xbb\xbf" + '[build-only]\n"*" = "kein Gerät"\n'.encode())
    assert RunnerMap.read(file).build_only == {"*": "kein Gerät"}
