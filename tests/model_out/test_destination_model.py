"""Random loads, crashes and schema changes: tables equal Python dictionaries all the time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    get_state_machine_test,
    initialize,
    invariant,
    precondition,
    rule,
)
from model_runs import Run
from model_source import CHANGES, Change, Source, Stream
from model_stores import DeltaStore, Store
from model_tables import DELETED, TableModel, as_texts
from pyspark.sql import types as T  # noqa: N812

from target_spark.config import target_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]

UPSERTED, ADDED = "upserted", "added"
KEYS = ("k", "g")
SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"
# The first example does nearly nothing; a commit to a lake takes a second.
EXAMPLES = {"delta": 3, "iceberg": 4, "postgresql": 6}
_numbers = itertools.count(1)
_places = st.integers(0, 1000)


PLAIN_VALUES: dict[type[T.DataType], list[Any]] = {
    T.StringType: ["", "a", "ü'\"\\", "two\nlines\t", "NULL"],
    T.BooleanType: [True, False],
    T.IntegerType: [0, -1, 2**31 - 1],
    T.LongType: [0, 7, 2**62],
    T.FloatType: [0.25, -1.5],
    T.DoubleType: [0.1, -1e15],
}


def values_of(dtype: T.DataType) -> st.SearchStrategy[Any]:
    """JSON values of a column; all of them are exact in every destination."""
    if isinstance(dtype, T.StructType):
        fields = {field.name: values_of(field.dataType) for field in dtype}
        return st.none() | st.fixed_dictionaries(fields)
    if isinstance(dtype, T.ArrayType):
        return st.none() | st.lists(values_of(dtype.elementType), max_size=2)
    if isinstance(dtype, T.DecimalType):
        return st.sampled_from([None, 0.5, -7.25, *([1.0625] if dtype.scale > 2 else [])])
    return st.sampled_from([None, *PLAIN_VALUES[type(dtype)]])


def records_of(stream: Stream) -> st.SearchStrategy[dict[str, Any]]:
    """Records as the stream is now; every fourth is marked as deleted."""
    columns = {name: values_of(stream.fields[name].dataType) for name in stream.optional}
    keys = {"k": st.sampled_from([1, 2, 3, None]), "g": st.sampled_from(["a", "b"])}
    plain = st.fixed_dictionaries({**keys, **columns})
    marked = st.fixed_dictionaries({**keys, **columns, DELETED: st.just("2024-05-06T07:08:09Z")})
    return st.one_of(plain, plain, plain, marked)


class DestinationMachine(RuleBasedStateMachine):
    """A source with a keyed stream and one without, a run of the target, and what must be there.

    Records without a key come exactly once only where a run's flushes end at STATE messages, or
    at the same messages again (`docs/guarantees.md`): such are all flushes where that stream is.
    """

    def __init__(self, store: Store, spark: Callable[[], Any], folder: Path) -> None:
        super().__init__()
        self.store, self.spark, self.folder = store, spark, folder
        self.number = next(_numbers)

    @initialize(
        method=st.sampled_from([UPSERTED, ADDED, "both"]),
        hard_delete=st.booleans(),
        rows=st.sampled_from([None, 2, 5]),
    )
    def begin(self, method: str, hard_delete: bool, rows: int | None) -> None:
        self.aligned = method != UPSERTED
        keys = {UPSERTED: KEYS, ADDED: ()}
        names = [method] if method != "both" else [UPSERTED, ADDED]
        self.source = Source({name: Stream(name, keys[name]) for name in names})
        self.models = {name: TableModel(keys[name], hard_delete) for name in names}
        given = self.store.settings(self.number)
        self.config = target_config(
            {
                **given,
                "hard_delete": hard_delete,
                "streams": {UPSERTED: {"load_method": "upsert"}},
                **({"batch_size_rows": rows} if rows else {}),
            }
        )
        self.done = 0
        self.sent = 0
        self.changed = True
        self.start()

    # What the source does

    @rule(data=st.data(), place=_places, state=st.booleans(), flush=st.booleans())
    def send_records(self, data: st.DataObject, place: int, state: bool, flush: bool) -> None:
        stream = self.stream(place)
        for record in data.draw(st.lists(records_of(stream), min_size=1, max_size=4)):
            self.source.record(stream.name, record)
        if state:
            self.source.state()
        self.send()
        if flush:
            self.flush()

    @rule(place=_places, kind=st.sampled_from(CHANGES))
    def change_columns(self, place: int, kind: Change) -> None:
        stream = self.stream(place)
        if kind(stream, place):
            self.source.schema(stream.name)
            self.send()

    @rule(place=_places)
    def begin_version(self, place: int) -> None:
        """The next records have another version; what is there becomes old by and by."""
        stream = self.stream(place)
        stream.version = (stream.version or 0) + 1

    @precondition(lambda self: any(s.version for s in self.source.streams.values()))
    @rule(place=_places)
    def activate_version(self, place: int) -> None:
        stream = self.stream(place)
        if stream.version is not None:
            self.source.activate(stream.name)
            self.send()

    # What the run does

    @rule()
    def flush(self) -> None:
        self.align()
        self.run.flush()

    @precondition(lambda self: self.run.work)
    @rule(count=st.integers(1, 8), place=_places, twice=st.booleans())
    def work(self, count: int, place: int, twice: bool) -> None:
        """Some of it is done; a commit perhaps twice, as nobody knew whether it had succeeded."""
        for number in range(count):
            if self.run.work:
                self.run.do(self.pick(place // (number + 1)), twice=twice)
                self.changed = True

    @precondition(lambda self: self.sent > self.done + 2)
    @rule(commits=st.integers(0, 3), place=_places, state=st.booleans())
    def crash_after_commits(self, commits: int, place: int, state: bool) -> None:
        """Everything is committed up to the last of them, of which the run does not hear."""
        if state:
            self.flush()
        while self.run.work and commits:
            work = self.pick(place)
            commits -= self.run.commits(work)
            self.run.do(work, heard=commits > 0)
            self.changed = True
        self.restart()

    @precondition(lambda self: self.run.work)
    @rule(count=st.integers(0, 8), place=_places)
    def crash(self, count: int, place: int) -> None:
        """Work goes on for a while; of the last piece of it nobody hears."""
        for left in range(count, 0, -1):
            if self.run.work:
                self.run.do(self.pick(place // left), heard=left > 1)
                self.changed = True
        self.restart()

    @precondition(lambda self: self.sent > self.done + 4)
    @rule()
    def end(self) -> None:
        self.source.state()
        self.send()
        self.run.finish()
        assert self.run.output.states[-1:] in ([len(self.source.log)], [])
        self.changed = True
        self.restart()

    # Checks

    @invariant()
    def tables_equal_the_model(self) -> None:
        if not getattr(self, "changed", False):
            return
        self.changed = False
        for name, model in self.models.items():
            rows = self.store.rows(self.number, name)
            if rows is None:
                assert not model.rows
            else:
                lists = self.store.empty_lists
                found = as_texts(rows, empty_lists=lists)
                wanted = model.expected(empty_lists=lists)
                assert (found - wanted, wanted - found) == (Counter(), Counter()), name

    def teardown(self) -> None:
        if hasattr(self, "run"):
            if self.run.is_broken:  # that failure is to be seen, not one of the end
                return
            self.run.finish()
            self.run.leave()
            self.changed = True
            self.tables_equal_the_model()

    # Helpers

    def stream(self, place: int) -> Stream:
        streams = list(self.source.streams.values())
        return streams[place % len(streams)]

    def pick(self, place: int) -> int:
        return self.run.work[place % len(self.run.work)]

    def align(self) -> None:
        if self.aligned:
            self.source.state()
            self.send()

    def start(self) -> None:
        self.run = Run(self.config, self.spark, self.models, self.folder / "staging")
        self.run.feed(self.source.since(self.done))
        self.sent = len(self.source.log)

    def send(self) -> None:
        self.run.feed([entry.line for entry in self.source.log[self.sent :]])
        self.sent = len(self.source.log)

    def restart(self) -> None:
        self.done = max([self.done, *self.run.output.states])
        self.run.leave()
        self.start()


@pytest.fixture
def one_task(lake_spark: SparkSession) -> Any:
    """Delta replays a table's log by this many tasks, 50 by default."""
    lake_spark.conf.set(SNAPSHOT_TASKS, "1")
    yield lake_spark
    lake_spark.conf.unset(SNAPSHOT_TASKS)


def test_tables_equal_the_model(
    store: Store, one_task: SparkSession, tmp_path: Path, kill_seed: int
) -> None:
    if isinstance(store, DeltaStore):
        store._spark = one_task
    rounds = settings(
        max_examples=EXAMPLES[store.name],
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    test = get_state_machine_test(
        lambda: DestinationMachine(store, lambda: one_task, tmp_path),  # type: ignore[arg-type]
        settings=rounds,
    )
    test._hypothesis_internal_use_seed = kill_seed  # type: ignore[attr-defined]
    test()
