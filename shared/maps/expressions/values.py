"""Values of an expression: their kind at once, their columns once Spark is there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql.types import DataType, StructType

from shared.maps.expressions.kinds import Kind

Thunk: TypeAlias = Callable[[], Column]


class _Unknown:
    """The value is not known yet."""


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Value:
    """Part of an expression.

    Attributes:
        kind: What it is in Python.
        column: Makes the column with its values; null is None. Numbers are bigint and
            double, dates and times of records the text they are in JSON, results of `datetime`
            functions date and timestamp. None if Spark cannot compute the same as Python.
        error: Makes a text column: why Python would raise (`TypeError: ...`), null if it would not.
            None if it never does. Includes the errors of operands.
        why: Why the column is missing.
        known: The value itself if it is the same for every record (literals, `config`).
        source: Path of the column that it is, unchanged; empty if it is computed.
        raw: Makes that column as Spark has read it; None if it is computed.
        data_type: The type of `raw`.
        mixed: It is an int for some records, which its float column holds exactly: of at most this
            magnitude (1 or more). 0 if it never is, -1 if any int is possible: without a column.
    """

    kind: Kind
    column: Thunk | None = None
    error: Thunk | None = None
    why: str = ""
    known: Any = UNKNOWN
    source: tuple[str, ...] = ()
    raw: Thunk | None = None
    data_type: DataType | None = None
    mixed: int = 0

    @property
    def is_known(self) -> bool:
        """Return whether it is the same for every record."""
        return self.known is not UNKNOWN


@dataclass(frozen=True)
class Call:
    """The arguments of a call.

    Attributes:
        node: Its node in the syntax tree.
        args: Positional ones.
        keywords: Those with a name.
        names: The names that the whole expression can use.
    """

    node: ast.Call
    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    names: Names | None = None


@dataclass(frozen=True)
class Names:
    """The names that an expression can use.

    Attributes:
        struct: Columns of the record, as Spark has read them.
        config: `stream_map_config`.
        stream: Name of the output stream (`__stream_name__`).
        original: Name of the source stream (`__original_stream_name__`).
        own: The property that is computed (`self`), if the record has it.
        faker: `faker_config`; None if `fake` is not available.
    """

    struct: StructType
    config: Mapping[str, Any] = field(default_factory=dict)
    stream: str = ""
    original: str = ""
    own: str | None = None
    faker: Mapping[str, Any] | None = None
