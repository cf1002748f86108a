"""The commands of the `kernels` client, as users type them, on what was published."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.publish_kit import (
    REPO,
    Between,
    client_environment,
    hub,
    hurry,
    make_run,
    publish_here,
)

MACHINE = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
HERE = f"tvm-ffi01-cpu-{MACHINE}-{sys.platform}"
#: For a machine with a CUDA toolkit, where the client looks for no CPU variant.
CUDA = [f"tvm-ffi01-cu{major}0-{MACHINE}-{sys.platform}" for major in (11, 12, 13, 14)]
ELSEWHERE = "tvm-ffi01-cu130-x86_64-windows"
ALL = {HERE, ELSEWHERE, *CUDA}


@dataclass(frozen=True)
class Client:
    """A user with a home of their own."""

    between: Between
    url: str
    folder: Path

    def kernels(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from kernels import cli; cli.main()", *arguments],
            env=client_environment(self.url, self.folder),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def cached(self) -> set[str]:
        """Return the files of variants that were downloaded, below `build/`."""
        return {
            path.relative_to(root).as_posix()
            for root in self.folder.glob("home/hub/*/snapshots/*/build")
            for path in root.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Between, str]]:
    """Version 1 and 2 of a kernel."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch, hub(folder / "hub") as (between, url):
        hurry(patch)
        for version, variants in ((1, sorted(ALL)), (2, [HERE])):
            run = make_run(folder / str(version), version=version, variants=variants)
            assert publish_here(run, url).status == 0
        yield between, url


@pytest.fixture
def client(published: tuple[Between, str], tmp_path: Path) -> Client:
    return Client(*published, tmp_path)


def test_versions(client: Client) -> None:
    done = client.kernels("versions", REPO)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("Version 2:")
    assert HERE in first
    assert ELSEWHERE in first
    assert HERE in second
    assert ELSEWHERE not in second


def test_info(client: Client) -> None:
    done = client.kernels("info", REPO, "--version", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["name"], found["version"], found["license"]) == ("negate", 1, "Apache-2.0")
    assert found["backends"] == ["cpu", "cuda"]
    done = client.kernels("info", REPO)
    assert "Revision: v2" in done.stdout


def test_lock_and_download(client: Client, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = 1\n')
    done = client.kernels("lock", str(project))
    assert done.returncode == 0, done.stderr
    assert REPO in (project / "kernels.lock").read_text()
    for options, number in (([], 1), (["--all-variants"], len(ALL))):
        done = client.kernels("download", *options, str(project))
        assert done.returncode == 0, done.stderr
        # Of the variants that it only looked at, it has their metadata.
        found = {path.split("/")[0] for path in client.cached() if path.endswith(".so")}
        assert len(found) == number
        assert found <= ALL - ({ELSEWHERE} if number == 1 else set())


def test_verify_signature_tells_why(client: Client) -> None:
    """Unsigned, as it was published from a desk; a signed one is in test_publish_signed.py."""
    done = client.kernels("verify-signature", "--all-variants", REPO, "1")
    assert done.returncode == 1, done.stderr
    for name in ALL:
        assert f"{name}: cannot verify kernel integrity, signature not found" in done.stdout
    done = client.kernels("verify-signature", "--filter-unsigned", REPO, "1")
    assert done.returncode == 0, done.stderr
