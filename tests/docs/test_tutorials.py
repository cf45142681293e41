"""The tutorial that needs no server runs as it stands, with what it installs and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_environments import WheelEnvironments
from tutorial_pages import extras_of, run_tutorial

pytestmark = [pytest.mark.pipe, pytest.mark.costly]


def test_from_csv_files_to_a_delta_table(environments: WheelEnvironments, tmp_path: Path) -> None:
    programs = environments.of(*extras_of("From CSV files to a Delta table")).programs
    assert run_tutorial("From CSV files to a Delta table", tmp_path, programs=programs) == 3
