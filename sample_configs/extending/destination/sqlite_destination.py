"""A destination in one file: the tables of an SQLite database, on one machine."""

import json
import sqlite3
from contextlib import closing
from tempfile import TemporaryDirectory

from pyarrow.parquet import ParquetFile

from shared.formats.file_formats import Encoding
from target_spark.destinations.destination import Destination, TableWrite, remove_parts
from target_spark.destinations.destination_declaration import Declaration, Supports


class SqliteDestination(Destination):
    def __init__(self, config, tools):
        self.file, self.parts = config.block["file"], TemporaryDirectory()

    def prepare(self, request):
        return TableWrite(self.parts.name, Encoding("parquet", "none"), request.struct)

    def commit(self, flush):
        table, *names = (f'"{n}"' for n in (flush.request.name.table, *flush.write.struct.names))
        columns, marks = ", ".join(names), ", ".join("?" * len(names))
        with closing(sqlite3.connect(self.file, timeout=60)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS _flushes (id UNIQUE)")
            token = [f"{flush.stream}/{flush.token}"]
            if not db.execute("INSERT OR IGNORE INTO _flushes VALUES (?)", token).rowcount:
                return  # This commit has succeeded before.
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            present = {f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})")}
            for name in set(names) - present:
                db.execute(f"ALTER TABLE {table} ADD COLUMN {name}")
            for rows in (b for part in flush.parts for b in ParquetFile(part.url).iter_batches()):
                lists = [[plain(v) for v in column.to_pylist()] for column in rows.columns]
                db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", zip(*lists))
        remove_parts(flush)


def plain(value):
    return value if isinstance(value, PLAIN) else json.dumps(value, default=str)


PLAIN = (int, float, str, bytes, type(None))
FILE = {"type": "string", "description": "SQLite file that holds the tables."}
BLOCK = {"type": "object", "required": ["file"], "properties": {"file": FILE}}
CAN = Supports(new_columns=True, exactly_once=True)
SQLITE = Declaration("sqlite", "SQLite", SqliteDestination, ("sqlite",), CAN, BLOCK)
