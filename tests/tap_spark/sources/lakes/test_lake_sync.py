"""LOG_BASED through the writers: changes of a key stay in order, as lines and as batch files."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from shared.engine.engine import Engine
from shared.maps.map_settings import TransformSettings, map_rules
from shared.settings.batch_settings import BatchConfig
from shared.singer.stdout import MessageOutput
from tap_spark.config import SpoolSettings, TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool import Spool
from tap_spark.send.stream_outputs import outputs_of
from tap_spark.send.sync import sync_stream
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]


MAPS = {
    "v": "v.upper()",
    "w": {"sql": "concat(v, '-', 100 div (id + 1))"},
    "__filter__": "id < 190",
}


def messages(
    spark: SparkSession,
    stream: StreamConfig,
    state: Any,
    spool: Spool | None,
    batch: Any,
    maps: Any = None,
) -> list[dict[str, Any]]:
    config = TapConfig(streams=(stream,))
    (plan,) = plan_streams(config, catalog_for(spark, config), state, 1)
    rules = map_rules({} if maps is None else {"t": maps}, [])
    outputs, _ = outputs_of(TransformSettings(rules), [plan], lambda: spark)
    source, sink = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        while part := os.read(source, 1 << 16):
            got.append(part)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    output = LineOutput(MessageOutput(sink))
    try:
        run = Run(Engine.of(lambda: spark), output, lambda: spool, batch, outputs=outputs)
        sync_stream(run, plan, StateWriter(state or {}, output.write, 1e9))
    finally:
        output.close()
        os.close(sink)
        reader.join(30)
        os.close(source)
    return [json.loads(line) for line in b"".join(got).splitlines()]


def rows_of(actual: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for message in actual:
        if message["type"] == "RECORD":
            rows.append(message["record"])
        for url in message.get("manifest", ()):
            text = Path(url.removeprefix("file://")).read_text()
            rows += [json.loads(line) for line in text.splitlines()]
    return rows


@pytest.mark.parametrize(
    ("transport", "maps"),
    [
        ("spool", MAPS),
        ("fetch", None),
        pytest.param("batch", None, marks=pytest.mark.slow),
        ("sized batch", MAPS),
    ],
)
def test_changes_of_a_key_stay_in_order(
    lake_spark: SparkSession, tmp_path: Path, transport: str, maps: Any
) -> None:
    path, columns = tmp_path / "table", pa.schema({"id": pa.int64(), "v": pa.string()})
    table = DeltaTable.create(path, columns, configuration={"delta.enableChangeDataFeed": "true"})

    def insert(ids: range, text: str) -> None:
        rows = pa.table([list(ids), [text] * len(ids)], schema=columns)
        write_deltalake(table, rows, mode="append")

    insert(range(200), "first")
    stream = StreamConfig(
        name="t",
        format="delta",
        path=str(path),
        key_properties=("id",),
        replication_method="LOG_BASED",
    )
    batch = None
    if "batch" in transport:
        size = 7 if transport == "sized batch" else None
        batch = BatchConfig(
            format="jsonl", compression="none", root=str(tmp_path / "b"), batch_size=size
        )
    with Spool(SpoolSettings(str(tmp_path))) as spool:
        place = None if transport == "fetch" else spool
        first = messages(lake_spark, stream, None, place, batch, maps)
        count = 190 if maps else 200
        assert sorted(row["id"] for row in rows_of(first)) == list(range(count))
        state = first[-1]["value"]
        table.update(new_values={"v": "second"}, predicate="id < 20")
        table.delete("id < 10")
        insert(range(5), "third")
        actual = messages(lake_spark, stream, state, place, batch, maps)
    kept = dict.fromkeys(range(count), "FIRST" if maps else "first")
    for row in rows_of(actual):
        assert not maps or row["w"] == f"{row['v'].lower()}-{100 // (row['id'] + 1)}"
        if row["_sdc_deleted_at"] is None:
            kept[row["id"]] = row["v"]
        else:
            kept.pop(row["id"], None)
    now = {row["id"]: row["v"] for row in table.to_pyarrow_table().to_pylist()}
    now = {key: value for key, value in now.items() if key < count}
    assert kept == {key: value.upper() if maps else value for key, value in now.items()}
    assert len(rows_of(actual)) == 20 + 10 + 5
    named = ["id", "v", "w"] if maps else ["id", "v"]
    assert list(actual[0]["schema"]["properties"]) == [*named, "_sdc_deleted_at"]
    assert actual[-1]["value"]["bookmarks"]["t"]["version"] == 4
