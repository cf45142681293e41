"""File tables in folders of partitions, without Spark; pyarrow reads them."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from file_tables import Table, struct

from shared.errors import DestinationError, SettingsError
from shared.formats.arrow_types import SPARK_ROW_METADATA, struct_to_arrow
from target_spark.convert.write_tasks import MOST_FOLDERS, in_folders
from target_spark.destinations.files.stored_columns import TableSchema
from target_spark.destinations.folders import stored_folder
from target_spark.destinations.folders.stored_folder import RemoteFolder
from target_spark.destinations.folders.table_folder import PartitionError, partition_folder
from target_spark.tables.version_edit import VersionEdit

ABC = struct("a bigint, b string, c date")
DAY = dt.date(2026, 1, 31)
NULL = "__HIVE_DEFAULT_PARTITION__"
PARTITIONS = {"b": pa.string(), "c": pa.date32()}


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    def make(form: str = "parquet", *names: str, **more: Any) -> Table:
        return Table(str(tmp_path / "out"), form, partition_by=names or ("b",), **more)

    return make


def files(t: Table) -> list[str]:
    """Return the visible files of a table, by a walk of the disk."""
    actual = (path.relative_to(t.folder) for path in t.folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in actual if not path.name.startswith("_"))


def folders(t: Table) -> list[str]:
    return sorted({os.path.dirname(name) for name in files(t)})


def rows(t: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return what another program reads."""
    existing = TableSchema.from_bytes((t.folder.parent / ".s.schema").read_bytes())
    kinds = pa.schema([(name, PARTITIONS.get(name, pa.string())) for name in existing.partition_by])
    layout = ds.partitioning(kinds, flavor="hive")
    asked = None if t.form in {"parquet", "orc"} else struct_to_arrow(existing.struct)
    actual = ds.dataset(t.folder, asked, format=t.form, partitioning=layout).to_table()
    picked = actual.select(list(columns or ("a", "b"))).to_pylist()
    return sorted((tuple(row.values()) for row in picked), key=repr)


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("DE", "b=DE"),
        (None, f"b={NULL}"),
        ("", f"b={NULL}"),
        ("a b+c,ü.~-_", "b=a b+c,ü.~-_"),
        ("a/b=c:d%e", "b=a%2Fb%3Dc%3Ad%25e"),
        ("\"#'*?\\{[]^", "b=%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
        ("\x01\n\x7f\0", "b=%01%0A%7F%00"),
        ("..", "b=.."),
    ],
)
def test_folders_are_named_as_spark_names_them(value: str | None, folder: str) -> None:
    assert partition_folder("b", value) == folder


def test_the_name_of_a_column_is_escaped_too() -> None:
    assert partition_folder("a=b/", "x") == "a%3Db%2F=x"


def test_a_value_that_no_folder_can_have() -> None:
    assert partition_folder("b", "x" * 253)
    with pytest.raises(PartitionError, match=r"column 'b' is too long .*: 'ü+\.\.\.'"):
        partition_folder("b", "ü" * 127)


def test_rows_of_folders_keep_their_order() -> None:
    block = pa.table({"a": range(6), "b": ["x", None, "y", "x", "", "y"], "d": [True] * 6})
    columns = [("b", "B"), ("d", "d")]
    actual = {}
    for folder, part, facts in in_folders([block.slice(0, 2), block.slice(2)], columns):
        assert part.column_names == ["a"]
        actual.setdefault(folder, []).append((part["a"].to_pylist(), facts["B"]))
    assert actual == {
        "B=x/d=true": [([0, 3], [0, "x", "x"])],
        "B=y/d=true": [([2, 5], [0, "y", "y"])],
        f"B={NULL}/d=true": [([1], [1, None, None]), ([4], [1, None, None])],
    }
    assert list(in_folders([block.slice(0, 0)], columns)) == []


def test_the_number_of_folders_is_bounded() -> None:
    most = pa.table({"a": range(MOST_FOLDERS), "b": range(MOST_FOLDERS)})
    assert len(list(in_folders([most], [("b", "b")]))) == MOST_FOLDERS
    more = pa.table({"a": [0], "b": [MOST_FOLDERS]})
    with pytest.raises(PartitionError, match="more than 1,000 different values"):
        list(in_folders([pa.concat_tables([most, more])], [("b", "b")]))


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
class TestEveryFormat:
    def test_values_come_back(self, table: Any, form: str) -> None:
        t = table(form, "b", "c")
        strange = 'a/b=c %\n"ü'
        supplied = [
            (1, "DE", DAY),
            (2, strange, DAY),
            (3, None, DAY),
            (4, "DE", None),
            (5, "DE", DAY),
        ]
        flush = t.flush(ABC, supplied[:3], supplied[3:])
        assert not t.folder.exists()
        t.destination.commit(flush)
        t.destination.commit(flush)
        assert f"b=DE/c={NULL}" in folders(t)
        assert len(files(t)) == 5
        assert rows(t, "a", "b", "c") == sorted(supplied, key=repr)
        t.destination.finish(t.request(ABC))
        assert sorted(os.listdir(t.folder.parent)) == [".s.lock", ".s.schema", "s"]

    def test_a_repeated_commit_after_a_lost_answer(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(ABC, [(0, "x")]))
        flush = t.flush(ABC, [(1, "x"), (2, "y")])
        t.destination.commit(flush)
        before = files(t)
        t.destination.commit(flush)
        assert files(t) == before

    def test_columns_are_added_and_widened(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(struct("a bigint, b string"), [(1, "m"), (2, "z")]))
        t.destination.commit(t.flush(struct("b string, d string"), [(None, "z", "new")]))
        t.destination.commit(t.flush(struct("a double, b string"), [(0.5, "b", None)]))
        assert rows(t) == [(0.5, "b"), (1.0, "m"), (2.0, "z"), (None, "z")]
        assert {text or None for (text,) in rows(t, "d")} == {"new", None}
        existing = TableSchema.from_bytes((t.folder.parent / ".s.schema").read_bytes())
        assert existing.partition_by == ("b",)
        assert existing.struct.simpleString() == "struct<a:double,b:string,d:string>"

    def test_overwrite_may_change_the_partitions(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(ABC, [(1, "x", DAY), (2, "y", DAY)]))
        (t.folder / "b=x" / "_notes").mkdir()
        other = table(form, "c", overwrite=True)
        other.destination.commit(other.flush(ABC, [(3, "x", DAY)]))
        assert folders(t) == ["b=x", "b=y"]
        other.destination.finish(other.request(ABC))
        assert folders(other) == ["c=2026-01-31"]
        assert sorted(os.listdir(t.folder)) == ["b=x", "c=2026-01-31"]
        (t.folder / "b=x" / "_notes").rmdir()
        assert rows(other, "a", "b", "c") == [(3, "x", DAY)]
        flat = Table(str(t.folder.parent), form, overwrite=True)
        flat.destination.commit(flat.flush(ABC, [(4, "x")]))
        flat.destination.finish(flat.request(ABC))
        assert folders(flat) == [""]
        assert [row["a"] for row in flat.rows()] in ([4], ["4"])

    def test_versions_are_activated(self, table: Any, form: str) -> None:
        columns = "a bigint, b string, _sdc_table_version bigint, _sdc_deleted_at timestamp"
        t = table(form)
        both = struct(columns)
        t.destination.commit(t.flush(both, [(1, "x", 1), (2, "y", 1), (3, "y", 2)]))
        t.destination.activate(t.request(both), VersionEdit(2, True, 0.0))
        assert rows(t) == [(3, "y")]
        assert folders(t) == ["b=y"]
        assert sorted(os.listdir(t.folder)) == ["b=y"]


@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_an_empty_table_has_its_columns(table: Any, form: str) -> None:
    t = table(form)
    t.destination.commit(t.flush(ABC))
    t.destination.commit(t.flush(ABC))
    assert (folders(t), len(files(t))) == ([f"b={NULL}"], 1)
    assert rows(t, "a", "b", "c") == []
    t.destination.commit(t.flush(ABC, [(1, "x")]))
    assert rows(t) == [(1, "x")]


def test_all_files_get_added_columns(table: Any) -> None:
    t = table()
    t.destination.commit(t.flush(struct("a bigint, b string"), [(1, "k"), (2, "k-x")]))
    t.destination.commit(t.flush(struct("d string, b string"), [(None, "z", "new")]))
    assert {tuple(pq.read_schema(t.folder / name).names) for name in files(t)} == {("a", "d")}
    assert len(rows(t, "a")) == 3


def test_files_tell_spark_only_the_columns_that_they_have(table: Any) -> None:
    t = table()
    t.destination.commit(t.flush(struct("a bigint, b string, c time(6)"), [(1, "x", dt.time(1))]))
    schema = pq.read_schema(t.folder / files(t)[0])
    assert schema.names == ["a", "c"]
    assert b'"b"' not in schema.metadata[SPARK_ROW_METADATA]


def test_the_table_keeps_its_partitions(table: Any, tmp_path: Path) -> None:
    t = table()
    t.destination.commit(t.flush(ABC, [(1, "x")]))
    plain = Table(str(tmp_path / "out"))
    plain.destination.commit(plain.flush(struct("a bigint"), [(2,)]))
    assert rows(t) == [(1, "x"), (2, None)]
    for names, text in ((("c",), "'b', not by 'c'"), (("b", "c"), "'b', not by 'b', 'c'")):
        with pytest.raises(SettingsError, match=f"are divided by {text}"):
            table("parquet", *names).prepare(ABC)
    flat = Table(str(tmp_path / "flat"))
    flat.destination.commit(flat.flush(ABC, [(1, "x")]))
    again = Table(str(tmp_path / "flat"), partition_by=("b",))
    with pytest.raises(SettingsError, match="are divided by nothing, not by 'b'"):
        again.prepare(ABC)


def test_a_table_that_got_other_partitions_meanwhile(table: Any, tmp_path: Path) -> None:
    plain = Table(str(tmp_path / "out"))
    flush = plain.flush(ABC, [(1, "x")])
    t = table()
    t.destination.commit(t.flush(ABC, [(2, "y")]))
    with pytest.raises(DestinationError, match=r"partitions of '.*' have changed during the run"):
        plain.destination.commit(flush)
    assert rows(t) == [(2, "y")]


@pytest.mark.parametrize(
    ("ddl", "names", "text"),
    [
        ("a bigint, b double", ("b",), r"'b' \(double\), only by texts, integers, booleans and"),
        ("a bigint, b timestamp", ("b",), r"'b' \(timestamp\)"),
        ("a bigint, b date", ("days(b)",), "only by columns, not by days of one"),
        ("a bigint, _b date", ("_b",), "'_b': readers skip folders of such names"),
        ("a bigint, b date", ("b", "b"), "named twice"),
        ("a bigint, b date", ("b", "a"), "the files would have no columns"),
    ],
)
def test_partitions_that_cannot_be(table: Any, ddl: str, names: Any, text: str) -> None:
    with pytest.raises(SettingsError, match=text) as error:
        table("parquet", *names).prepare(struct(ddl))
    assert (error.value.where.stream, error.value.where.setting) == ("s", "partition_by")


def test_a_column_that_the_stream_lacks(table: Any) -> None:
    with pytest.raises(SettingsError, match="no column 'b' to partition its table by"):
        table().prepare(struct("a bigint"))


def test_partitions_of_other_programs_are_left_alone(table: Any) -> None:
    t = table()
    (t.folder / "b=x").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), t.folder / "b=x" / "0.parquet")
    for overwrite in (False, True):
        with pytest.raises(DestinationError, match=r"'b=x/0\.parquet' were not made"):
            table(overwrite=overwrite).prepare(ABC)


def test_partitions_on_an_object_store() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.store.clear()
    t = Table("memory://bucket/out", partition_by=("b",))
    flush = t.flush(ABC, [(1, "x"), (2, "a/b")])
    t.destination.commit(flush)
    t.destination.commit(flush)
    memory.pipe_file("/bucket/out/s/_notes/b=1/part", b"")
    memory.pipe_file("/bucket/out/s/deep/er/part", b"")
    names = RemoteFolder("memory://bucket/out/s", "r").files()
    assert [os.path.dirname(name) for name in names] == ["b=a%2Fb", "b=x", ""]
    assert names[2] == "deep"
    memory.rm("/bucket/out/s/deep", recursive=True)
    whole = Table("memory://bucket/out", overwrite=True)
    whole.destination.commit(whole.flush(ABC, [(3, "x")]))
    whole.destination.finish(whole.request(ABC))
    [name] = RemoteFolder("memory://bucket/out/s", "r").files()
    assert "/" not in name
    memory.store.clear()
