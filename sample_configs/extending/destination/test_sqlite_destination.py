"""The conformance suite over the example: `pytest test_sqlite_destination.py`."""

import sqlite3
from contextlib import closing

from target_spark.testing import DestinationSuite


class TestSqlite(DestinationSuite):
    format = "sqlite"

    def settings(self, folder):
        return {"sqlite": {"file": str(folder / "tables.db")}}

    def read(self, folder, table):
        with closing(sqlite3.connect(folder / "tables.db")) as db:
            db.row_factory = sqlite3.Row
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return []
            return [dict(row) for row in db.execute(f'SELECT * FROM "{table}"')]
