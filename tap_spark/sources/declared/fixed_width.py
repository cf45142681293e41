"""Files of fixed-width lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tap_spark.sources.reader_options import FILES, Option, named
from tap_spark.sources.source_declaration import SourceFormat


@dataclass(frozen=True)
class FixedColumn:
    """The position of a column in a fixed-width file.

    Attributes:
        name: Name of the column.
        start: Its first character; a line begins with 1.
        length: How many characters it has.
    """

    name: str
    start: int
    length: int


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    return {"columns": _placed(given["columns"])}


def _placed(columns: Sequence[Mapping[str, Any]]) -> tuple[FixedColumn, ...]:
    placed: list[FixedColumn] = []
    following = 1
    for column in columns:
        start, length = int(column.get("start", following)), int(column["length"])
        placed.append(FixedColumn(column["name"], start, length))
        following = start + length
    return tuple(placed)


def _column_names(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    columns = stream.get("columns")
    items = columns if isinstance(columns, list) else []
    seen: set[str] = set()
    for item in items:
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str):
            if name.lower() in seen:
                yield "columns", f"{name!r} is the name of several columns"
            seen.add(name.lower())


SOURCE = SourceFormat(
    name="fixed_width",
    implementation="tap_spark.sources.files.fixed_width:FixedWidthSource",
    places=("path",),
    takes=("options", "schema", "read_unterminated_line"),
    settings={
        "columns": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "length"],
                "properties": {
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Name of the column.",
                    },
                    "start": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Its first character; a line begins with 1. By default "
                        "it follows the column before.",
                    },
                    "length": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "How many characters it has.",
                    },
                },
            },
            "description": "Positions of the columns in a line. Only, and required, for "
            "`fixed_width`.",
            "examples": [
                [{"name": "id", "length": 8}, {"name": "city", "start": 11, "length": 20}]
            ],
        },
    },
    required=("columns",),
    typed=_typed,
    options=(
        *FILES,
        *named("encoding", "encoding charset"),
        *named("text", "comment lineSep"),
        *named("boolean", "header"),
        Option("mode", words=("PERMISSIVE", "FAILFAST")),
    ),
    resumes=True,
    rules=(_column_names,),
)
