"""The command `verify`, before Spark starts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.errors import DifferenceError, MessageError, SettingsError
from shared.singer.stdout import MessageOutput
from target_spark.cli import main
from target_spark.config import stream_settings, table_request, target_config
from target_spark.core.differences import RangeDifference, TableDifference
from target_spark.core.load_plans import Backfill, StreamSchema
from target_spark.operate import trial_runs as command
from target_spark.run_settings import TargetConfig

EQUAL = TableDifference("a", "'/t/a'", 3, 3)
DIFFERENT = TableDifference("b", "'/t/b'", 3, 2, (RangeDifference(0, 3, 2, {"missing": 1}, {}),))


def config(**settings: Any) -> TargetConfig:
    return target_config({"path": "/t", "format": "delta", "load_method": "upsert", **settings})


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Any]]:
    """Return a function that runs the command over what is found, and returns its lines."""

    def run(*actual: TableDifference, part: Backfill | None = None, **how: Any) -> list[Any]:
        def found_by(config: TargetConfig, fd: int, output: MessageOutput) -> None:
            output.write(b"a STATE\n")
            for one in actual:
                assert config.verification is not None
                config.verification.report(one)

        monkeypatch.setattr(command, "run", found_by)
        path = tmp_path / "out"
        output = MessageOutput(os.open(path, os.O_WRONLY | os.O_CREAT))
        try:
            command.verify(replace(config(), backfill=part), 0, output, ranges=4, **how)
        finally:
            lines.extend(json.loads(line) for line in path.read_text().splitlines())
        return lines

    lines: list[Any] = []
    run.lines = lines  # type: ignore[attr-defined]
    return run


def test_equal_tables(verified: Callable[..., list[Any]]) -> None:
    assert [line["equal"] for line in verified(EQUAL)] == [True], "and no STATE"


def test_different_tables(verified: Callable[..., list[Any]]) -> None:
    with pytest.raises(DifferenceError) as failed:
        verified(EQUAL, DIFFERENT)
    assert [line["table"] for line in verified.lines] == ["'/t/a'", "'/t/b'"]  # type: ignore[attr-defined]
    assert str(failed.value) == (
        "tables differ from the source: '/t/b' (1 missing) (--repair changes the rows that differ)"
    )
    assert failed.value.exit_code == 14


def test_vanished_rows_of_a_range(verified: Callable[..., list[Any]]) -> None:
    with pytest.raises(DifferenceError, match="stay without --force"):
        verified(DIFFERENT, part=Backfill("b", "id", "1", "5"), repair=True)


def test_one_line_for_people() -> None:
    repaired = TableDifference("b", "'/t/b'", 3, 2, DIFFERENT.ranges, repaired=("missing",))
    start = "stream 'b', '/t/b': 3 rows of the source, 2 of the table;"
    assert command.summary_of(repaired) == f"{start} repaired: 1 missing"
    assert command.summary_of(DIFFERENT) == f"{start} differs: 1 missing"
    assert command.summary_of(EQUAL).endswith("3 of the table; equal")


def test_files_can_be_compared_but_not_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tmp_path / "config.json"
    settings.write_text('{"path": "x"}')
    supplied = ["verify", "--config", str(settings), "--input", str(settings)]
    assert main([*supplied, "--repair"]) == 2
    assert "tables of the format 'parquet' cannot be repaired" in caplog.text
    assert main([*supplied, "--backfill", "s", "--column", "c", "--from", "1", "--to", "2"]) == 2
    assert "the format 'parquet' cannot replace a range" in caplog.text


def test_a_range_has_all_of_its_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tmp_path / "config.json"
    settings.write_text('{"path": "x", "format": "delta"}')
    supplied = ["verify", "--config", str(settings), "--backfill", "orders", "--from", "1"]
    assert main(supplied) == 2
    assert "a backfill needs four options" in caplog.text


class TestRequests:
    STREAM = StreamSchema("a", {"properties": {"id": {"type": "integer"}}}, ("id",))

    def request(
        self,
        stream: StreamSchema = STREAM,
        *,
        deletes: bool = False,
        column: str = "id",
        **settings: Any,
    ) -> Any:
        from pyspark.sql import types as T  # noqa: N812

        from target_spark.core.differences import Verification

        part = Backfill("a", column, "1", "5")
        wanted = Verification(print, deletes=deletes)
        own = replace(config(**settings), verification=wanted, backfill=part)
        assert stream_settings(own, "a").method == "overwrite", "rows wait for the end of the input"
        columns = [T.StructField(name, T.LongType()) for name in ("id", "at")]
        return table_request(own, stream, T.StructType(columns))

    def test_rows_are_compared_by_key(self) -> None:
        assert self.request().method == "overwrite"
        assert self.request().backfill is not None
        with pytest.raises(MessageError, match="key properties"):
            self.request(StreamSchema("a", self.STREAM.schema))

    def test_only_the_stream_of_a_range_is_taken(self) -> None:
        with pytest.raises(SettingsError, match="a backfill of 'a' has another stream"):
            self.request(replace(self.STREAM, stream="A"))
        assert self.request(denormalized=False).backfill is not None
        assert self.request(column="at").backfill is not None
        with pytest.raises(MessageError, match="it must be a key property"):
            self.request(column="at", denormalized=False)

    def test_deletions_need_the_keys_alone(self) -> None:
        actual = self.request(deletes=True, partition_by=["day"], upsert_order_by="at")
        assert (actual.layout.partition_by, actual.order_by) == ((), ())
        with pytest.raises(SettingsError, match="'on' is not a column of the stream"):
            self.request(upsert_order_by="on")

    def test_files_may_be_appended_to(self) -> None:
        files = {"format": "parquet", "load_method": "append-only"}
        assert self.request(**files).method == "overwrite"
        with pytest.raises(SettingsError, match="'append-only' holds other rows"):
            self.request(load_method="append-only")

    def test_the_table_must_hold_one_row_for_each_key(self) -> None:
        with pytest.raises(SettingsError, match="'history' holds other rows than the source"):
            self.request(load_method="history")
