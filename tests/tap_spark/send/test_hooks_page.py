"""docs/batch-files.md: its examples run, and arguments and errors of the functions are complete."""

from __future__ import annotations

import inspect
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import tap_spark
import target_spark
from shared import errors

PAGE = Path(__file__).parents[3] / "docs" / "batch-files.md"
TEXT = PAGE.read_text(encoding="utf-8")
SAMPLES = PAGE.parents[1] / "sample_configs" / "batch_hooks"
FUNCTIONS = (
    tap_spark.get_batches,
    target_spark.process_batch_files,
    target_spark.read_batch_tables,
)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    producer, consumer = ((SAMPLES / name).read_text() for name in ("producer.py", "consumer.py"))
    exec(compile(producer, "producer.py", "exec"), {})
    messages = [json.loads(line) for line in (tmp_path / "messages.jsonl").open()]
    assert [message["type"] for message in messages] == [
        "SCHEMA", "BATCH", "BATCH", "BATCH", "STATE",
    ]  # fmt: skip
    assert messages[1]["encoding"] == {"format": "parquet", "compression": "zstd"}
    assert len(list((tmp_path / "batches").iterdir())) == 3
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(consumer, "consumer.py", "exec"), {})
    assert printed.getvalue().splitlines() == [
        '{"bookmarks": {"orders": {}}}',
        "2500 rows, 31237.50 in all",
    ]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_arguments_are_named(function: Any) -> None:
    section = TEXT.partition(f"## {function.__name__}\n")[2].partition("\n## ")[0]
    (signature,) = re.findall(rf"{function.__name__}\(([^)]*)\)\s+->", section)
    named = [part.partition("=")[0].strip() for part in signature.split(",")]
    assert [n for n in named if n != "*"] == list(inspect.signature(function).parameters)


def test_the_errors_exist() -> None:
    named = set(re.findall(r"shared\.errors\.(\w+)", TEXT))
    assert named == {"SettingsError", "RecordError", "MessageError"}
    assert all(hasattr(errors, name) for name in named)


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", TEXT)
    assert links
    assert all((PAGE.parent / link).exists() for link in links)
