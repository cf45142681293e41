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

import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from shared.engine.engine import Engine, Work
from shared.errors import SingerSparkError, first_line
from shared.singer.platform import arrow_in_task
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.source_failures import row_failure, source_error
from tap_spark.state.stream_plans import DriverRows, RowForm, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


ROWS = 1000
"""Dictionaries that become one Arrow batch."""
_ARROW_ROWS = 10_000
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
        import pyarrow as pa  # noqa: PLC0415

        from shared.formats.arrow_types import struct_to_arrow  # noqa: PLC0415

        schema, waiting = struct_to_arrow(self._struct), list[Mapping[str, Any]]()
        for item in self.rows(request):
            if isinstance(item, pa.RecordBatch | pa.Table):
                yield from _typed(_batch_of(waiting, schema), schema)
                waiting = []
                table = item if isinstance(item, pa.Table) else pa.Table.from_batches([item])
                for batch in table.to_batches(_ARROW_ROWS):
                    yield from _typed(batch, schema)
                continue
            waiting.append(item)
            if len(waiting) >= ROWS:
                yield from _typed(_batch_of(waiting, schema), schema)
                waiting = []
        yield from _typed(_batch_of(waiting, schema), schema)

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
        import pyarrow as pa  # noqa: PLC0415
        from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415
        from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

        from tap_spark.sources.files.text_types import simple_ddl  # noqa: PLC0415

        if self.stream.schema:
            columns: Any = simple_ddl(self.stream.schema)
            if columns is None:
                raise self.error(f"'schema' is not simple: {self.stream.schema}", _SIMPLE_HINT)
            return StructType(columns.fields)
        columns = self._guarded(self.columns)
        if isinstance(columns, pa.Schema):
            kinds = {f.name: from_arrow_type(f.type, prefer_timestamp_ntz=True) for f in columns}
            return StructType([StructField(name, kind, True) for name, kind in kinds.items()])
        fields = []
        for name, kind in columns.items():
            column = simple_ddl(f"c {kind}")
            if column is None:
                raise self.error(f"columns(): '{name}' has the type '{kind}'", _SIMPLE_HINT)
            fields.append(StructField(name, column.fields[0].dataType, True))
        return StructType(fields)


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


def _typed(columns: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the columns in the types of a schema, as one batch; nothing for no rows."""
    import pyarrow as pa  # noqa: PLC0415

    if not isinstance(columns, dict):
        columns = dict(zip(columns.schema.names, columns.columns, strict=True))
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
    """Convert values to a type; texts as JSON has them."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        if isinstance(values, pa.Array):
            return values.cast(kind)
        is_text = any(isinstance(value, str) for value in values)
        # Arrow takes texts for binary columns as they are, beside bytes.
        of_any = pa.types.is_string(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind)
        if is_text and not of_any:
            return pa.array(map(_text, values), pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _failure(f"column '{name}' is not {kind}: {first_line(error)}") from error


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _failure(problem: str) -> RuntimeError:
    return RuntimeError(row_failure(problem=problem))
