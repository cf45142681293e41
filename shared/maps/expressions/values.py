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
    """There is no such value yet."""


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Value:
    """Part of an expression.

    Attributes:
        kind: What it is in Python.
        column: Makes the column with its values; null stands for None. Numbers are bigint and
            double, dates and times of records the text they are in JSON, results of `datetime`
            functions date and timestamp. None where Spark cannot compute the same as Python.
        error: Makes a text column: why Python would raise (`TypeError: ...`), null where it would
            not. None where it never does. The errors of operands are in it.
        why: Why there is no column.
        known: The value itself where it is the same for every record (literals, `config`).
        source: Path of the column that it is, untouched; empty where it is computed.
        raw: Makes that column as Spark has read it; None where it is computed.
        data_type: The type of `raw`.
        mixed: It is an int for some records, which its float column holds exactly: of at most this
            magnitude (1 or more). 0 where it never is, -1 where any int may come: without a column.
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
        node: Where it stands.
        args: Positional ones.
        keywords: Those with a name.
        names: What the whole expression can name.
    """

    node: ast.Call
    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    names: Names | None = None


@dataclass(frozen=True)
class Names:
    """What an expression can name.

    Attributes:
        struct: Columns of the record, as Spark has read them.
        config: `stream_map_config`.
        stream: Name of the stream as it leaves (`__stream_name__`).
        original: Name of the stream as it came (`__original_stream_name__`).
        own: The property that is made (`self`), where the record has it.
        faker: `faker_config`; None where `fake` is not to be had.
    """

    struct: StructType
    config: Mapping[str, Any] = field(default_factory=dict)
    stream: str = ""
    original: str = ""
    own: str | None = None
    faker: Mapping[str, Any] | None = None
