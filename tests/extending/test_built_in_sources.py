"""The suite for sources over every built-in format and over the example."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka_broker import KafkaBroker
from pyarrow import orc, parquet
from pyspark.sql import SparkSession

from tap_spark.sources.formats import BUILT_IN
from tap_spark.testing import Bad, Sample, SourceSuite

pytestmark = [pytest.mark.spark, pytest.mark.costly]

Row = Mapping[str, Any]
NOWHERE = "/nowhere/at-all"
FIRST: Sequence[Row] = (
    {"id": 1, "name": "Zoë", "amount": Decimal("1.50"), "day": "2026-01-02"},
    {"id": 2, "name": None, "amount": Decimal("-3.25"), "day": "2026-01-03"},
)
SECOND: Sequence[Row] = (
    {"id": 3, "name": 'a "b", c', "amount": Decimal("10.00"), "day": "2026-02-01"},
)
DDL = "id BIGINT, name STRING, amount DECIMAL(9,2), day DATE"
TYPES = {
    "id": {"type": ["integer", "null"]},
    "name": {"type": ["string", "null"]},
    "day": {"type": ["string", "null"], "format": "date"},
}
SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "amount": pa.decimal128(9, 2), "day": pa.date32()}
)
OF_ALL_FILES = frozenset(
    {
        "test_only_what_is_selected_is_read",
        "test_incremental_goes_on_at_the_bookmark",
        "test_the_end_date_bounds_incremental",
        "test_it_resumes",
    }
)
"""What does not depend on the format of files: `.ci/run` shows it with CSV and Parquet."""
OF_ALL_TABLES = frozenset(
    {"test_only_what_is_selected_is_read", "test_the_end_date_bounds_incremental"}
)
"""What does not depend on the kind of a table: `.ci/run` shows it with those of databases."""
Write = Callable[[Path, Sequence[Row]], object]
Insert = Callable[[Sequence[Row]], Sequence[Row]]


def arrow(rows: Sequence[Row]) -> pa.Table:
    days = pa.array([row["day"] for row in rows]).cast(pa.date32())
    return pa.table(
        [*(pa.array([r[n] for r in rows], SCHEMA.field(n).type) for n in SCHEMA.names[:3]), days],
        schema=SCHEMA,
    )


def files(
    folder: Path, ending: str, write: Write, settings: Mapping[str, Any] | None = None
) -> Sample:
    """A folder of files, which gets a second file."""
    place = folder / "in"
    place.mkdir()
    write(place / f"1.{ending}", FIRST)

    def grow() -> Sequence[Row]:
        write(place / f"2.{ending}", SECOND)
        return SECOND

    supplied = {"path": str(place), "key_properties": ["id"], **(settings or {})}
    wrong = Bad({**supplied, "path": NOWHERE}, NOWHERE)
    return Sample(supplied, FIRST, TYPES, replication_key="id", grow=grow, bad=[wrong])


def csv_line(row: Row) -> str:
    name = "" if row["name"] is None else '"' + row["name"].replace('"', '""') + '"'
    return f"{row['id']},{name},{row['amount']},{row['day']}\n"


def json_line(row: Row) -> str:
    name = "null" if row["name"] is None else '"' + row["name"].replace('"', '\\"') + '"'
    return f'{{"id":{row["id"]},"name":{name},"amount":{row["amount"]},"day":"{row["day"]}"}}\n'


class TestCsv(SourceSuite):
    form = BUILT_IN["csv"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        def write(path: Path, rows: Sequence[Row]) -> None:
            path.write_text("id,name,amount,day\n" + "".join(map(csv_line, rows)))

        return files(folder, "csv", write, {"schema": DDL})


class TestJson(SourceSuite):
    form = BUILT_IN["json"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        def write(path: Path, rows: Sequence[Row]) -> None:
            path.write_text("".join(map(json_line, rows)))

        return files(folder, "json", write, {"schema": DDL})


class TestParquet(SourceSuite):
    form = BUILT_IN["parquet"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        return files(folder, "parquet", lambda path, rows: parquet.write_table(arrow(rows), path))


class TestOrc(SourceSuite):
    form = BUILT_IN["orc"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        return files(folder, "orc", lambda path, rows: orc.write_table(arrow(rows), path))


@pytest.mark.server
@pytest.mark.usefixtures("lake_spark")
class TestAvro(SourceSuite):
    form = BUILT_IN["avro"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
        day = {"type": "int", "logicalType": "date"}
        kinds = {"id": "long", "name": "string", "amount": decimal, "day": day}
        fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
        schema = {"type": "record", "name": "row", "fields": fields}

        def write(path: Path, rows: Sequence[Row]) -> None:
            with path.open("wb") as file:
                fastavro.writer(file, schema, arrow(rows).to_pylist())

        return files(folder, "avro", write)


class TestXml(SourceSuite):
    form = BUILT_IN["xml"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        def element(row: Row) -> str:
            supplied = (f"<{name}>{value}</{name}>" for name, value in row.items() if value)
            return f"<row>{''.join(supplied)}</row>"

        def write(path: Path, rows: Sequence[Row]) -> None:
            path.write_text(f"<rows>{''.join(map(element, rows))}</rows>")

        return files(folder, "xml", write, {"schema": DDL, "options": {"rowTag": "row"}})


class TestText(SourceSuite):
    form = BUILT_IN["text"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        path = folder / "in.txt"
        path.write_text("one\nzwölf\n")

        def grow() -> Sequence[Row]:
            with path.open("a") as file:
                file.write("three\n")
            return [{"value": "three"}]

        rows = [{"value": "one"}, {"value": "zwölf"}]
        return Sample({"path": str(path)}, rows, grow=grow, bad=[Bad({"path": NOWHERE}, NOWHERE)])


class TestFixedWidth(SourceSuite):
    form = BUILT_IN["fixed_width"]
    SLOW: ClassVar = OF_ALL_FILES

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        def line(row: Row) -> str:
            return f"{row['id']:4}{row['name'] or '':10}{row['amount']:8}{row['day']}\n"

        def write(path: Path, rows: Sequence[Row]) -> None:
            path.write_text("".join(map(line, rows)))

        widths = {"id": 4, "name": 10, "amount": 8, "day": 10}
        columns = [{"name": name, "length": width} for name, width in widths.items()]
        return files(folder, "txt", write, {"schema": DDL, "columns": columns})


class TestRows(SourceSuite):
    form = BUILT_IN["rows"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        rows = [{"id": n, "updated_at": f"2020-01-01T00:00:0{n}.000000+00:00"} for n in range(3)]
        return Sample({"row_count": 3, "column_count": 2}, rows, replication_key="updated_at")


class TestSql(SourceSuite):
    form = BUILT_IN["sql"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        query = "SELECT id, CAST(id AS STRING) AS name FROM range(3)"
        rows = [{"id": n, "name": str(n)} for n in range(3)]
        wrong = [Bad({"query": "DROP TABLE x"}, "query"), Bad({"query": "SELECT nope"}, "nope")]
        return Sample({"query": query}, rows, replication_key="id", bad=wrong)


class TestTable(SourceSuite):
    form = BUILT_IN["table"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        spark.createDataFrame(arrow(FIRST)).createOrReplaceTempView("suite_rows")

        def grow() -> Sequence[Row]:
            every = pa.concat_tables([arrow(FIRST), arrow(SECOND)])
            spark.createDataFrame(every).createOrReplaceTempView("suite_rows")
            return SECOND

        settings = {"table": "suite_rows", "key_properties": ["id"]}
        wrong = [Bad({"table": "suite_nothing"}, "suite_nothing"), Bad({"table": "a..b"}, "a..b")]
        return Sample(settings, FIRST, TYPES, replication_key="id", grow=grow, bad=wrong)


class LakeSuite(SourceSuite):
    """Tables with a log of changes, by their path or name."""

    def new_table(self, folder: Path, spark: SparkSession) -> tuple[dict[str, Any], Insert]:
        """Create an empty table; return the stream's settings, and what inserts rows."""
        raise NotImplementedError

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        place, insert = self.new_table(folder, spark)
        settings = {**place, "key_properties": ["id"]}
        return Sample(
            settings,
            insert(FIRST),
            TYPES,
            replication_key="id",
            grow=lambda: insert(SECOND),
            bad=[Bad({"path": NOWHERE}, NOWHERE)],
        )


@pytest.mark.server
@pytest.mark.usefixtures("lake_spark")
class TestDelta(LakeSuite):
    form = BUILT_IN["delta"]
    SLOW: ClassVar = OF_ALL_TABLES

    def new_table(self, folder: Path, spark: SparkSession) -> tuple[dict[str, Any], Insert]:
        path = str(folder / "table")
        feed = {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(path, SCHEMA, configuration=feed)

        def insert(rows: Sequence[Row]) -> Sequence[Row]:
            write_deltalake(path, arrow(rows), mode="append")
            return rows

        return {"path": path}, insert


@pytest.mark.server
@pytest.mark.usefixtures("lake_spark")
class TestIceberg(LakeSuite):
    form = BUILT_IN["iceberg"]
    SLOW: ClassVar = OF_ALL_TABLES

    def new_table(self, folder: Path, spark: SparkSession) -> tuple[dict[str, Any], Insert]:
        name = "ice.suite.rows"
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} ({DDL}) USING iceberg")

        def insert(rows: Sequence[Row]) -> Sequence[Row]:
            spark.createDataFrame(arrow(rows)).createOrReplaceTempView("suite_new")
            spark.sql(f"INSERT INTO {name} SELECT * FROM suite_new")
            return rows

        return {"table": name}, insert


@pytest.mark.server
@pytest.mark.usefixtures("lake_spark")
class TestJdbc(SourceSuite):
    form = BUILT_IN["jdbc"]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        database = folder / "rows.db"
        with sqlite3.connect(database) as opened:
            opened.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
            opened.execute("INSERT INTO orders VALUES (1, 'Zoë'), (2, NULL)")

        def grow() -> Sequence[Row]:
            with sqlite3.connect(database) as opened:
                opened.execute("INSERT INTO orders VALUES (3, 'c')")
            return [{"id": 3, "name": "c"}]

        connections = [{"name": "shop", "url": f"jdbc:sqlite:{database}"}]
        settings = {"table": "orders", "connections": connections}
        rows = [{"id": 1, "name": "Zoë"}, {"id": 2, "name": None}]
        wrong = Bad({**settings, "table": "nothing"}, "nothing")
        return Sample(settings, rows, replication_key="id", grow=grow, bad=[wrong])


@pytest.mark.server
@pytest.mark.slow
class TestKafka(SourceSuite):
    form = BUILT_IN["kafka"]

    @pytest.fixture(autouse=True)
    def _broker(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        topic = self.kafka.topic(2)

        def send(rows: Sequence[Row]) -> Sequence[Row]:
            self.kafka.send(topic, [({"id": row["id"]}, json_line(row)) for row in rows])
            return rows

        connections = {"connections": [self.kafka.connection(include=[])]}
        settings = {
            **{"topic": topic, "schema": DDL, "key_format": "json", "key_schema": "id BIGINT"},
            **connections,
        }
        wrong = Bad({**settings, "topic": "nowhere"}, "topic 'nowhere'")
        return Sample(
            settings,
            send(FIRST),
            TYPES,
            replication_key="id",
            grow=lambda: send(SECOND),
            bad=[wrong],
        )


def test_every_format_of_this_package_is_tested() -> None:
    created = [kind for kind in globals().values() if isinstance(kind, type)]
    tested = {
        kind.form.name for kind in created if issubclass(kind, SourceSuite) and "form" in vars(kind)
    }
    assert tested == set(BUILT_IN)
