"""Settings that `tap-spark init` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InvalidSettingsError, SettingsError, SourceError
from shared.settings.config_text import Comment, config_text, without_comments
from shared.settings.yaml_text import yaml_value
from tap_spark.config import TapConfig, tap_config
from tap_spark.source_draft import MOST_TABLES, source_draft
from tap_spark.sources.tables import DiscoveredTable
from tap_spark.stream_config import StreamConfig, with_passwords

URL = "jdbc:postgresql://db.example.com/shop"
UUIDS = ("0b9a7c1e-6f3d-4a52-9d8e-1c2b3a4d5e6f", "7c1e0b9a-3d6f-524a-8e9d-2b1c4d3a6f5e")


def unanswered(_: TapConfig) -> Sequence[DiscoveredTable]:
    raise SourceError("cannot connect to the database: refused")


def table(name: str, schema: str | None = "public", *keys: str) -> DiscoveredTable:
    from pyspark.sql.types import StructType

    struct = StructType().add("id", "integer").add("x", "string")
    stream = StreamConfig(name, "jdbc", key_properties=keys)
    return DiscoveredTable(stream, struct, schema, name, is_view=not keys)


def draft(place: Any, form: str | None = None, ask: Any = unanswered, **environ: str) -> Any:
    """Return what is drafted, read back from its text."""
    created = source_draft(str(place), form, environ, ask)
    return yaml_value(config_text([], created).encode())


def comments(place: Any, ask: Any = unanswered) -> list[str]:
    text = config_text([], source_draft(str(place), None, {}, ask))
    return [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("#")]


def put(folder: Path, *names: str, text: str = "id,x\n1,a\n") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(actual: Any, root: Path) -> dict[str, Any]:
    """Return the path of each stream, with its format, below a folder."""
    assert tap_config(actual).streams
    inside = json.loads(json.dumps(actual["streams"]).replace(f"{root}/", ""))
    return {each["name"]: (each["format"], each["path"]) for each in inside}


class TestFolders:
    def test_files_become_streams(self, tmp_path: Path) -> None:
        put(tmp_path, "orders.csv", "people.jsonl", "a b.parquet", "notes.docx", ".hidden.csv")
        assert paths(draft(tmp_path), tmp_path) == {
            "a_b": ("parquet", "a b.parquet"),
            "orders": ("csv", "orders.csv"),
            "people": ("json", "people.jsonl"),
        }
        assert "notes.docx' has no known ending" in " ".join(comments(tmp_path))

    def test_files_that_differ_in_digits_are_one_stream(self, tmp_path: Path) -> None:
        put(tmp_path, "orders_2026-01-31.csv", "orders_2026-02-28.csv", "v1.json", "v2.json")
        put(tmp_path, *(f"part-0000{n}-{uuid}-c000.orc" for n, uuid in enumerate(UUIDS)))
        assert paths(draft(tmp_path), tmp_path) == {
            "orders": ("csv", "orders_*.csv"),
            tmp_path.name.rstrip("_"): ("orc", "part-*-*-c*.orc"),
            "v": ("json", "v*.json"),
        }

    def test_a_pattern_that_matches_others_is_a_list(self, tmp_path: Path) -> None:
        put(tmp_path, "a1.csv", "a2.csv", "a_b.csv", "c[1].csv")
        assert paths(draft(tmp_path), tmp_path) == {
            "a": ("csv", ["a1.csv", "a2.csv"]),
            "a_b": ("csv", "a_b.csv"),
            "c_1": ("csv", "c[1].csv"),
        }

    def test_folders_below_become_streams(self, tmp_path: Path) -> None:
        put(tmp_path, "days/a.csv", "days/b.csv", "parts/year=2026/a.json", "both/a.csv")
        put(tmp_path, "both/b.json", "_tmp/a.csv", "deep/er/a.csv")
        assert paths(draft(tmp_path), tmp_path) == {
            "days": ("csv", "days"),
            "parts": ("json", "parts"),
        }
        several = "both' has files of several formats (csv, json)"
        assert several in " ".join(comments(tmp_path))
        put(tmp_path / "p", "year=2025/a.csv", "year=2026/a.csv")
        assert paths(draft(tmp_path / "p"), tmp_path) == {"p": ("csv", "p")}

    def test_streams_have_names_of_their_own(self, tmp_path: Path) -> None:
        put(tmp_path, "a.csv", "a.json", "a.jsonl", "a_json.orc")
        actual = draft(tmp_path)
        assert len({stream["name"] for stream in actual["streams"]}) == 4

    def test_tables_become_a_connection(self, tmp_path: Path) -> None:
        put(tmp_path, "lake/orders/_delta_log/0.json", "ice/metadata/v1.metadata.json", "a.csv")
        actual = draft(tmp_path)
        assert [item["path"] for item in actual["connections"]] == [str(tmp_path)]
        assert [stream["name"] for stream in actual["streams"]] == ["a"]
        assert "2 table(s) below the folder: ice (iceberg), lake/orders (delta)" in comments(
            tmp_path
        )
        [one] = draft(tmp_path / "lake" / "orders")["streams"]
        assert (one["name"], one["format"]) == ("orders", "delta")

    @pytest.mark.parametrize(("line", "sep"), [("a;b", ";"), ("a\tb", "\t"), ("a|b;c|d", "|")])
    def test_what_separates_fields(self, tmp_path: Path, line: str, sep: str) -> None:
        put(tmp_path, "a.csv", text=f"{line}\n1,5\n")
        put(tmp_path, "b.csv", text="a,b;c\n")
        first, second = draft(tmp_path)["streams"]
        assert first["options"] == {"sep": sep}
        assert "options" not in second

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"nothing to read .* no files and no tables"):
            draft(tmp_path)
        put(tmp_path, "a.docx")
        with pytest.raises(SettingsError, match=r"a.docx' has no known ending \(give --format"):
            draft(tmp_path)
        assert draft(tmp_path, "text")["streams"][0]["format"] == "text"

    def test_a_name_does_not_end_its_comment(self, tmp_path: Path) -> None:
        put(tmp_path, "a.csv", 'x\n"streams": 1,\x1b[2J.docx')
        [one] = draft(tmp_path)["streams"]
        assert one["name"] == "a"


def test_files_and_globs(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "b.csv", text="id;x\n")
    for place in (f"{tmp_path}/a.csv", f"{tmp_path}/*.csv"):
        [one] = draft(place)["streams"]
        assert (one["path"], one["options"]) == (place, {"sep": ";"})
    assert "2 file(s), 10 bytes" in comments(f"{tmp_path}/*.csv")


def test_hints_can_be_switched_on(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    text = config_text([], source_draft(str(tmp_path), None, {}, unanswered))
    [one] = tap_config(yaml_value(re.sub(r"# (?=[a-z_]+: )", "", text).encode())).streams
    assert (one.key_properties, one.replication_method) == (("id",), "INCREMENTAL")


def test_a_remote_folder_is_listed() -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for name in ("orders-1.csv", "orders-2.csv", "days/a.json", "lake/t/_delta_log/0.json"):
        files.pipe(f"/drafts/{name}", b"id;x\n")
    actual = draft("memory://drafts/")
    assert [item["path"] for item in actual["connections"]] == ["memory://drafts"]
    assert [(each["name"], each["path"]) for each in actual["streams"]] == [
        ("orders", "memory://drafts/orders-*.csv"),
        ("days", "memory://drafts/days"),
    ]
    with pytest.raises(SourceError, match="the folder cannot be listed"):
        draft("memory://nothing/")


def test_s3_gets_its_package() -> None:
    actual = draft("s3://bucket/sales/*.csv")
    assert actual["streams"][0]["path"] == "s3://bucket/sales/*.csv"
    assert actual["spark"]["packages"] == ["org.apache.hadoop:hadoop-aws:3.4.2"]


class TestDatabases:
    def test_tables_are_named(self) -> None:
        asked: list[TapConfig] = []

        def ask(config: TapConfig) -> list[DiscoveredTable]:
            asked.append(config)
            return [table("orders", "public", "id"), table("odd[*]", None)]

        actual = draft(URL, None, ask, TAP_SPARK_USER="me", TAP_SPARK_PASSWORD="hush")
        [one] = actual["connections"]
        assert one == {
            "name": "shop",
            "url": URL,
            "user": "me",
            "password_variable": "TAP_SPARK_PASSWORD",
            "include": ["public.orders", "odd[[][*]]"],
        }
        assert asked[0].connections[0].password == "hush"
        assert "hush" not in json.dumps(actual)
        texts = comments(URL, ask)
        assert "table, 2 column(s), key: id" in texts
        assert "view, 2 column(s), no key" in texts

    def test_a_database_that_does_not_answer(self, caplog: pytest.LogCaptureFixture) -> None:
        [one] = draft(URL)["connections"]
        assert (one["password_variable"], one["include"]) == ("TAP_SPARK_PASSWORD", ["*"])
        assert "cannot connect to the database: refused" in caplog.text

    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    def test_a_missing_file_is_not_made(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(SettingsError, match=r"shop.db' does not exist"):
            draft(f"jdbc:{kind}:{tmp_path}/shop.db?a=b")

    def test_no_password_where_none_is_needed(self, tmp_path: Path) -> None:
        path = tmp_path / "my shop.db"
        path.touch()
        assert "password_variable" not in draft(URL, None, lambda _: [table("a")])["connections"][0]
        [one] = draft(f"jdbc:sqlite:{path}")["connections"]
        assert (one["name"], "password_variable" in one) == ("my_shop", False)

    def test_many_tables_are_not_named(self) -> None:
        many = [table(f"t{number}") for number in range(MOST_TABLES + 1)]
        assert draft(URL, None, lambda _: many)["connections"][0]["include"] == ["*"]
        assert draft(URL, None, lambda _: [])["connections"][0]["include"] == ["*"]

    @pytest.mark.parametrize(
        "place",
        [f"{URL}?user=me&password=hush", f"{URL}?pass%77ord=hush", "jdbc:mysql://me:hush@h/shop",
         "jdbc:oracle:thin:me/hush@h:1521:x", "s3://me:hush@bucket/a.csv",
         "https://h/a.csv?token=hush"],
    )  # fmt: skip
    def test_secrets_are_refused(self, place: str) -> None:
        with pytest.raises(SettingsError, match="must not be in the settings") as caught:
            draft(place)
        assert "hush" not in str(caught.value)


def test_comments_are_no_settings() -> None:
    assert without_comments({Comment("a"): None, "b": [Comment("c"), 1]}) == {"b": [1]}


class TestPasswords:
    def supplied(self, **item: Any) -> Any:
        return {"connections": [{"name": "a", "url": URL, **item}]}

    def test_a_variable_holds_the_password(self) -> None:
        actual = with_passwords(self.supplied(password_variable="SHOP"), {"SHOP": "hush"})
        assert tap_config(actual).connections[0].password == "hush"

    def test_a_password_wins(self) -> None:
        supplied = self.supplied(password="own", password_variable="SHOP")
        assert with_passwords(supplied, {}) == supplied

    def test_what_is_not_set_is_named(self) -> None:
        with pytest.raises(InvalidSettingsError) as caught:
            with_passwords(self.supplied(password_variable="SHOP"), {"OTHER": "hush"})
        [line] = caught.value.problems
        assert line.startswith("config['connections'][0]['password_variable']: the environment ")
        assert line.endswith("variable 'SHOP' is not set (export SHOP)")

    def test_only_for_databases(self) -> None:
        with pytest.raises(InvalidSettingsError, match="applies only with 'url'"):
            tap_config({"connections": [{"name": "a", "path": "x", "password_variable": "P"}]})
