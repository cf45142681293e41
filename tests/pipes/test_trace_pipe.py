"""OpenTelemetry spans and metrics of both programs, at a receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from http_receiver import Receiver, receiving
from otlp import points, spans
from pipe_programs import Programs

pytestmark = pytest.mark.pipe

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "hush-key"
ROWS = 1000


@pytest.fixture
def receiver(programs: Programs) -> Iterator[Receiver]:
    with receiving() as server:
        server.status = 200
        programs.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={SECRET}",
            "TRACEPARENT": f"00-{TRACE}-b7ad6b7169203331-01",
        }
        yield server


def test_batches_from_tap_to_table(programs: Programs, receiver: Receiver) -> None:
    source = programs.folder / "orders.csv"
    source.write_text("id,name\n" + "".join(f"{n},x{n}\n" for n in range(ROWS)))
    batch = {"encoding": {"format": "parquet"}, "storage": {"root": str(programs.folder / "b")}}
    stream = {"name": "orders", "path": str(source), "format": "csv"}
    tap = programs.tap_command({"streams": [stream], "batch_config": batch})
    sent = programs.run([*tap, "--summary", "tap.json"])
    assert sent.returncode == 0, sent.stderr
    assert {span.name for span in spans(receiver)} == {
        *("tap-spark", "stream orders", "batch orders")
    }
    assert points(receiver)["singer.batch_count", "orders"] == 1
    summary = json.loads((programs.folder / "tap.json").read_text())
    assert summary["streams"]["orders"]["batch_files"] == 1

    target = programs.target_command({"path": str(programs.folder / "out")})
    loaded = programs.run(target, sent.stdout)
    assert loaded.returncode == 0, loaded.stderr
    actual = spans(receiver)
    assert {span.name for span in actual} >= {"target-spark", "flush orders"}
    assert {span.trace_id.hex() for span in actual} == {TRACE}
    assert {span.status.code for span in actual} == {0}
    assert points(receiver)["singer.record_count", "orders"] == ROWS
    assert all(one.headers["x-key"] == SECRET for one in receiver.posted)
    assert all(SECRET.encode() not in one.body for one in receiver.posted)
    assert b"WARNING" not in sent.stderr + loaded.stderr


def test_a_run_that_fails(programs: Programs, receiver: Receiver) -> None:
    done = programs.run(programs.target_command({"path": "out"}), b'{"type": "SCHEMA"}\n')
    assert done.returncode == 4, done.stderr
    [span] = spans(receiver)
    assert span.status.code == 2
    assert span.status.message in done.stderr.decode()
    assert ("singer.job_duration", "failed") in points(receiver)
