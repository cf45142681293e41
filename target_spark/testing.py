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
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from shared.errors import MessageError
from shared.formats.file_formats import Encoding
from shared.spark.session import SessionStarter
from target_spark.config import REGISTRY, TargetConfig, target_config
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.destinations.destination_declaration import Supports
from target_spark.load.loader import Loader
from target_spark.runtime.run import run_with

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


def record(number: int, name: str | None = "x", version: int | None = None, **more: Any) -> Message:
    """Return a RECORD; `more` are further properties."""
    own = {"type": "RECORD", "stream": TABLE, "record": {"id": number, "name": name, **more}}
    return own if version is None else {**own, "version": version}


def state(number: int) -> Message:
    """Return a STATE."""
    return {"type": "STATE", "value": {"n": number}}


def activate(version: int) -> Message:
    """Return an ACTIVATE_VERSION."""
    return {"type": "ACTIVATE_VERSION", "stream": TABLE, "version": version}


class _States:
    """Takes STATE in the place of standard output."""

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self.numbers: list[int] = []

    def write(self, data: bytes) -> None:
        number = json.loads(data)["n"]
        self._check(number)
        self.numbers.append(number)


class _RunningSpark:
    """A session that belongs to the tests."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


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
            starter = SessionStarter(config.spark)
            starter.start()
            DestinationSuite._session = starter.get()
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
        **more: Any,
    ) -> list[int]:
        """Run the target over messages.

        Args:
            folder: See `settings`.
            messages: Objects, or lines as text.
            check: Called before each STATE is written.
            more: Further settings.

        Returns:
            The numbers of the STATE messages that went out.
        """
        texts = (text if isinstance(text, str) else json.dumps(text) for text in messages)
        path = folder / "input.jsonl"
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        config, states = self.config(folder, **more), _States(check)
        loader = Loader(config, lambda: self.session(config))
        fd = os.open(path, os.O_RDONLY)
        try:
            run_with(config, fd, states, loader, _RunningSpark())  # type: ignore[arg-type]
        finally:
            os.close(fd)
        return states.numbers

    def rows(self, folder: Path, *names: str) -> list[tuple[Any, ...]]:
        """Return the table's rows, sorted by `id`: the columns `id`, `name` and `names`."""
        found = self.read(folder, TABLE)
        columns = ("id", "name", *names)
        return sorted((tuple(row.get(n) for n in columns) for row in found), key=lambda r: r[0])

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
        about = [sys.executable, "-m", "target_spark.cli", "--about", "--format", "json"]
        done = subprocess.run(about, check=True, capture_output=True, text=True)
        properties = json.loads(done.stdout)["settings"]["properties"]
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
            there = [row[0] for row in self.rows(tmp_path)]
            assert there[:number] == list(range(1, number + 1))

        lines = [line for n in range(1, 7) for line in (record(n), state(n))]
        found = self.load(tmp_path, schema(), *lines, check=check, batch_size_rows=2)
        assert found == sorted(found)
        assert found[-1] == 6
        assert [row[0] for row in self.rows(tmp_path)] == [1, 2, 3, 4, 5, 6]

    def test_new_columns(self, tmp_path: Path) -> None:
        """A property that comes later is null in the rows before it."""
        self.needs("new_columns")
        self.load(tmp_path, schema(), record(1))
        wider = schema(size={"type": ["null", "integer"]})
        self.load(tmp_path, wider, record(2, size=5), record(3))
        assert self.rows(tmp_path, "size") == [(1, "x", None), (2, "x", 5), (3, "x", None)]

    def test_upsert(self, tmp_path: Path) -> None:
        """A record replaces the row of its key; the last one of a run wins."""
        self.needs("upsert")
        self.load(tmp_path, schema(), record(1, "a"), record(2, "b"), load_method="upsert")
        later = [record(2, "c"), record(3, "d"), record(3, "e")]
        self.load(tmp_path, schema(), *later, load_method="upsert")
        assert self.rows(tmp_path) == [(1, "a"), (2, "c"), (3, "e")]

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
        """Records that an earlier run has committed, without STATE, are not loaded again."""
        self.needs("replays")
        config = self.config(tmp_path)
        loader = Loader(config, lambda: self.session(config))
        can_detect = loader.can_detect_replays(TABLE)
        loader.close()
        if not can_detect:
            pytest.skip("not offered: replays cannot be detected with these settings")
        rows = [schema(), record(1), record(2)]
        with pytest.raises(MessageError):
            self.load(tmp_path, *rows, "not json")
        assert self.rows(tmp_path) == [(1, "x"), (2, "x")]
        assert self.load(tmp_path, *rows, record(3), state(3)) == [3]
        assert self.rows(tmp_path) == [(1, "x"), (2, "x"), (3, "x")]

    def test_a_repeated_commit_adds_nothing(self, tmp_path: Path) -> None:
        """A commit whose answer was lost is done again with the same token."""
        self.needs("exactly_once")
        for loader, batch in self._batches(tmp_path, "again"):
            results = [loader.convert(batch)]
            loader.commit(batch, results)
            loader.commit(batch, results)
            assert self.rows(tmp_path) == [(1, "x"), (2, "x")]

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
        loader = Loader(config, lambda: self.session(config))
        declared = schema()
        stream = StreamSchema(TABLE, declared["schema"], tuple(declared["key_properties"]))
        loader.plan(stream)
        try:
            yield loader, Batch(stream, (file,), f"{token}-1")
            loader.finish(TABLE)
        finally:
            loader.close()
