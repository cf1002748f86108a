"""A release of forty variants: bounded memory, and an update sends what changed alone.

`KERNEL_CI_LIBRARY_MIB=52 pytest tests/integration/test_publish_large.py` makes it one of
2 GiB, with the same bounds.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_ci.hub.check import check
from kernel_ci.publish.release import Release
from tests.integration.publish_kit import Driver, download, hurry, look, make_run

MIB = int(os.environ.get("KERNEL_CI_LIBRARY_MIB", "4"))

VARIANTS = [
    f"tvm-ffi01-cu{major}{minor}-{platform}"
    for major in (12, 13)
    for minor in range(10)
    for platform in ("x86_64-linux", "aarch64-linux")
]

#: MiB that a release of any size may take beyond what one of a few KiB takes. It is less than
#: the smallest release here has, and more than what was measured (see docs/publishing.md).
BOUND = 64


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def drivers() -> Iterator[tuple[Driver, Driver]]:
    both = Driver(), Driver()
    yield both
    for driver in both:
        driver.close()


def test_forty_variants(tmp_path: Path, drivers: tuple[Driver, Driver]) -> None:
    publisher, server = drivers
    size = MIB << 20
    folder, log = tmp_path / "hub", tmp_path / "log"
    url = server.serve(folder, tmp_path / "steps", 0)

    def publish(name: str, **wanted: Any) -> tuple[Path, int, str]:
        run = make_run(tmp_path / name, **wanted)
        start = time.monotonic()
        publisher.publish(run, url, log, replace=True)
        assert publisher.wait() == 0, log.read_text()
        took = time.monotonic() - start
        text = log.read_text()
        print(f"{name}: {took:.1f} s, publisher {publisher.peak} MiB", text, sep="\n")
        return run, publisher.peak, text

    # A small one of another version first, for what it takes anyway.
    _, least, _ = publish("small", version=0)
    before = peak(server.pid())

    run, most, text = publish("whole", variants=VARIANTS, size=size)
    print(f"server {before} MiB, then {peak(server.pid())} MiB")
    assert most - least < BOUND < MIB * len(VARIANTS)
    assert peak(server.pid()) - before < BOUND
    release = release_of(run)
    assert len(release.builds) == 40
    assert release.size > size * 40
    assert (look(url).files or {}).keys() == {*release.files, "release.json"}
    assert re.search(r"162 files of [\d.]+ .B: [\d.]+ .B had to be uploaded", text)

    # One variant changes: its files, the manifest and the card are all that is new.
    blobs = {path.name for path in (folder / "blobs").iterdir()}
    run, most, text = publish(
        "changed", variants=VARIANTS, size=size, changed={VARIANTS[7]: "repaired"}
    )
    new = [path for path in (folder / "blobs").iterdir() if path.name not in blobs]
    assert most - least < BOUND
    # The library, metadata, __init__.py and _ops.py; the manifest; the card.
    assert len(new) == 6
    assert size <= sum(path.stat().st_size for path in new) < size + (1 << 20)
    assert "kept      39 variants" in text

    if MIB < 16:
        contents = download(url, tmp_path / "cache")
        assert contents.keys() == {*release_of(run).files, "release.json"}
    os.kill(server.pid(), signal.SIGTERM)
    assert server.wait() == 0
    assert check(folder) == []


def release_of(run: Path) -> Release:
    return Release.read(run / "negate" / "release" / "release.json")


def peak(pid: int) -> int:
    """Return the most memory that a process has had so far, in MiB; 0 where none tells."""
    if sys.platform != "linux":
        return 0
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) >> 10
