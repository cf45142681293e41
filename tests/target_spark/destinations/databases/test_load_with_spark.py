"""Batches through the loader's Spark jobs into PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from database_loads import PASSWORD, PG, tables_of
from pyspark.sql import SparkSession

from shared.engine.engine import Engine
from shared.errors import DestinationError, RecordError, may_pass
from shared.formats.file_formats import Encoding
from target_spark.config import target_config
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader

pytestmark = [pytest.mark.server, pytest.mark.spark]
SCHEMA = StreamSchema(
    "items",
    {
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["string", "null"]},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        },
        "required": ["id"],
    },
    ("id",),
)


Loaders = Callable[..., Loader]


@pytest.fixture
def loader(pg: PG, spark: SparkSession) -> Iterator[Loaders]:
    """Loaders of the test, which are closed after it: the database is one for all tests."""
    with ExitStack() as stack:

        def created(kind: type[Loader] = Loader, **more: Any) -> Loader:
            jdbc = {"url": pg.database.url, "user": "postgres", "password": PASSWORD}
            settings = {"format": "jdbc", "jdbc": jdbc, "load_method": "upsert", **more}
            engine = Engine.of(lambda: spark)
            return stack.enter_context(closing(kind(target_config(settings), engine)))

        yield created


def batch(folder: Path, token: str, *files: list[dict[str, Any]]) -> Batch:
    inputs = []
    for number, rows in enumerate(files):
        path = folder / f"{token}-{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        inputs.append(InputFile(str(path), Encoding("jsonl", "none"), size=100 * 1024 * 1024))
    return Batch(SCHEMA, tuple(inputs), token)


def test_mapped_batches_are_upserted(pg: PG, loader: Loaders, tmp_path: Path):
    maps = {
        "items": {"name": "name.upper()", "count": {"sql": "size(tags)"}, "tags": None},
        "tags": {"__source__": "items", "__else__": None, "all": "tags", "__filter__": "tags"},
    }
    loading = loader(MappedLoader, stream_maps=maps, add_record_metadata=False)
    rows = [{"id": n, "name": "old", "tags": ["a", 'b"'] if n else []} for n in range(3)]
    for token, files in (("m-1", (rows,)), ("m-2", ([{**rows[1], "name": "new"}],))):
        flush = batch(tmp_path, token, *files)
        loading.commit(flush, [loading.convert(flush)])
    loading.finish("items")
    assert pg.table("select id, name, count from items order by 1") == [
        ("0", "OLD", "0"), ("1", "NEW", "2"), ("2", "OLD", "2"),
    ]  # fmt: skip
    assert [row[0] for row in pg.table("select id from tags order by 1")] == ["1", "2"]


def test_batches_are_upserted(pg: PG, loader: Loaders, tmp_path: Path):
    loading = loader()
    old = [{"id": n, "name": "old", "tags": ["a", 'b"']} for n in range(100)]
    new = [{"id": n, "name": "new"} for n in range(50)]
    for token, files in (("r-1", (old, new)), ("r-2", (new[:10],))):
        flush = batch(tmp_path, token, *files)
        loading.commit(flush, [loading.convert(flush)])
    loading.finish("items")
    assert pg.table("select name, count(*) from items group by 1 order by 1") == [
        ("new", "50"),
        ("old", "50"),
    ]
    assert pg.table("select tags->>1 from items where id = 99") == [('b"',)]
    assert pg.table("select count(_sdc_batched_at) from items") == [("100",)]
    assert tables_of(pg) == ["items"]


def test_what_an_executor_meets_is_told_in_one_line(loader: Loaders, tmp_path: Path):
    flush = batch(tmp_path, "r-1", [{"id": 1, "name": "a\0b"}])
    with pytest.raises(RecordError, match="'name': the text contains a NUL character") as caught:
        loader().convert(flush)
    assert not may_pass(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_goes_away_while_executors_write_may_come_back(
    loader: Loaders, tmp_path: Path
):
    loading = loader()
    flush = batch(tmp_path, "r-1", [{"id": 1, "name": "a"}])
    write = loading._tables.prepare(flush)
    sink = write.sink
    object.__setattr__(sink, "place", type(sink.place)("postgresql", ("127.0.0.1",), (1,), "x"))
    with pytest.raises(DestinationError, match="check host and port") as caught:
        loading.convert(flush)
    assert may_pass(caught.value)
