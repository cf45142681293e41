"""The one rule: what runs in threads, what on Spark, and when Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from shared.engine.engine import (
    COLUMNAR,
    COMPRESSED,
    COPIED,
    IN_PYTHON,
    INTO_SERVER,
    SPARK,
    THREADS,
    TYPES,
    Engine,
    EngineSettings,
    FrameTask,
    Spark,
    Work,
    engine_of,
    weight,
)
from shared.errors import DestinationError, SettingsError, SparkLostError, Where
from shared.formats.file_formats import Encoding
from shared.spark.conf import SCHEDULES, SparkSettings, scheduling
from shared.spark.session import SessionStarter
from shared.spark.spark_errors import explain
from tap_spark.config import tap_config
from tap_spark.send import sync
from target_spark.config import target_config
from target_spark.receive import run

LIMIT = 1000
DDL = "number bigint"


class Starter:
    """Spark, which a test lets be up."""

    def __init__(self, session: Any = None) -> None:
        self.starts, self.session = 0, session

    def start(self) -> None:
        self.starts += 1

    def get(self) -> Any:
        self.start()
        return self.session

    def context(self) -> None:
        """Return that work takes the session."""

    def running(self) -> Any:
        return self.session

    def stop(self) -> None:
        """Do nothing."""


def engine(starter: Starter, choice: str = "auto", **more: Any) -> Engine:
    return Engine(starter, choice, LIMIT, 2, **more)


def takes(chooser: Engine, size: float, why: str = "", **more: Any) -> bool:
    return chooser.takes(Work("s", size, why, **more))


@pytest.mark.parametrize("session", [None, "up"])
def test_threads_do_the_work_up_to_the_limit_also_while_spark_is_up(session: Any) -> None:
    starter = Starter(session)
    chooser = engine(starter)
    assert all(takes(chooser, LIMIT / 4) for _ in range(4))
    assert takes(chooser, 1) is (session is None)
    assert chooser.used.get("s") == (THREADS if session is None else SPARK, "<0.1 of <0.1 MiB")


def test_spark_starts_once_half_of_the_limit_is_done_and_more_comes() -> None:
    starter = Starter()
    chooser = engine(starter)
    assert takes(chooser, LIMIT / 2 + 1)
    assert starter.starts == 0, "nobody knows that more comes"
    assert takes(chooser, 1)
    assert starter.starts == 1


def test_work_beyond_the_limit_starts_spark_at_once_and_waits_for_it() -> None:
    starter = Starter()
    assert not takes(engine(starter), LIMIT + 1)
    assert starter.starts == 1


def test_threads_go_on_with_short_work_until_spark_is_up() -> None:
    starter = Starter()
    chooser = engine(starter)
    takes(chooser, LIMIT)
    assert takes(chooser, LIMIT / 2)
    assert not takes(chooser, LIMIT / 2 + 1), "it would not be over by then"
    starter.session = "up"
    assert not takes(chooser, 1)


def test_records_start_spark_at_half_of_the_limit_as_more_may_come() -> None:
    starter = Starter()
    chooser = engine(starter)
    chooser.receive(LIMIT // 2)
    assert starter.starts == 0
    chooser.receive(1)
    assert starter.starts == 1


@pytest.mark.parametrize(("size", "starts"), [(LIMIT, 0), (LIMIT + 1, 1)])
def test_a_file_tells_how_much_comes(size: int, starts: int) -> None:
    starter = Starter()
    chooser = engine(starter)
    chooser.expect(size)
    chooser.receive(1)
    assert starter.starts == starts
    if size == LIMIT:
        assert all(takes(chooser, size / 4) for _ in range(4))
        assert starter.starts == 0


def test_what_needs_spark_starts_it_with_the_first_row() -> None:
    starter = Starter()
    chooser = engine(starter)
    chooser.needs("format x")
    assert starter.starts == 0
    chooser.receive(0)
    assert starter.starts == 1
    assert not takes(chooser, 1, "format x")
    assert chooser.used.get("s") == (SPARK, "format x")


def test_heavy_rows_count_for_more() -> None:
    starter = Starter()
    chooser = engine(starter)
    chooser.weigh(IN_PYTHON)
    chooser.receive(LIMIT // IN_PYTHON // 2)
    assert starter.starts == 0
    chooser.receive(1)
    assert starter.starts == 1


def test_each_pass_over_the_rows_has_the_whole_limit() -> None:
    starter = Starter()
    chooser = engine(starter)
    assert takes(chooser, LIMIT, kind=TYPES)
    assert chooser.used.get("s") is None
    assert takes(chooser, LIMIT)


def test_with_spark_all_rows_are_its() -> None:
    starter = Starter("up")
    chooser = engine(starter, SPARK)
    assert not takes(chooser, 1)
    assert chooser.used.get("s") == (SPARK, "engine: spark")
    chooser.receive(1)
    assert starter.starts


def test_with_threads_spark_never_starts() -> None:
    starter = Starter("up")
    chooser = engine(starter, THREADS)
    assert takes(chooser, 9 * LIMIT)
    chooser.receive(9 * LIMIT)
    chooser.start()
    for ask in (
        lambda: takes(chooser, 1, "a map"),
        lambda: chooser.needs("a map", "s"),
        lambda: chooser.session("a map"),
    ):
        with pytest.raises(SettingsError, match=r"never starts: a map \(set `engine` to auto\)"):
            ask()
    assert starter.starts == 0


def test_a_session_that_is_asked_for_counts_for_the_stream_that_is_served() -> None:
    chooser = engine(Starter("up"))
    with chooser.serving("s"):
        takes(chooser, LIMIT / 2)
        assert chooser.session("a MERGE") == "up"
    assert chooser.used.get("s") == (SPARK, "a MERGE")
    chooser.session("other work")
    assert chooser.used.get("t") is None


@pytest.mark.parametrize("master", ["local[1]", "local[64]", "spark://host:7077", "yarn"])
def test_the_rule_is_the_same_for_every_master(master: str) -> None:
    chooser = engine_of(EngineSettings(spark_above=LIMIT), SparkSettings(master=master))
    assert chooser.may_read
    assert takes(chooser, LIMIT)
    assert chooser.limit == LIMIT


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        (SparkSettings(conf={"spark.executor.memory": "1g"}), True),
        (SparkSettings(conf={"spark.sql.caseSensitive": "true"}), False),
        (SparkSettings(conf={"spark.sql.legacy.x": "true"}), False),
        (SparkSettings(remote="sc://host"), False),
    ],
)
def test_threads_read_only_by_the_defaults_of_spark(spark: SparkSettings, expected: bool) -> None:
    assert engine_of(EngineSettings(), spark).may_read is expected


def test_compressed_lines_are_more_work_and_columns_less() -> None:
    assert weight(Encoding("jsonl", "none")) == 1
    assert weight(Encoding("parquet", "snappy")) == COLUMNAR
    assert weight(Encoding("parquet", "snappy"), copied=True) == COPIED < COLUMNAR
    assert weight(Encoding("jsonl", "gzip")) == COMPRESSED
    assert weight(Encoding("jsonl", "none"), in_python=True) == IN_PYTHON
    assert weight(Encoding("jsonl", "gzip"), in_python=True) == IN_PYTHON * COMPRESSED


def test_text_into_a_database_is_half_of_the_work() -> None:
    lines = Encoding("jsonl", "none")
    assert weight(lines, into_server=True) == INTO_SERVER
    assert weight(Encoding("jsonl", "gzip"), into_server=True) == INTO_SERVER * COMPRESSED
    assert weight(lines, in_python=True, into_server=True) == IN_PYTHON
    assert weight(Encoding("parquet", "snappy"), into_server=True) == COLUMNAR


@pytest.mark.parametrize(
    ("weights", "size"), [((), 1), ((INTO_SERVER,), 2), ((INTO_SERVER, 4), 0.25)]
)
def test_the_heaviest_byte_decides_when_spark_starts(weights: Iterable[float], size: float) -> None:
    starter = Starter()
    chooser = engine(starter)
    for one in weights:
        chooser.weigh(one)
    chooser.expect(int(LIMIT * size))
    chooser.receive(1)
    assert starter.starts == 0
    chooser.expect(int(LIMIT * size) + 1)
    chooser.receive(1)
    assert starter.starts == 1


def echo(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"number": batch.column(0)})


def failing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.column(0)[0].as_py() == 1:
            raise OSError(32, "Broken pipe")
        yield batch


def test_threads_run_every_task_once_and_raise_what_fails() -> None:
    chooser = engine(Starter())
    work = Work("s", 1, reports=DDL)
    assert chooser.choose(work).run(echo, 20, work) == [{"number": number} for number in range(20)]
    with pytest.raises(OSError, match="Broken pipe"):
        chooser.choose(work).run(failing, 2, work)
    with pytest.raises(TypeError):
        chooser.threads.run(FrameTask(lambda frame: frame), 1, work)


@pytest.mark.spark
@pytest.mark.parametrize("make", [lambda: echo, lambda: FrameTask(lambda numbers: numbers)])
def test_spark_returns_the_same_reports(spark: Any, make: Callable[[], Any]) -> None:
    chooser = Engine.of(lambda: spark)
    work = Work("s", 1, reports=DDL)
    reports = chooser.choose(work).run(make(), 3, work)
    assert sorted(next(iter(row.values())) for row in reports) == [0, 1, 2]


@pytest.mark.spark
def test_a_context_returns_what_a_session_does(spark: Any) -> None:
    both = Spark(lambda: spark), Spark(pytest.fail, lambda: spark.sparkContext)
    work, errors = Work("s", 1, reports=DDL), []
    for one in both:
        assert one.run(echo, 3, work) == [{"number": number} for number in range(3)]
        with pytest.raises(Exception, match="Broken pipe") as caught:
            one.run(failing, 2, work)
        errors.append(explain(caught.value, Where(stream="s"), DestinationError))
    assert str(errors[0]) == str(errors[1])
    assert type(errors[0]) is type(errors[1]) is DestinationError
    with pytest.raises(BaseException, match="asked"):
        Spark(lambda: pytest.fail("asked"), lambda: 1).run(FrameTask(lambda rows: rows), 1, work)


def test_a_stopped_engine_starts_no_spark() -> None:
    starter = SessionStarter(SparkSettings())
    starter.stop()
    assert starter.running() is None
    with pytest.raises(SparkLostError):
        starter.get()


@pytest.mark.parametrize(
    ("choice", "session", "ready"),
    [("auto", None, False), ("auto", 1, True), (SPARK, None, True), (THREADS, 1, False)],
)
def test_spark_is_ready_once_it_could_take_the_next_work(
    choice: str, session: Any, ready: bool
) -> None:
    starter = Starter(session)
    assert engine(starter, choice).is_spark_ready() == ready
    assert starter.starts == 0


def test_java_that_only_schedules_is_told() -> None:
    settings, spark = EngineSettings(), SparkSettings(conf={"a": "b"})
    assert engine_of(settings, spark).conf == {"a": "b"}
    assert engine_of(settings, scheduling(spark, True)).conf == {SCHEDULES: "true", "a": "b"}
    server = SparkSettings(remote="sc://host")
    assert scheduling(server, True) == server, "it would refuse a setting that no user has set"


@pytest.mark.parametrize(
    ("settings", "only"),
    [
        ({"streams": [{"name": "s", "format": "rows", "row_count": 1}]}, True),
        ({"streams": [{"name": "s", "format": "csv", "path": "a.csv"}]}, False),
        (
            {
                "streams": [{"name": "s", "format": "rows", "row_count": 1}],
                "stream_maps": {"s": {"id": None}},
            },
            False,
        ),
    ],
)
def test_a_tap_says_whether_its_java_only_schedules(settings: Any, only: bool) -> None:
    assert (SCHEDULES in sync._spark_of(tap_config(settings)).conf) == only


@pytest.mark.parametrize(
    ("settings", "only"),
    [
        ({"path": "out"}, True),
        ({"path": "out", "format": "orc"}, True),
        ({"path": "out", "format": "delta"}, False),
        ({"path": "out", "stream_maps": {"s": {"id": None}}}, False),
    ],
)
def test_a_target_says_whether_its_java_only_schedules(settings: Any, only: bool) -> None:
    assert (SCHEDULES in run._spark_of(target_config(settings)).conf) == only
