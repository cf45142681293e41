"""The outputs of each stream after `stream_maps` and flattening, and the columns they need.

A slice of a stream with several outputs is read once, and written once per output.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import CharType, StringType, StructField, StructType, VarcharType

from shared.errors import InvalidSettingsError, RecordError, SettingsError, Where
from shared.formats.arrow_types import mapped, struct_to_arrow
from shared.formats.schema_nodes import json_schema_to_spark, only_properties
from shared.maps.expressions.syntax import ERROR
from shared.maps.map_settings import TransformSettings
from shared.settings.texts import quoted
from shared.singer.messages import DELETED_AT
from tap_spark.sources.frame_helpers import prune, struct_from_text
from tap_spark.state.stream_plans import (
    BlockReaders,
    DriverBlocks,
    Method,
    Resume,
    Slice,
    StreamPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from shared.maps.arrow_maps import ArrowMap
    from shared.maps.stream_maps import StreamOutput
    from shared.maps.transform import Transform


KEY = "__replication_key"
"""Name of the column with the replication key as it was read."""

FILTERED = "__filtered"
"""Name of the column that is true in filtered rows, and null in all others."""

BEGIN, END = "[tap-spark map]", "[/tap-spark map]"
_MARKED = re.compile(re.escape(BEGIN) + r"(.*?)" + re.escape(END), re.DOTALL)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """A stream as it is written, under one name.

    Attributes:
        plan: The stream's plan, with the name, schema and key properties of the output.
        transform: Maps the rows; None to write them unchanged.
        struct: The columns that the transform was built for.
        rebuild: Builds the transform for other columns.
    """

    plan: StreamPlan
    transform: Transform | None = None
    struct: StructType | None = None
    rebuild: Callable[[StructType], Transform | None] = field(default=lambda _: None, compare=False)

    def mapped_slice(
        self, slice_: Slice, *, keep_filtered: bool = True, only: Collection[str] | None = None
    ) -> Slice:
        """Return the slice as it is written: its rows mapped, the replication key kept aside.

        A row that cannot be mapped fails the job; see `map_error`.

        Args:
            keep_filtered: Whether to keep filtered rows, marked, if a key is tracked.
            only: The columns to keep; None for all.
        """
        if self.transform is None:
            return slice_
        transform = self._transform_for(slice_.frame.schema) or self.transform
        names, keep = transform.struct().names, dict[str, str]()
        if DELETED_AT in slice_.frame.columns and DELETED_AT not in names:
            keep[DELETED_AT] = DELETED_AT
        if self.plan.resume is Resume.REPLICATION_KEY and self.plan.replication_key is not None:
            keep[KEY] = self.plan.replication_key
        marks = KEY in keep and keep_filtered and transform.leaves_out
        mark = FILTERED if marks else None
        frame = transform.apply(slice_.frame, keep=keep, mark=mark)
        names += [*keep, *([mark] if mark else [])]
        names = names if only is None else [name for name in names if name in only]
        columns = [F.col(quoted(name)) for name in names]
        if names:
            # One column carries the check of the whole row: Spark leaves out expressions that
            # nobody reads.
            columns[0] = _checked(columns[0], F.col(ERROR), self.plan.stream).alias(names[0])
        return replace(
            slice_,
            frame=frame.select(*columns),
            key_column=KEY if KEY in keep else None,
            filtered_column=mark,
        )

    def _transform_for(self, struct: StructType) -> Transform | None:
        """Return the transform for rows whose types may differ from the plan."""
        if self.transform is None or self.struct is None:
            return None
        types = {column.name: column.dataType for column in _plain(struct)}
        if all(types.get(f.name, f.dataType) == f.dataType for f in self.struct):
            return self.transform
        now = [StructField(f.name, types.get(f.name, f.dataType), True) for f in self.struct]
        return self.rebuild(StructType(now))


@dataclass(frozen=True)
class Outputs:
    """The outputs of the streams of a run.

    Attributes:
        by_stream: Outputs by `tap_stream_id`, for streams that are not written unchanged.
    """

    by_stream: Mapping[str, tuple[Output, ...]] = field(default_factory=dict)

    def of(self, plan: StreamPlan) -> tuple[Output, ...]:
        """Return the outputs of a stream, for a plan that may be new after a retry."""
        outputs = self.by_stream.get(plan.tap_stream_id)
        if outputs is None:
            return (Output(plan),)
        return tuple(replace(output, plan=_renamed(plan, output.plan)) for output in outputs)

    def read_plan(self, plan: StreamPlan) -> StreamPlan:
        """Return the plan with only the columns that an output needs."""
        outputs = self.by_stream.get(plan.tap_stream_id)
        if outputs is None or any(output.transform is None for output in outputs):
            return plan
        reads = (output.transform.reads for output in outputs if output.transform is not None)
        needed = {*plan.key_properties, plan.replication_key}.union(*reads)
        # A frame without columns has no rows to count.
        columns = tuple(name for name in plan.columns if name in needed) or plan.columns[:1]
        return replace(
            plan, columns=columns, schema=only_properties(plan.schema, {*columns, DELETED_AT})
        )

    def key_slices(
        self, plan: StreamPlan, read: Callable[[StreamPlan], Iterable[Slice]]
    ) -> Iterator[tuple[Output, Iterator[Slice]]]:
        """Yield each output of a stream with the keys of all rows that its source has."""
        whole = replace(
            plan,
            method=Method.FULL_TABLE,
            resume=Resume.NOTHING,
            replication_key=None,
            bookmark={},
            start_value=None,
            end_value=None,
        )
        for output in self.of(whole):
            keys, own = output.plan.key_properties, self.read_plan(whole)
            if output.transform is None:
                columns = tuple(name for name in plan.columns if name in keys)
                own = replace(whole, columns=columns, schema=only_properties(plan.schema, keys))
            mapped = partial(output.mapped_slice, keep_filtered=False, only=keys)
            yield output, map(mapped, read(own))


def outputs_of(
    settings: TransformSettings, plans: Sequence[StreamPlan], spark: Callable[[], SparkSession]
) -> tuple[Outputs, tuple[StreamPlan, ...]]:
    """Plan the outputs of streams, before anything is read.

    Args:
        spark: Returns the session; called only if a map has SQL.

    Returns:
        The outputs, and the plans of the streams that have one.

    Raises:
        SettingsError: Maps do not fit streams, or two streams get one name; lists all problems.
    """
    from shared.maps.stream_maps import outputs, reject_duplicate_names  # noqa: PLC0415

    by_stream: dict[str, tuple[Output, ...]] = {}
    mapped: dict[str, Sequence[StreamOutput]] = {}
    errors: list[SettingsError] = []
    for plan in plans:
        maker = _maker(partial(outputs, settings), plan, spark)
        struct = _struct_of(plan)
        try:
            mapped[plan.tap_stream_id] = maker(struct)
        except SettingsError as error:
            errors.append(error)
        else:
            by_stream[plan.tap_stream_id] = tuple(
                _output(plan, output, struct, maker, number)
                for number, output in enumerate(mapped[plan.tap_stream_id])
            )
    if errors:
        raise _all_of(errors)
    reject_duplicate_names(mapped)
    left = tuple(plan for plan in plans if by_stream[plan.tap_stream_id])
    for plan in plans:
        if not by_stream[plan.tap_stream_id]:
            _logger.info("stream '%s': not reading it, as stream_maps removes it", plan.stream)
    return Outputs(by_stream), left


def map_error(error: BaseException) -> RecordError | None:
    """Return an error for the row that could not be mapped, if that is why a Spark job failed."""
    marked = _MARKED.search(str(error))
    if marked is None:
        return None
    try:
        details = json.loads(marked.group(1))
    except ValueError:
        details = {"reason": marked.group(1)}
    return RecordError(
        str(details.get("reason")), where=Where(stream=details.get("stream"), setting="stream_maps")
    )


_Maker = Callable[["StructType"], tuple["StreamOutput", ...]]


def _maker(
    outputs: Callable[..., tuple[StreamOutput, ...]],
    plan: StreamPlan,
    spark: Callable[[], SparkSession],
) -> _Maker:
    schema = only_properties(plan.schema, {*plan.columns})
    return lambda struct: outputs(plan.stream, schema, struct, plan.key_properties, spark)


def _output(
    plan: StreamPlan, output: StreamOutput, struct: StructType, maker: _Maker, number: int
) -> Output:
    for note in output.notes:
        _logger.info("stream '%s': %s", output.stream, note)
    written = dict(output.schema)
    if DELETED_AT in plan.schema["properties"] and DELETED_AT not in plan.columns:
        deleted = {DELETED_AT: plan.schema["properties"][DELETED_AT]}
        written["properties"] = {**(written.get("properties") or {}), **deleted}
    named = replace(
        plan, stream=output.stream, schema=written, key_properties=tuple(output.key_properties)
    )
    return Output(named, output.transform, struct, lambda read: maker(read)[number].transform)


def _all_of(errors: Sequence[SettingsError]) -> SettingsError:
    problems: dict[str, None] = {}
    for error in errors:
        own = error.problems if isinstance(error, InvalidSettingsError) else (str(error),)
        problems |= dict.fromkeys(own)
    return InvalidSettingsError(problems)


def _struct_of(plan: StreamPlan) -> StructType:
    """Return the columns of a stream as Spark's types, as far as known before reading."""
    text, schema = plan.source_schema, only_properties(plan.schema, {*plan.columns})
    struct = prune(struct_from_text(text), schema) if text else json_schema_to_spark(schema)
    fields = {item.name: item for item in struct}
    return _plain(StructType([fields[name] for name in plan.columns if name in fields]))


def _plain(struct: StructType) -> StructType:
    """Return the types of columns in frames: text is a string, everything is nullable."""

    def plain(kind: DataType) -> DataType:
        return StringType() if isinstance(kind, (CharType, VarcharType)) else kind

    return StructType([StructField(f.name, mapped(f.dataType, plain), True) for f in struct])


def _renamed(plan: StreamPlan, written: StreamPlan) -> StreamPlan:
    stream, schema, keys = written.stream, written.schema, written.key_properties
    return replace(plan, stream=stream, schema=schema, key_properties=keys)


def _checked(column: Column, error: Column, stream: str) -> Column:
    """Return the column; it fails the job if the row could not be mapped."""
    details = F.to_json(F.struct(F.lit(stream).alias("stream"), error.alias("reason")))
    marked = F.concat(F.lit(BEGIN), details, F.lit(END))
    return F.when(error.isNull(), column).otherwise(F.raise_error(marked))


def block_map(output: Output) -> ArrowMap | None:
    """Return the map of an output over Arrow; None if Spark has to map, or does it faster."""
    if output.transform is None or output.struct is None:
        return None
    from shared.maps.arrow_maps import arrow_map  # noqa: PLC0415

    # Python evaluates some expressions row by row: Spark's columns, compiled, are faster for these.
    arrow = arrow_map(output.transform, output.struct)
    return None if arrow is None or arrow.in_python else arrow


def mapped_blocks(output: Output, blocks: DriverBlocks) -> DriverBlocks | None:
    """Map blocks of rows by the `block_map` of an output.

    Returns:
        The mapped rows; None if they have other columns than the map was planned for. A reader
        raises RecordError for a row that cannot be mapped.
    """
    arrow, transform, struct = block_map(output), output.transform, output.struct
    if arrow is None or transform is None or struct is None:
        return None
    planned = {field.name: field.type for field in struct_to_arrow(struct)}
    # A file may turn out to have other types than discovery saw.
    if any(planned.get(field.name) != field.type for field in blocks.schema):
        return None
    reads = [name for name in blocks.schema.names if name in transform.reads]
    if len(reads) < len(transform.reads):
        return None
    schema = struct_to_arrow(transform.struct())

    def mapped(read: Callable[[], pa.RecordBatch | None]) -> pa.RecordBatch | None:
        block = read()
        if block is None:
            return None
        rows = arrow.apply(pa.Table.from_batches([block]))
        errors = pc.drop_null(rows.column(ERROR))
        if len(errors):
            where = Where(stream=output.plan.stream, setting="stream_maps")
            raise RecordError(errors[0].as_py(), where=where)
        arrays = [rows.column(name).combine_chunks() for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return DriverBlocks(schema, _Changed(blocks.readers, mapped))


@dataclass(frozen=True)
class _Changed:
    """Readers whose blocks are changed."""

    readers: BlockReaders
    change: Callable[[Callable[[], pa.RecordBatch | None]], pa.RecordBatch | None]

    def __len__(self) -> int:
        return len(self.readers)

    def __iter__(self) -> Iterator[Callable[[], pa.RecordBatch | None]]:
        return (partial(self.change, read) for read in self.readers)
