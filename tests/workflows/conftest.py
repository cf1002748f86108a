from __future__ import annotations

from pathlib import Path

import pytest

from tests.workflows.harness import Caller


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)
