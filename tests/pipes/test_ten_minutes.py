"""The first ten minutes as they are written, by an install of the wheel."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from own_environments import WheelEnvironments
from postgres_server import PASSWORD, Database
from tutorial_pages import run_script

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
SCRIPT = Path(__file__).resolve().parents[2] / "sample_configs" / "first_minutes" / "run.sh"
EXTRAS = ("delta", "postgresql")


def test_from_a_file_to_a_nightly_job(
    environments: WheelEnvironments, postgres: Database, tmp_path: Path
) -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    assert f"singer-spark[{','.join(EXTRAS)}]" in script
    postgres.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, ssn text);"
        "INSERT INTO customers VALUES (1, 'Zoë', '078-05-1120')"
    )
    place = postgres.url.removeprefix("jdbc:postgresql://")
    env = {"DATABASE_URL": f"postgresql://postgres@{place}", "PGPASSWORD": PASSWORD}
    programs = environments.of(*EXTRAS).programs
    printed = run_script(script, tmp_path, env, programs=programs)
    rows = pq.read_table(tmp_path / "loaded" / "orders").to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "Zoë"), (2, "Anna")]
    [customer] = pq.read_table(tmp_path / "loaded" / "public-customers").to_pylist()
    assert customer["name"] == "Zoë"
    assert "ssn" not in customer
    lake = DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table()
    assert sorted(lake["id"].to_pylist()) == [1, 2, 3]
    pages = list((tmp_path / "runs" / "orders").glob("*.html"))
    assert len(pages) == 2
    assert all("orders" in page.read_text(encoding="utf-8") for page in pages)
    assert printed.rstrip().endswith("singer-spark run job.yml")
