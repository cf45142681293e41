"""Conformance tests for destinations, which their authors run by pytest.

Subclass `DestinationSuite` in a test module, under a name that begins with `Test`. Tests of
capabilities that the declaration does not claim are skipped. Views are not tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

try:
    import pytest
except ModuleNotFoundError as missing:
    missing.msg = f"{__name__} needs pytest: pip install 'singer-spark[testing]'"
    raise
from pyspark.sql import SparkSession

from shared.engine.engine import Engine
from shared.errors import (
    BalanceError,
    DifferenceError,
    MessageError,
    RecordError,
    SettingsError,
)
from shared.formats.file_formats import Encoding
from shared.singer.run_summary import RunSummary
from shared.spark.packages import with_needs
from shared.spark.session import start_session
from target_spark.config import REGISTRY, target_config
from target_spark.core.differences import DryRun, TableDifference, Verification
from target_spark.core.load_plans import Backfill, Batch, InputFile, StreamSchema
from target_spark.destinations.destination_declaration import Supports
from target_spark.load.loader import Loader
from target_spark.receive.run import run_with
from target_spark.run_settings import TargetConfig

Message = dict[str, Any]
Row = dict[str, Any]

TABLE = "things"
PROPERTIES = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}


def schema(**more: Any) -> Message:
    """Return the SCHEMA of the stream; `more` are further properties."""
    properties = {**PROPERTIES, **more}
    keys = ["id"]
    declared = {"type": "object", "properties": properties}
    return {"type": "SCHEMA", "stream": TABLE, "schema": declared, "key_properties": keys}


def record(number: int, name: Any = "x", version: int | None = None, **more: Any) -> Message:
    """Return a RECORD; `more` are further properties."""
    own = {"type": "RECORD", "stream": TABLE, "record": {"id": number, "name": name, **more}}
    return own if version is None else {**own, "version": version}


def state(number: int) -> Message:
    """Return a STATE."""
    return {"type": "STATE", "value": {"n": number}}


def activate(version: int) -> Message:
    """Return an ACTIVATE_VERSION."""
    return {"type": "ACTIVATE_VERSION", "stream": TABLE, "version": version}


@cache
def _about() -> dict[str, Any]:
    about = [sys.executable, "-m", "target_spark.cli", "--about", "--format", "json"]
    done = subprocess.run(about, check=True, capture_output=True, text=True)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


class _States:
    """Takes STATE in the place of standard output."""

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self.numbers: list[int] = []

    def write(self, data: bytes) -> None:
        number = json.loads(data)["n"]
        self._check(number)
        self.numbers.append(number)


class DestinationSuite:
    """The tests. Give `format`, `settings` and `read`; `session` if you have one."""

    format: ClassVar[str]
    _session: ClassVar[SparkSession | None] = None

    def settings(self, folder: Path) -> dict[str, Any]:
        """Return the settings of the destination; every folder must lead to other tables."""
        raise NotImplementedError

    def read(self, folder: Path, table: str) -> Sequence[Row]:
        """Return all rows of a table, in any order; none for a table that does not exist."""
        raise NotImplementedError

    def session(self, config: TargetConfig) -> SparkSession:
        """Return the Spark session; by default one that all tests of the process share."""
        if DestinationSuite._session is None:
            DestinationSuite._session = start_session(
                with_needs(config.spark, REGISTRY.get(config.format).needs)
            )
        return DestinationSuite._session

    @property
    def supports(self) -> Supports:
        """Return what the destination declares."""
        return REGISTRY.get(self.format).supports

    def config(self, folder: Path, **more: Any) -> TargetConfig:
        """Return the whole settings, by which all of `more` go to the target."""
        return target_config({"format": self.format, **self.settings(folder), **more})

    def load(
        self,
        folder: Path,
        *messages: Message | str,
        check: Callable[[int], None] = lambda _: None,
        summary: RunSummary | None = None,
        backfill: Backfill | None = None,
        verification: Verification | None = None,
        dry_run: DryRun | None = None,
        **more: Any,
    ) -> list[int]:
        """Run the target over messages.

        Args:
            folder: See `settings`.
            messages: Objects, or lines as text.
            check: Called before each STATE is written.
            summary: Collects the counts of the run.
            backfill: The range that the run replaces.
            verification: Compare instead of loading.
            dry_run: Look instead of loading.
            more: Further settings.

        Returns:
            The numbers of the STATE messages that went out.
        """
        texts = (text if isinstance(text, str) else json.dumps(text) for text in messages)
        path = folder / "input.jsonl"
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        own = self.config(folder, **more)
        config = replace(own, backfill=backfill, verification=verification, dry_run=dry_run)
        states = _States(check)
        engine = Engine.of(lambda: self.session(config))
        loader = Loader(config, engine)
        fd = os.open(path, os.O_RDONLY)
        try:
            run_with(config, fd, states, loader, engine, summary)  # type: ignore[arg-type]
        finally:
            os.close(fd)
        return states.numbers

    def rows(self, folder: Path, *names: str) -> list[tuple[Any, ...]]:
        """Return the table's rows, sorted by `id`: the columns `id`, `name` and `names`."""
        outcome = self.read(folder, TABLE)
        columns = ("id", "name", *names)
        return sorted((tuple(row.get(n) for n in columns) for row in outcome), key=lambda r: r[0])

    def needs(self, *abilities: str) -> None:
        """Skip the test if the declaration does not claim all of these."""
        for ability in abilities:
            if not getattr(self.supports, ability):
                pytest.skip(f"not offered: {self.format} does not declare {ability!r}")

    def test_is_declared_without_spark(self) -> None:
        """The settings and `--about` know the format; nothing has imported pyspark for that."""
        code = (
            "import sys, target_spark.config as c; c.REGISTRY.get(sys.argv[1]); "
            "assert 'pyspark' not in sys.modules, 'the declaration imports pyspark'"
        )
        subprocess.run([sys.executable, "-c", code, self.format], check=True)
        properties = _about()["settings"]["properties"]
        assert self.format in properties["format"]["enum"]
        block = REGISTRY.get(self.format).block
        assert block is None or properties[self.format] == block

    def test_appends(self, tmp_path: Path) -> None:
        """Rows of one run are added to those of another; values arrive as they are."""
        texts = ['é, "quoted"', "'", None]
        self.load(tmp_path, schema(), *(record(n, text) for n, text in enumerate(texts)))
        assert self.rows(tmp_path) == list(enumerate(texts))
        self.load(tmp_path, schema(), record(3), record(4))
        assert self.rows(tmp_path) == [*enumerate(texts), (3, "x"), (4, "x")]

    def test_state_goes_out_behind_its_rows(self, tmp_path: Path) -> None:
        """STATE goes out in its order, and what is before it is in the table by then."""

        def check(number: int) -> None:
            present = [row[0] for row in self.rows(tmp_path)]
            assert present[:number] == list(range(1, number + 1))

        lines = [line for n in range(1, 7) for line in (record(n), state(n))]
        outcome = self.load(tmp_path, schema(), *lines, check=check, batch_size_rows=2)
        assert outcome == sorted(outcome)
        assert outcome[-1] == 6
        assert [row[0] for row in self.rows(tmp_path)] == [1, 2, 3, 4, 5, 6]

    def test_new_columns(self, tmp_path: Path) -> None:
        """A property that comes later is null in the rows before it."""
        self.needs("new_columns")
        self.load(tmp_path, schema(), record(1))
        wider = schema(size={"type": ["null", "integer"]})
        self.load(tmp_path, wider, record(2, size=5), record(3))
        assert self.rows(tmp_path, "size") == [(1, "x", None), (2, "x", 5), (3, "x", None)]

    def test_dry_run(self, tmp_path: Path) -> None:
        """A dry run finds what a load changes, as the load tells it, and changes nothing."""
        outcome, empty = DryRun(), DryRun()
        self.load(tmp_path, schema(), record(1), dry_run=empty)
        assert self.read(tmp_path, TABLE) == []
        self.load(tmp_path, schema(), record(1))
        wider = schema(size={"type": ["null", "integer"]})
        summary = RunSummary("target-spark")
        self.load(tmp_path, wider, record(2, size=5), dry_run=outcome, summary=summary)
        assert [row.get("size") for row in self.read(tmp_path, TABLE)] == [None]
        assert summary.of_table(TABLE)["committed"] == 1
        new, changed = empty.tables[TABLE].changes, outcome.tables[TABLE].changes
        if new is None or changed is None:
            return
        assert "create the table with the columns id " in new[0]
        if self.supports.new_columns:
            assert [line.split(" (")[0] for line in changed] == ["add the column 'size'"]
            done = RunSummary("target-spark")
            self.load(tmp_path, wider, record(2, size=5), summary=done)
            assert tuple(done.of_table(TABLE)["changes"]) == changed

    def test_upsert(self, tmp_path: Path) -> None:
        """A record replaces the row of its key; the last one of a run wins."""
        self.needs("upsert")
        self.load(tmp_path, schema(), record(1, "a"), record(2, "b"), load_method="upsert")
        later = [record(2, "c"), record(3, "d"), record(3, "e")]
        self.load(tmp_path, schema(), *later, load_method="upsert")
        assert self.rows(tmp_path) == [(1, "a"), (2, "c"), (3, "e")]

    def test_upsert_order(self, tmp_path: Path) -> None:
        """With `upsert_order_by`, a record that is older than its row is merged into nothing."""
        self.needs("upsert")
        if "upsert_order_by" not in REGISTRY.get(self.format).uses:
            pytest.skip(f"not offered: {self.format} does not use 'upsert_order_by'")
        more: dict[str, Any] = {"load_method": "upsert", "upsert_order_by": "at"}
        wider = schema(at={"type": ["null", "integer"]})
        first = [record(1, "new", at=5), record(1, "old", at=4), record(2, "a", at=1)]
        self.load(tmp_path, wider, *first, record(2, "b", at=1), record(3, at=None), **more)
        assert self.rows(tmp_path, "at") == [(1, "new", 5), (2, "b", 1), (3, "x", None)]
        summary = RunSummary("target-spark")
        later = [record(1, "older", at=4), record(1, "none", at=None), record(2, "c", at=1)]
        self.load(tmp_path, wider, *later, record(3, at=0), summary=summary, **more)
        assert self.rows(tmp_path, "at") == [(1, "new", 5), (2, "c", 1), (3, "x", 0)]
        counts = summary.as_dict(None)["streams"][TABLE]["tables"][TABLE]
        if not counts["unconfirmed"]:
            assert (counts["committed"], counts["merged"]) == (2, 2)

    def test_history(self, tmp_path: Path) -> None:
        """Each change of a row adds a version, a deletion ends one; other records are merged."""
        self.needs("history")
        gone: dict[str, Any] = {"_sdc_deleted_at": "2999-01-01T00:00:00Z"}
        first = [record(1, "a"), record(2, "a"), record(2, "b"), record(3, "a"), record(4, "a")]
        later = [record(1, "a"), record(2, "c"), record(3, "a", **gone), record(5, "a", **gone)]
        columns = ("_sdc_is_current", "_sdc_valid_from", "_sdc_valid_to")
        for lines, merged in ((first, 0), (later, 3)):
            summary, method = RunSummary("target-spark"), "history"
            self.load(tmp_path, schema(), *lines, summary=summary, load_method=method)
            counts = summary.as_dict(None)["streams"][TABLE]["tables"][TABLE]
            assert counts["unconfirmed"] or counts["merged"] == merged
        rows = sorted(self.rows(tmp_path, *columns), key=lambda row: (row[0], row[1]))
        current = [row[:2] for row in rows if row[2]]
        assert current == [(1, "a"), (2, "c"), (4, "a")]
        ended = [row for row in rows if not row[2]]
        assert [row[:2] for row in ended] == [(2, "a"), (2, "b"), (3, "a")]
        assert all(start < end for *_, start, end in ended)
        assert all(end is None for *_, is_current, _, end in rows if is_current)
        [since] = [row[3] for row in rows if row[:2] == (2, "c")]
        assert since == ended[1][4]

    def test_overwrite(self, tmp_path: Path) -> None:
        """The rows of a run take the place of all others; a run that fails changes nothing."""
        self.needs("overwrite")
        self.load(tmp_path, schema(), record(1, "a"), record(2, "b"))
        with pytest.raises(MessageError):
            self.load(tmp_path, schema(), record(3, "c"), "not json", load_method="overwrite")
        assert self.rows(tmp_path) == [(1, "a"), (2, "b")]
        later = [schema(), record(4), record(5), state(1)]
        settings: dict[str, Any] = {"load_method": "overwrite", "batch_size_rows": 1}
        assert self.load(tmp_path, *later, **settings) == [1]
        assert self.rows(tmp_path) == [(4, "x"), (5, "x")]

    def test_backfill(self, tmp_path: Path) -> None:
        """A range of a column is replaced in one step; everything else stays."""
        self.needs("backfill")
        self.load(tmp_path, schema(), *(record(n) for n in range(1, 7)))
        of_two = Backfill(TABLE, "id", "2", "5")
        later = [record(2, "new"), record(4, "old"), record(4, "new"), state(1)]
        settings: dict[str, Any] = {"backfill": of_two, "batch_size_rows": 2}
        assert self.load(tmp_path, schema(), *later, **settings) == [1]
        rows = [(1, "x"), (2, "new"), (4, "new"), (5, "x"), (6, "x")]
        assert self.rows(tmp_path) == rows
        with pytest.raises(RecordError, match="outside of its range"):
            self.load(tmp_path, schema(), record(2, "bad"), record(5, "bad"), **settings)
        assert self.rows(tmp_path) == rows
        empty = Backfill(TABLE, "id", "4", "6")
        assert self.load(tmp_path, schema(), state(2), backfill=empty) == [2]
        assert self.rows(tmp_path) == [rows[0], rows[1], rows[4]]

    def test_verify(self, tmp_path: Path) -> None:
        """Rows that differ from the source are reported, and repaired if that is wanted."""
        self.needs("verify")
        supports = REGISTRY.get(self.format).supports
        method = "upsert" if supports.upsert else "append-only"
        by_key: dict[str, Any] = {"load_method": method, "hard_delete": supports.upsert}
        self.load(tmp_path, schema(), *(record(n) for n in range(1, 13)), **by_key)
        source = [schema(), record(2, "old"), record(2, "new"), *(record(n) for n in range(3, 14))]
        rows, outcome = self.rows(tmp_path), list[TableDifference]()
        for repair in (False, True, False) if supports.repair else (False,):
            wanted = Verification(outcome.append, ranges=4, repair=repair)
            self.load(tmp_path, *source, verification=wanted, batch_size_rows=5, **by_key)
            if len(outcome) == 1:
                assert self.rows(tmp_path) == rows
        assert outcome[0].left == "1 missing, 1 changed, 1 vanished"
        if not supports.repair:
            return
        assert [one.left for one in outcome[1:]] == ["", ""]
        assert [one.count("vanished") for one in outcome] == [1, 1, 0]
        assert self.rows(tmp_path) == [(2, "new"), *((n, "x") for n in range(3, 14))]

    def test_keys(self, tmp_path: Path) -> None:
        """A KEYS message deletes the rows that the source no longer has, but not a tenth of all."""
        self.needs("upsert", "repair")

        def keys(*numbers: int) -> Message:
            path = tmp_path / f"keys-{len(numbers)}.jsonl"
            path.write_text("".join(f'{{"id": {n}}}\n' for n in numbers), encoding="utf-8")
            files = {"encoding": {"format": "jsonl"}, "manifest": [str(path)]}
            return {"type": "KEYS", "stream": TABLE, **files}

        by_key: dict[str, Any] = {"load_method": "upsert", "hard_delete": True}
        self.load(tmp_path, schema(), *(record(n) for n in range(1, 13)), **by_key)
        rows = [(n, "x") for n in range(2, 14)]
        lines = [schema(), record(13), state(1), keys(*range(2, 20)), state(2)]
        assert self.load(tmp_path, *lines, **by_key)[-1] == 2
        assert self.rows(tmp_path) == rows
        partial, numbers = [state(3), keys(*range(2, 12)), state(4)], list[int]()
        with pytest.raises(DifferenceError, match="2 of 12 rows"):
            self.load(tmp_path, schema(), *partial, check=numbers.append, **by_key)
        assert (numbers, self.rows(tmp_path)) == ([3], rows)
        agreed = {**by_key, "max_deleted_share": 0.5}
        assert self.load(tmp_path, schema(), *partial, **agreed)[-1] == 4
        assert self.rows(tmp_path) == rows[:10]

    def test_contract(self, tmp_path: Path) -> None:
        """`schema_contract` refuses or leaves out what a table lacks; keys are never left out."""
        if "schema_contract" not in REGISTRY.get(self.format).uses:
            pytest.skip(f"not offered: {self.format} does not use 'schema_contract'")

        def load(declared: Message, *lines: Message, **contract: str) -> list[int]:
            return self.load(tmp_path, declared, *lines, state(1), schema_contract=contract)

        with pytest.raises(SettingsError, match="must not be created"):
            load(schema(), record(1), tables="freeze")
        assert load(schema(), record(1), tables="discard") == [1]
        assert self.rows(tmp_path) == []
        assert load(schema(), record(1)) == [1]
        wider = schema(size={"type": ["null", "integer"]})
        for part, declared in (("columns", wider), ("types", schema(name={"type": "integer"}))):
            with pytest.raises(SettingsError, match=f"schema_contract.{part}"):
                load(declared, record(2, 5 if part == "types" else "y"), **{part: "freeze"})
        assert load(wider, record(2, "y", size=5), tables="freeze", columns="discard") == [1]
        assert self.rows(tmp_path) == [(1, "x"), (2, "y")]
        assert all("size" not in row for row in self.read(tmp_path, TABLE))

    def test_versions(self, tmp_path: Path) -> None:
        """ACTIVATE_VERSION removes the rows of older versions."""
        self.needs("versions")
        first = [record(1, version=1), record(2, version=1), activate(1)]
        self.load(tmp_path, schema(), *first, hard_delete=True)
        assert self.rows(tmp_path) == [(1, "x"), (2, "x")]
        second = [record(2, version=2), record(3, version=2), activate(2)]
        self.load(tmp_path, schema(), *second, hard_delete=True)
        assert self.rows(tmp_path) == [(2, "x"), (3, "x")]

    def test_partitions(self, tmp_path: Path) -> None:
        """`partition_by` changes nothing in the rows."""
        if "partition_by" not in REGISTRY.get(self.format).uses:
            pytest.skip(f"not offered: {self.format} does not use 'partition_by'")
        self.load(tmp_path, schema(), record(1, "a"), record(2, "b"), partition_by=["name"])
        assert self.rows(tmp_path) == [(1, "a"), (2, "b")]

    def test_replays_are_detected(self, tmp_path: Path) -> None:
        """Records behind the last STATE of a tap that died are not loaded again."""
        self.needs("replays")
        config = self.config(tmp_path)
        loader = Loader(config, Engine.of(lambda: self.session(config)))
        can_detect = loader.can_detect_replays(TABLE)
        loader.close()
        if not can_detect:
            pytest.skip("not offered: replays cannot be detected with these settings")
        rows = [record(1), record(2)]
        assert self.load(tmp_path, schema(), state(0), *rows) == [0]
        assert self.rows(tmp_path) == [(1, "x"), (2, "x")]
        assert self.load(tmp_path, schema(), *rows, record(3), state(3)) == [3]
        assert self.rows(tmp_path) == [(1, "x"), (2, "x"), (3, "x")]

    def test_a_repeated_commit_adds_nothing(self, tmp_path: Path) -> None:
        """A commit whose answer was lost is done again with the same token."""
        self.needs("exactly_once")
        for loader, batch in self._batches(tmp_path, "again"):
            results = [loader.convert(batch)]
            loader.commit(batch, results)
            loader.commit(batch, results)
            assert self.rows(tmp_path) == [(1, "x"), (2, "x")]

    def test_the_commit_tells_its_rows(self, tmp_path: Path) -> None:
        """Counts balance, and a commit with another number of rows ends the run."""
        for loader, batch in self._batches(tmp_path, "counted"):
            result = loader.convert(batch)
            [loaded] = loader.commit(batch, [result]).values()
            counts = loaded.counts
            assert (counts.received, counts.committed, counts.missing) == (2, 2, 0)
            if counts.unconfirmed:
                pytest.skip("not offered: commits do not tell their rows")
        for loader, batch in self._batches(tmp_path, "lost"):
            more = replace(loader.convert(batch), rows=3, received=3)
            with pytest.raises(BalanceError, match="3 rows were written"):
                loader.commit(batch, [more])

    def test_merged_rows_are_counted(self, tmp_path: Path) -> None:
        """The balance of an upsert tells how many records another one of the flush replaced."""
        self.needs("upsert")
        lines = [record(1, "a"), record(2, "b"), record(2, "c"), state(1)]
        for again in (0, 1):
            summary = RunSummary("target-spark")
            messages = (schema(), *lines)
            assert self.load(tmp_path, *messages, load_method="upsert", summary=summary) == [1]
            counts = summary.as_dict(None)["streams"][TABLE]["tables"][TABLE]
            assert counts["received"] == 3, again
            if counts["unconfirmed"]:
                pytest.skip("not offered: upserts do not tell their rows")
            assert (counts["committed"], counts["merged"]) == (2, 1), again

    def test_abort_leaves_nothing(self, tmp_path: Path) -> None:
        """Parts that are not committed never show, and are removed."""
        for loader, batch in self._batches(tmp_path, "aborted"):
            result = loader.convert(batch)
            assert self.rows(tmp_path) == []
            assert result.parts
            loader.abort(batch, [result])
            assert self.rows(tmp_path) == []
            assert not [part.url for part in result.parts if Path(part.url).exists()]

    def _batches(self, folder: Path, token: str) -> Iterator[tuple[Loader, Batch]]:
        """Yield a loader and a batch of two records, as the target stages them; close it after."""
        path = folder / f"{token}.singer"
        lines = (json.dumps(record(n)) for n in (1, 2))
        path.write_text("".join(f"{line}\n" for line in lines))
        size, runs = path.stat().st_size, ((1, 1),)
        file = InputFile(str(path), Encoding("singer"), None, size, runs)
        config = self.config(folder)
        loader = Loader(config, Engine.of(lambda: self.session(config)))
        declared = schema()
        stream = StreamSchema(TABLE, declared["schema"], tuple(declared["key_properties"]))
        loader.plan(stream)
        try:
            yield loader, Batch(stream, (file,), f"{token}-1")
            loader.finish(TABLE)
        finally:
            loader.close()
