"""Both programs in one process and one Spark session: the cases of `test_release_slice`.

Run by the Python of an environment with a release of Spark: `release_slice.py '{"folder": …}'`.
Prints the rows that each case gave.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from shared.engine import engine
from shared.singer.platform import arrow_without_pandas
from shared.singer.stdout import MessageOutput, claim_stdout
from shared.spark.conf import SCHEDULES, SparkSettings
from shared.spark.packages import KAFKA, LAKES, with_needs
from shared.spark.session import SessionStarter
from shared.spark.spark_release import installed
from tap_spark.config import tap_config
from tap_spark.send.sync import run_sync
from target_spark.config import target_config
from target_spark.receive.run import run

ROWS = {
    "name": "rows",
    "format": "sql",
    "query": "SELECT id, CAST(id AS decimal(20,3)) / 8 AS part, array(id) AS list, "
    "timestamp'2020-02-03 04:05:06.789' AS at FROM range(3)",
    "key_properties": ["id"],
}
MORE = {**ROWS, "query": str(ROWS["query"]).replace("range(3)", "range(5)")}


class OneSession(SessionStarter):
    """Gives every run of this process the session of the first one."""

    _first: SessionStarter

    def get(self) -> Any:
        return self._first.get()

    def context(self) -> Any:
        return self.get().sparkContext if SCHEDULES in self._settings.conf else None

    def start(self) -> None:
        pass

    def running(self) -> Any:
        return self._first.running()

    def stop(self, orderly_seconds: float | None = None) -> None:
        pass


def sent(*streams: dict[str, Any], **values: Any) -> bytes:
    """Return what the tap sends of streams."""
    path = Path("messages")
    output = MessageOutput(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    run_sync(tap_config({"streams": [*streams], "engine": "spark", **values}), None, None, output)
    return path.read_bytes()


def loaded(messages: bytes, **values: Any) -> None:
    """Load messages by Spark."""
    Path("messages").write_bytes(messages)
    source = os.open("messages", os.O_RDONLY)
    output = MessageOutput(os.open("states", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    run(target_config({"engine": "spark", **values}), source, output)
    assert "rows" in json.loads(Path("states").read_bytes().splitlines()[-1])["bookmarks"]


def rows(messages: bytes, stream: str) -> list[dict[str, Any]]:
    """Return the records of a stream, by their key; metadata columns left out."""
    lines = (json.loads(line) for line in messages.splitlines())
    own = (one for one in lines if one["type"] == "RECORD" and one["stream"] == stream)
    records = [one["record"] for one in own]
    kept = [{name: row[name] for name in row if name[:4] != "_sdc"} for row in records]
    return sorted(kept, key=lambda row: int(row["id"]))


def cases(supplied: dict[str, Any]) -> dict[str, Any]:
    """Return what each case gives that the release has packages for."""
    messages, more = sent(ROWS), sent(MORE)
    batch = {"encoding": {"format": "parquet"}, "storage": {"root": "batches"}}
    loaded(sent(ROWS, batch_config=batch), path="files")
    streams = [{"name": "batches", "format": "parquet", "path": "files/rows"}]
    for form in sorted(LAKES.keys() & installed().packages):
        for lines in (messages, more):
            loaded(lines, format=form, path=form, load_method="upsert")
        streams.append({"name": form, "format": form, "path": f"{form}/rows"})
    loaded(messages, format="jdbc", jdbc=supplied["database"])
    table = {"format": "jdbc", "connection": "db", "table": "public.rows"}
    streams.append({"name": "database", **table})
    # Other tests have tables and topics on the same servers.
    connections = [{"name": "db", **supplied["database"], "exclude": ["*"]}]
    if "kafka" in installed().packages:
        topic = {"format": "kafka", "connection": "k", "topic": supplied["topic"]}
        streams.append({"name": "kafka", **topic})
        connections.append({**supplied["kafka"], "exclude": ["*"]})
    back = sent(*streams, connections=connections)
    actual = {stream["name"]: rows(back, stream["name"]) for stream in streams}
    return {"records": rows(messages, "rows"), **actual}


def main() -> None:
    """Run the cases."""
    supplied = json.loads(sys.argv[1])
    os.chdir(supplied["folder"])
    output = claim_stdout()
    arrow_without_pandas()
    wanted = [need for name, need in LAKES.items() if name in installed().packages]
    wanted += [KAFKA] if "kafka" in installed().packages else []
    url = supplied["database"]["url"]
    settings = with_needs(SparkSettings(**supplied["spark"]), wanted, [(url, None)])
    OneSession._first = SessionStarter(settings)
    OneSession._first.start()
    engine.SessionStarter = OneSession  # type: ignore[misc]
    output.write(json.dumps([installed().line, cases(supplied)]).encode())
    OneSession._first.stop()


if __name__ == "__main__":
    main()
