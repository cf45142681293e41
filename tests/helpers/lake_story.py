"""Runs of the whole target into tables of a lake, and the return to the end of one of them.

Run as a program, it runs the target by each settings of a file, in one session of Spark.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.engine.engine import Engine
from shared.errors import MessageError
from shared.formats.file_formats import FORMATS
from shared.spark.session import SessionStarter
from shared.storage.access import StorageOptions
from shared.storage.urls import join
from target_spark.config import REGISTRY, target_config
from target_spark.load.loader import Loader
from target_spark.operate.rewind import history_lines, rewind
from target_spark.operate.table_maintenance import LakeTables
from target_spark.receive.run import run_with
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = {"kept": "append-only", "merged": "upsert", "fresh": "overwrite"}
FIRST = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
SECOND = {**FIRST, "more": {"type": ["null", "object"], "properties": {"n": {"type": "number"}}}}
BROKEN = "no message"

EXPECTED = {
    "kept": [(1, "a", None), (2, "b", 2.5), (2, None, None), (7, "x", None)],
    "merged": [(1, "a", None), (2, "b", 2.5), (7, "x", None)],
    "fresh": [(2, "b", 2.5)],
}
"""Rows in the end, sorted as text: id, name and the number inside of `more`."""


class _Output:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def settings(streams: Iterable[str] = tuple(STREAMS), **supplied: Any) -> dict[str, Any]:
    """Return settings of a run that loads each stream by its own method."""
    methods = {name: {"load_method": STREAMS[name]} for name in streams}
    return {"streams": methods, "batch_size_rows": 100, **supplied}


def load_story(
    supplied: Mapping[str, Any], spark: Callable[[], SparkSession], folder: Path
) -> None:
    """Run the target.

    The first run fails before its STATE, and the second one gets its records again. What the third
    one brings, with Delta after an audit, is taken back.

    Args:
        supplied: The settings.
        spark: Gives the session.
        folder: For the input.
    """
    import pyarrow as pa

    config, streams = target_config(supplied), list(supplied["streams"])
    files = supplied.get("batch_config", {}).get("storage", {})
    place = join(files.get("root", str(folder)), "batch.parquet")
    rows = pa.table({"id": [7], "name": ["x"]})
    options = StorageOptions(files.get("options", {}))
    FORMATS["parquet"].write(place, rows.schema, [rows], "zstd", options)
    old, new = [{"id": 1, "name": "a"}, {"id": 2}], [{"id": 2, "name": "b", "more": {"n": 2.5}}]
    first = _messages(streams, FIRST, old, place)
    whole = [*first, _state(1), *_messages(streams, SECOND, new), _state(2)]
    last = [*_messages(["fresh"], SECOND, new), _state(3)]

    def run(lines: list[str], config: TargetConfig = config) -> list[bytes]:
        path, output = folder / "input.jsonl", _Output()
        path.write_text("".join(f"{line}\n" for line in lines))
        fd, engine = os.open(path, os.O_RDONLY), Engine.of(spark)
        try:
            run_with(config, fd, output, Loader(config, engine), engine)  # type: ignore[arg-type]
        finally:
            os.close(fd)
        return output.written

    try:
        run([*first, BROKEN])
    except MessageError:
        pass
    else:
        raise AssertionError("the run with a broken input has ended well")
    assert run(whole)[-1] == b'{"at": 2}\n'
    [entry] = history_lines(LakeTables(config, spark()), [], 1, as_json=True)
    more = [*_messages(["kept"], SECOND, [{"id": 9}]), _state(9)]
    audited = config.format == "delta"
    assert (
        run(more, target_config({**supplied, "write_audit_publish": audited}))[-1] == b'{"at": 9}\n'
    )
    tables, end = LakeTables(config, spark()), json.loads(entry)["run"]
    assert rewind(tables, end, [], force=False, dry_run=False) == '{"at":2}'
    if "fresh" in streams:
        assert run(last)[-1] == b'{"at": 3}\n'


def actual(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows that a reader has found, as in `EXPECTED`."""
    reported = [(row["id"], row["name"], (row["more"] or {}).get("n")) for row in rows]
    return sorted(reported, key=repr)


def _messages(
    streams: Iterable[str], columns: dict[str, Any], rows: list[Any], file: str | None = None
) -> list[str]:
    messages: list[dict[str, Any]] = []
    for name in streams:
        head = {"type": "SCHEMA", "stream": name, "schema": {"properties": columns}}
        messages.append({**head, "key_properties": ["id"]})
        messages += [{"type": "RECORD", "stream": name, "record": row} for row in rows]
        if file is not None:
            encoding = {"format": "parquet", "compression": "zstd"}
            batch = {"type": "BATCH", "stream": name, "encoding": encoding}
            messages.append({**batch, "manifest": [file]})
    return [json.dumps(message) for message in messages]


def _state(at: int) -> str:
    return json.dumps({"type": "STATE", "value": {"at": at}})


def main() -> None:
    """Run the target by each settings of a file; the arguments are the file and a folder."""
    listed = json.loads(Path(sys.argv[1]).read_text())
    config = target_config(listed[0])
    starter = SessionStarter(config.spark, REGISTRY.get(config.format).needs)
    starter.start()
    try:
        for supplied in listed:
            load_story(supplied, starter.get, Path(sys.argv[2]))
    finally:
        starter.stop()


if __name__ == "__main__":
    main()
