"""The base of sources in plain Python: they yield dictionaries or Arrow batches.

    class Orders(RowSource):
        def columns(self):
            return {"id": "bigint", "updated_at": "timestamp"}

        def rows(self, request):
            yield {"id": 1, "updated_at": "2026-01-31T06:00:00Z"}

A stream names the class as its `format` (`module.Orders`), or a package declares it. Threads read
it without Spark; what only Spark can do, such as an order, has the same rows in a task of Spark.
"""

from __future__ import annotations

import math
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.engine.engine import Engine, Work
from shared.errors import SingerSparkError, first_line
from shared.formats.arrow_types import struct_to_arrow, with_parts
from shared.singer.platform import arrow_in_task
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.source_failures import row_failure, source_error
from tap_spark.state.stream_plans import DriverRows, RowForm, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


ROWS = 1000
"""Dictionaries that become one Arrow batch."""
_ARROW_ROWS = 10_000
_OTHER_HINT = "Spark has no such type: give text, or one that Spark has"
_EXACT: Mapping[pa.DataType, type] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.string(): str,
    pa.bool_(): bool,
    pa.date32(): date,
    pa.timestamp("us"): datetime,
    pa.timestamp("us", "UTC"): datetime,
}
_SIMPLE_HINT = "give columns of other types by a pyarrow.Schema"


@dataclass(frozen=True)
class Request:
    """What a run asks a source for.

    Attributes:
        columns: The selected columns; others may be left out.
        replication_key: The column of bookmarks; None without one.
        start_value: Least value of that column that is wanted, as in JSON; None for all. Timestamps
            look like `2026-01-31T06:00:00.000000+00:00`.
        end_value: First value that is not wanted any more; None without an end.
    """

    columns: tuple[str, ...]
    replication_key: str | None = None
    start_value: Any = None
    end_value: Any = None

    @classmethod
    def of(cls, plan: StreamPlan) -> Request:
        """Return the request of a plan."""
        return cls(plan.columns, plan.replication_key, plan.start_value, plan.end_value)


class RowSource(FrameSource):
    """A source of rows. Instances must be picklable; `self.stream` has the settings."""

    @abstractmethod
    def columns(self) -> Mapping[str, str] | pa.Schema:
        """Return the columns: name → type of Spark SQL (`bigint`, `decimal(10,2)`), or Arrow's."""

    @abstractmethod
    def rows(self, request: Request) -> Iterator[Mapping[str, Any] | pa.RecordBatch | pa.Table]:
        """Yield the rows; rows and columns that are not asked for do no harm.

        Values of dictionaries are Python's, or texts as JSON has them; a missing one is null. What
        this raises ends the run with one line that names the place in its code.
        """

    def size(self, request: Request) -> int | None:  # noqa: ARG002
        """Return about how many bytes of text will come; None if that is not known.

        Beyond `spark_above`, Spark reads the stream.
        """
        return None

    def schema(self, spark: SparkSession | None) -> StructType:  # noqa: ARG002
        """See `Source.schema`."""
        return self.checked(self._struct)

    def schema_on_driver(self, engine: Engine) -> StructType | None:  # noqa: ARG002
        """See `DriverSource.schema_on_driver`."""
        return self.schema(None)

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        struct = self.schema(None)
        request = Request(tuple(struct.names)) if plan is None else Request.of(plan)
        return spark.range(0, 1, 1, 1).mapInArrow(_RowTask(self, request), struct)

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """See `DriverSource.read_on_driver`."""
        from tap_spark.sources.driver_rows import driver_rows, is_read_by_threads  # noqa: PLC0415

        struct = self.schema(None)
        self.check_planned(plan, struct)
        if form is None or not is_read_by_threads(plan, struct):
            return None
        request = Request.of(plan)
        if not engine.takes(Work(plan.stream, self._guarded(partial(self.size, request)) or 0)):
            return None
        read_at = datetime.now(timezone.utc)
        return driver_rows(plan, struct, [self._explained(request)], form, read_at)

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches of all columns, in the columns' types."""
        schema, waiting = struct_to_arrow(self._struct), list[Mapping[str, Any]]()
        for item in self.rows(request):
            if isinstance(item, pa.RecordBatch | pa.Table):
                yield from _typed(_batch_of(waiting, schema), schema)
                waiting = []
                table = item if isinstance(item, pa.Table) else pa.Table.from_batches([item])
                self._check_names(table.schema.names, request)
                for batch in table.to_batches(_ARROW_ROWS):
                    columns = dict(zip(table.schema.names, batch.columns, strict=True))
                    yield from _typed(columns, schema)
                continue
            waiting.append(item)
            if len(waiting) >= ROWS:
                yield from _typed(_batch_of(waiting, schema), schema)
                waiting = []
        yield from _typed(_batch_of(waiting, schema), schema)

    def _check_names(self, names: list[str], request: Request) -> None:
        """Refuse Arrow columns of one name, and other names instead of those that are wanted."""
        columns, wanted = self._struct.names, set(request.columns) - set(names)
        for name in names:
            if name in columns and names.count(name) > 1:
                raise _failure(f"rows() has two columns {name!r}")
            if name not in columns and wanted:
                raise _failure(f"rows() has a column {name!r}, and lacks {min(wanted)!r}")

    def _explained(self, request: Request) -> Iterator[pa.RecordBatch]:
        batches = self._guarded(lambda: iter(self.batches(request)))
        while (batch := self._guarded(lambda: next(batches, None))) is not None:
            yield batch

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Call the class's own code; its errors name their place in it."""
        try:
            return call()
        except SingerSparkError:
            raise
        except Exception as error:
            failure = RuntimeError(traceback.format_exc())
            raise source_error(self.stream.name, failure) from error

    @cached_property
    def _struct(self) -> StructType:
        from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

        from tap_spark.sources.files.text_types import simple_ddl  # noqa: PLC0415

        if self.stream.schema:
            columns: Any = simple_ddl(self.stream.schema)
            if columns is None:
                raise self.error(f"'schema' is not simple: {self.stream.schema}", _SIMPLE_HINT)
            return StructType(columns.fields)
        columns = self._guarded(self.columns)
        if isinstance(columns, pa.Schema):
            return StructType([StructField(f.name, self._type_of(f), True) for f in columns])
        fields = []
        for name, kind in columns.items():
            column = simple_ddl(f"c {kind}")
            if column is None:
                raise self.error(f"columns(): '{name}' has the type '{kind}'", _SIMPLE_HINT)
            fields.append(StructField(name, column.fields[0].dataType, True))
        return StructType(fields)

    def _type_of(self, field: pa.Field) -> DataType:
        from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

        from tap_spark.sources.files.arrow_parquet import storage_type  # noqa: PLC0415

        for kind in (field.type, storage_type(field.type)):
            # Also `PySparkTypeError`.
            with suppress(TypeError):
                if kind is not None and not pa.types.is_decimal256(kind):
                    return from_arrow_type(kind, prefer_timestamp_ntz=True)
        raise self.error(f"columns(): '{field.name}' has the type '{field.type}'", _OTHER_HINT)


@dataclass(frozen=True)
class _RowTask:
    """Reads a source, for `mapInArrow`: one row in, the source's rows out."""

    source: RowSource
    request: Request

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        for batch in batches:
            if batch.num_rows:
                yield from self.source.batches(self.request)


def _batch_of(rows: list[Mapping[str, Any]], schema: pa.Schema) -> dict[str, list[Any]]:
    names = set(schema.names)
    for row in rows:
        if not isinstance(row, Mapping):
            raise _failure(f"rows() yields no dictionary but a value of {type(row).__name__}")
        if not row.keys() <= names:
            raise _failure(f"rows() has a column that columns() lacks: {min(row.keys() - names)!r}")
    return {name: [row.get(name) for row in rows] for name in schema.names} if rows else {}


def _typed(columns: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the columns in the types of a schema, as one batch; nothing for no rows."""
    if not columns:
        return
    count = len(next(iter(columns.values())))
    arrays = [
        _array(name, columns[name], kind) if name in columns else pa.nulls(count, kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    if count:
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(name: str, values: Any, kind: pa.DataType) -> pa.Array:
    """Convert values to a type, each to one that is equal; texts as JSON has them."""
    try:
        if isinstance(values, pa.Array):
            return _cast(values, kind)
        is_text = any(isinstance(value, str) for value in values)
        # Arrow takes texts for binary columns as they are, beside bytes.
        of_any = pa.types.is_string(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind)
        if is_text and not of_any:
            return _cast(pa.array(map(_text, values), pa.string()), kind)
        array = pa.array(values, kind)
        if {*map(type, values)} <= {_EXACT.get(kind), type(None)}:
            return array
        # Beyond the year 9999 only by a time zone.
        with suppress(OverflowError):
            for value, other in zip(values, array.to_pylist(), strict=True):
                if (isinstance(other, list) or value != other) and not _is_same(value, other):
                    raise pa.ArrowInvalid(f"{value!r} would be {other!r}")
        return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _failure(f"column '{name}' is not {kind}: {first_line(error)}") from error


def _is_same(value: Any, other: Any) -> bool:
    """Return whether a value of Python is the one that Arrow has made of it."""
    if isinstance(other, dict):
        # Arrow takes a tuple by position.
        fields = dict(zip(other, value, strict=True) if isinstance(value, tuple) else value)
        return fields.keys() <= other.keys() and all(
            _is_same(fields.get(k), other[k]) for k in other
        )
    if isinstance(other, list | tuple):
        return all(map(_is_same, value.items() if isinstance(value, Mapping) else value, other))
    if isinstance(value, date) and isinstance(other, date):
        return _moment(value) == _moment(other)
    if isinstance(other, float):
        # `float` columns round; nothing finite becomes infinite.
        return math.isfinite(value) == math.isfinite(other)
    if isinstance(value, str) != isinstance(other, str):
        value, other = (v.encode() if isinstance(v, str) else v for v in (value, other))
    return bool(value == other)


def _moment(value: date) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in another type.

    Raises:
        pa.ArrowException: A value would change, also if Arrow's cast lets it, or a field be lost.
    """
    own, is_ = values.type, pa.types
    if own.equals(kind):
        return values
    if is_.is_null(own):
        return pa.nulls(len(values), kind)
    if isinstance(own, pa.BaseExtensionType):
        if own.extension_name != "arrow.uuid" or not is_.is_string(kind):
            return _cast(values.storage, kind)
        return pa.array([value and str(value) for value in values.to_pylist()], kind)
    if is_.is_struct(own) and is_.is_struct(kind):
        if others := {field.name for field in own} - {field.name for field in kind}:
            raise pa.ArrowInvalid(f"it lacks the field {min(others)!r}")
    elif is_.is_list(kind) and (is_.is_large_list(own) or is_.is_fixed_size_list(own)):
        values = pc.cast(values, pa.list_(own.value_field))
    whole = with_parts(values, kind, lambda part, wanted, _: _cast(part, wanted))
    if whole is not None:
        return whole
    values = values.dictionary_decode() if is_.is_dictionary(own) else values
    values = pc.cast(values, pa.string()) if is_.is_string_view(own) else values
    result = pc.cast(values, kind)
    # Text and bytes keep every value.
    if not (is_.is_string(kind) or is_.is_binary(kind)):
        is_odd = _is_odd(values, result)
        if pc.any(is_odd).as_py():
            where = pc.index(is_odd, True).as_py()
            raise pa.ArrowInvalid(f"{values[where]} would be {result[where]}")
    return result


def _is_odd(values: pa.Array, result: pa.Array) -> pa.Array:
    """Return which values a cast has changed."""
    own, kind, is_ = values.type, result.type, pa.types
    if is_.is_string(own) or is_.is_large_string(own):
        if is_.is_floating(kind):
            return pc.and_not(
                pc.is_inf(result), pc.match_substring(values, "inf", ignore_case=True)
            )
        return pc.and_(pc.match_substring_regex(values, "[xX]"), is_.is_integer(kind))
    if is_.is_floating(kind) and is_.is_floating(own):
        return pc.and_(pc.is_inf(result), pc.is_finite(values))
    return pc.not_equal(pc.cast(result, own), values)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _failure(problem: str) -> RuntimeError:
    return RuntimeError(row_failure(problem=problem))
