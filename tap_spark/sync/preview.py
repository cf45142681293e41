"""The first rows of streams as tables, read as a run reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any

from shared.singer.stdout import MessageOutput
from shared.text_table import text_table
from tap_spark.config import TapConfig
from tap_spark.planning.catalog_rules import CatalogRules
from tap_spark.planning.run_options import RunOptions
from tap_spark.sync.sync import run_sync

_WIDEST = 32
_SIDE_BY_SIDE = 5
"""Rows beside each other, if each column has a line."""

Row = Mapping[str, Any]


def preview(
    config: TapConfig,
    rules: CatalogRules,
    rows: int,
    catalog: Mapping[str, Any] | None = None,
    width: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a table for each stream.

    Args:
        config: The settings; what they say about BATCH has no effect.
        rules: Which streams and columns.
        rows: Most rows of each stream.
        catalog: A catalog below the rules.
        width: Most characters in a line; None for any number.

    Raises:
        SettingsError: A rule matches nothing.
        SourceError: A stream cannot be read.
        SparkStartError: A stream needs Spark, which cannot be started.
    """
    config = replace(config, batch=None, on_stream_failure="stop")
    with TemporaryFile() as file:
        output = MessageOutput(os.dup(file.fileno()))
        try:
            run_sync(config, catalog, None, output, RunOptions(limit=rows, rules=rules))
        finally:
            output.close()
        file.seek(0)
        streams = _streams(file)
    for name, (columns, found) in streams.items():
        yield f"{name}: {'no rows' if not found else f'first {len(found)} row(s)'}"
        yield from _table(columns, found, width)
        yield ""


def _streams(lines: IO[bytes]) -> dict[str, tuple[list[str], list[Row]]]:
    """Return the columns and rows of each stream."""
    found: dict[str, tuple[list[str], list[Row]]] = {}
    for message in map(json.loads, lines):
        if message["type"] == "SCHEMA":
            found.setdefault(message["stream"], (list(message["schema"]["properties"]), []))
        elif message["type"] == "RECORD":
            found[message["stream"]][1].append(message["record"])
    return found


def _table(columns: Sequence[str], rows: Sequence[Row], width: int | None) -> Iterator[str]:
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    table = [columns, *cells]
    natural = [min(_WIDEST, max(map(len, column))) for column in zip(*table, strict=True)]
    if width is None or sum(natural) + 2 * len(natural) <= width:
        yield from text_table(table, width, range(len(columns)))
        return
    turned = zip(*cells, strict=True) if cells else ([] for _ in columns)
    values = [iter(column) for column in turned]
    for start in range(0, max(1, len(rows)), _SIDE_BY_SIDE):
        numbers = [str(start + n + 1) for n in range(min(_SIDE_BY_SIDE, len(rows) - start))]
        parts = [list(islice(column, _SIDE_BY_SIDE)) for column in values]
        lines = [
            ["", *numbers],
            *([name, *part] for name, part in zip(columns, parts, strict=True)),
        ]
        yield from text_table(lines, width, range(len(numbers) + 1))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
