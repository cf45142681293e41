"""Random loads, crashes and schema changes: tables equal Python dictionaries all the time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
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
from model_source import (
    ALIEN_TYPES,
    CHANGES,
    CHANGING,
    DELETED,
    FORMS,
    NUMBER,
    Form,
    Source,
    Stream,
    line_of,
)
from model_stores import DeltaStore, Store
from model_tables import TableModel, as_texts
from pyspark.sql import types as T  # noqa: N812

from target_spark.config import target_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak, pytest.mark.costly]

UPSERTED, ADDED, REPLACED = "upserted", "added", "replaced"
KEYS = ("k", "g")
METHODS = {UPSERTED: "upsert", ADDED: "append-only", REPLACED: "overwrite"}
MIXES = ((UPSERTED,), (ADDED,), (UPSERTED, ADDED), (REPLACED,), (REPLACED, UPSERTED))
# The first example does nearly nothing; a commit to a lake takes a second.
EXAMPLES = {"delta": 2, "iceberg": 3, "postgresql": 3}
MORE_EXAMPLES = {"delta": 3, "iceberg": 4, "postgresql": 5}
"""With any but the first seed, which alone `.ci/run` has."""
_numbers = itertools.count(1)
_chances = st.randoms(use_true_random=True)
NULLS, MARKS, NEW_VERSIONS = 0.3, 0.25, 0.2
"""How often a value is null, a record marked as deleted, and a version begun."""


PLAIN_VALUES: dict[type[T.DataType], list[Any]] = {
    T.StringType: ["", "a", "ü'\"\\", "two\nlines\t", "NULL"],
    T.BooleanType: [True, False],
    T.IntegerType: [0, -1, 2**31 - 1],
    T.LongType: [0, 7, 2**62],
    T.FloatType: [0.25, -1.5],
    T.DoubleType: [0.1, -1e15],
    T.DecimalType: [0.5, -7.25],
    T.DateType: ["2024-02-29", "1969-12-31"],
}
KEY_VALUES: dict[type[T.DataType], list[Any]] = {
    T.IntegerType: [1, 2, 3],
    T.LongType: [1, 2, 2**40],
    T.StringType: ["1", "x"],
}


def value_of(field: T.StructField, chance: Random) -> Any:
    """Return a JSON value of a column; all of them are exact in every destination."""
    if field.nullable and chance.random() < NULLS:
        return None
    dtype = field.dataType
    if isinstance(dtype, T.StructType):
        return {inner.name: value_of(inner, chance) for inner in dtype}
    if isinstance(dtype, T.ArrayType):
        element = T.StructField("element", dtype.elementType)
        return [value_of(element, chance) for _ in range(chance.randrange(3))]
    return chance.choice(PLAIN_VALUES[type(dtype)])


def record_of(stream: Stream, chance: Random) -> dict[str, Any]:
    """Return a record as the stream is now; every fourth is marked as deleted."""
    key = stream.fields["k"]
    numbers = KEY_VALUES[type(key.dataType)]
    marks = {DELETED: "2024-05-06T07:08:09Z"} if chance.random() < MARKS else {}
    columns = {name: value_of(stream.fields[name], chance) for name in stream.optional}
    return {"k": chance.choice(numbers), "g": chance.choice("ab"), **columns, **marks}


class DestinationMachine(RuleBasedStateMachine):
    """A source with one or two streams, a run of the target, and what must be there.

    Records without a key come exactly once only where a run's flushes end at STATE messages, or
    at the same messages again (`docs/guarantees.md`): such are all flushes where that stream is.
    """

    def __init__(self, store: Store, spark: Callable[[], Any], folder: Path) -> None:
        super().__init__()
        self.store, self.spark, self.folder = store, spark, folder
        self.number = next(_numbers)

    @initialize(
        names=st.sampled_from(MIXES),
        keyed=st.booleans(),
        hard_delete=st.booleans(),
        rows=st.sampled_from([None, 2, 5]),
        conflicts=st.sampled_from(["fail", "suffix", "cast"]),
        alone=st.booleans(),
    )
    def begin(
        self,
        names: tuple[str, ...],
        keyed: bool,
        hard_delete: bool,
        rows: int | None,
        conflicts: str,
        alone: bool,
    ) -> None:
        self.aligned = ADDED in names
        self.conflicts = conflicts
        keys = {UPSERTED: KEYS, ADDED: (), REPLACED: KEYS if keyed else ()}
        streams = {name: Stream(name, keys[name]) for name in names}
        self.source = Source(streams, self.folder / f"files-{self.number}")
        self.models = {
            name: TableModel(keys[name], hard_delete, name == REPLACED) for name in names
        }
        self.settings = {
            **self.store.settings(self.number),
            "hard_delete": hard_delete,
            "engine": "auto" if alone else "spark",
            # A server may take a moment to notice that the connection of a dead run is closed.
            "overlapping_runs": {"policy": "wait", "wait_limit_seconds": 30},
            "streams": {name: {"load_method": METHODS[name]} for name in names},
            **({"batch_size_rows": rows} if rows else {}),
        }
        self.done = 0
        self.sent = 0
        self.changed = True
        self.start()

    # What the source does

    @rule(
        chance=_chances,
        changes=st.sampled_from([0, 1, 1, 2]),
        form=st.sampled_from(["record", *FORMS]),
        state=st.booleans(),
        flush=st.booleans(),
    )
    def send_records(
        self, chance: Random, changes: int, form: Form, state: bool, flush: bool
    ) -> None:
        """Send some records, perhaps with other columns than before, perhaps of a new version.

        Rows of older versions are removed gradually, or when the new one is activated.
        """
        stream = self.stream(chance)
        if chance.random() < NEW_VERSIONS:
            stream.version = (stream.version or 0) + 1
        changed = [kind(stream, chance) for kind in chance.choices(CHANGES, k=changes)]
        if any(changed):
            self.source.schema(stream.name)
        records = [record_of(stream, chance) for _ in range(chance.randint(1, 4))]
        self.source.send(stream.name, records, form)
        if state:
            self.source.state()
        self.send()
        if flush:
            self.flush()

    @rule(chance=_chances, form=st.sampled_from(FORMS))
    def change_type(self, chance: Random, form: Form) -> None:
        """Change the type of a column's values; the setting says what becomes of them.

        If that is an error, the next run has another setting. Tables that are replaced forget
        the types of earlier runs.
        """
        stream = self.stream(chance)
        before = self.done if stream.name == REPLACED else 0
        if CHANGING not in stream.fields or not stream.retype(CHANGING, chance.choice(ALIEN_TYPES)):
            return
        is_known = self.source.has_sent(stream.name, CHANGING, before)
        is_refused = self.conflicts == "fail" and is_known
        self.align()
        self.source.schema(stream.name)
        self.source.send(stream.name, [record_of(stream, chance)], form)
        if is_refused:
            assert f"'{CHANGING}'" in self.run.refuse(self.unsent())
            self.conflicts = chance.choice(["suffix", "cast"])
            self.changed = True
            self.restart()
        else:
            self.send()

    @rule(chance=_chances)
    def change_key(self, chance: Random) -> None:
        """Change the type of a key, which no setting allows; the next run has the old key."""
        stream = self.stream(chance)
        has_table = self.source.has_sent(stream.name, "k", 0)
        if not stream.keys or not has_table or stream.name == REPLACED:
            return
        self.align()
        other = stream.with_type("k", T.StringType())
        record = {NUMBER: 0, **record_of(other, chance)}
        line = line_of({"type": "RECORD", "stream": stream.name, "record": record})
        assert "'k'" in self.run.refuse([other.schema_line(), line])
        self.changed = True
        self.restart()

    @precondition(lambda self: any(s.version for s in self.source.streams.values()))
    @rule(chance=_chances)
    def activate_version(self, chance: Random) -> None:
        stream = self.stream(chance)
        if stream.version is not None:
            self.source.activate(stream.name)
            self.send()

    # What the run does

    @rule()
    def flush(self) -> None:
        self.align()
        self.run.flush()

    @precondition(lambda self: self.run.work)
    @rule(chance=_chances, twice=st.booleans())
    def work(self, chance: Random, twice: bool) -> None:
        """Do some of the work; a commit perhaps twice, as if its outcome were unknown."""
        for _ in range(chance.randint(1, 8)):
            if self.run.work:
                self.run.do(chance.choice(self.run.work), twice=twice)
                self.changed = True

    @precondition(lambda self: self.sent > self.done + 2)
    @rule(chance=_chances, commits=st.integers(0, 3), state=st.booleans())
    def crash_after_commits(self, chance: Random, commits: int, state: bool) -> None:
        """Commit everything, but kill the run before it learns of the last commit."""
        if state:
            self.flush()
        while self.run.work and commits:
            work = chance.choice(self.run.work)
            commits -= self.run.commits(work)
            self.run.do(work, heard=commits > 0)
            self.changed = True
        self.restart()

    @precondition(lambda self: self.run.work)
    @rule(chance=_chances)
    def crash(self, chance: Random) -> None:
        """Work for a while, then kill the run before it learns of the last piece of work."""
        for left in range(chance.randint(0, 8), 0, -1):
            if self.run.work:
                self.run.do(chance.choice(self.run.work), heard=left > 1)
                self.changed = True
        self.restart()

    @precondition(lambda self: self.sent > self.done + 4)
    @rule(chance=_chances, killed=st.booleans())
    def end(self, chance: Random, killed: bool) -> None:
        """End the input well; perhaps kill the run before all of it has been loaded."""
        self.source.state()
        self.send()
        if killed:
            self.run.end()
            self.crash(chance)
            return
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
                how: Any = {
                    "empty_lists": self.store.empty_lists,
                    "cast": self.conflicts == "cast",
                }
                actual, wanted = as_texts(rows, **how), as_texts(model.rows.values(), **how)
                assert (actual - wanted, wanted - actual) == (Counter(), Counter()), name

    def teardown(self) -> None:
        if hasattr(self, "run"):
            if self.run.is_broken:  # report that failure, not one of the end
                return
            self.run.finish()
            self.run.leave()
            self.changed = True
            self.tables_equal_the_model()

    # Helpers

    def stream(self, chance: Random) -> Stream:
        return chance.choice(list(self.source.streams.values()))

    def align(self) -> None:
        if self.aligned:
            self.source.state()
            self.send()

    def start(self) -> None:
        config = target_config({**self.settings, "type_conflicts": self.conflicts})
        self.run = Run(config, self.spark, self.models, self.source, self.folder / "staging")
        self.run.feed(self.source.since(self.done))
        self.sent = len(self.source.log)

    def unsent(self) -> list[bytes]:
        before, self.sent = self.sent, len(self.source.log)
        return [entry.line for entry in self.source.log[before:]]

    def send(self) -> None:
        self.run.feed(self.unsent())

    def restart(self) -> None:
        self.done = max([self.done, *self.run.output.states])
        self.run.leave()
        self.start()


def test_tables_equal_the_model(
    store: Store, lake_spark: SparkSession, tmp_path: Path, kill_seed: int
) -> None:
    if isinstance(store, DeltaStore):
        store._spark = lake_spark
    rounds = settings(
        max_examples=(MORE_EXAMPLES if kill_seed else EXAMPLES)[store.name],
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    test = get_state_machine_test(
        lambda: DestinationMachine(store, lambda: lake_spark, tmp_path),  # type: ignore[arg-type]
        settings=rounds,
    )
    test._hypothesis_internal_use_seed = kill_seed  # type: ignore[attr-defined]
    test()
