"""The tutorial that needs no server runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tutorial_pages import run_tutorial

pytestmark = pytest.mark.pipe


def test_from_csv_files_to_a_delta_table(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    assert run_tutorial("tutorial-delta.md", tmp_path) == 3
