"""Fixtures of the tests that run both programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipe_programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """The programs, run in an empty folder of the test's own."""
    return Programs(tmp_path)
