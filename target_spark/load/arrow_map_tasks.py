"""The load path with a stream map over Arrow: no row passes through Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shared.engine.engine import Task
from shared.engine.weights import IN_PYTHON
from shared.maps.arrow_maps import ArrowMap, arrow_map
from shared.maps.record_metadata import COLUMNS
from shared.maps.transform import ERROR
from shared.types.arrow_conform import conform
from target_spark.core.load_plans import Making
from target_spark.destinations.destination import ROW_ORIGIN, TableWrite
from target_spark.load import load_tasks
from target_spark.load.load_frames import NEEDS_MAP, needs_frame, plain_types
from target_spark.load.mapped_frames import source_columns, source_records, with_origins
from target_spark.load.read_rows import ReadPlan
from target_spark.load.reject_files import Rejects
from target_spark.load.rejected_originals import Originals
from target_spark.validation.missing_keys import missing_key_reason

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shared.engine.engine import Engine
    from shared.maps.transform import Transform


def tell_engine(
    engine: Engine, stream: str, transform: Transform | None, source: StructType
) -> None:
    """Say what a map costs before its first row, so that Spark starts in time.

    Args:
        engine: Where the rows are mapped.
        stream: Whose rows.
        transform: The map; None if rows are unchanged.
        source: The columns of the records.

    Raises:
        SettingsError: Only Spark can map them, and the settings forbid it.
    """
    if transform is None or transform.only_copies:
        return
    found = arrow_map(transform, source)
    if found is None:
        engine.needs(NEEDS_MAP, stream)
    elif found.in_python:
        engine.weigh(IN_PYTHON)


def map_task(read: ReadPlan, write: TableWrite, making: Making) -> tuple[Task | None, bool]:
    """Return what loads the tasks of a plan without Spark.

    Args:
        read: How files are read; see `mapped_frames.job`.
        write: How the rows of the table are written.
        making: The map.

    Returns:
        The work, None if only Spark can map the rows; and whether Python evaluates an expression
        for each row.
    """
    if needs_frame(write) or read.document is not None:
        return None, False
    source = source_columns(read.schema, add_metadata=read.metadata is not None)
    made = arrow_map(making.transform, source)
    kinds, stored = plain_types(write.struct), write.struct.names
    cells = (cell for cell in making.transform.cells if cell.name in stored)
    if made is None or any(kinds.get(cell.name) != cell.data_type for cell in cells):
        return None, False
    records = with_origins(source_records(read, making, source))
    plan = load_tasks.write_plan(write, read.columns)
    keys = [key.name for key in read.keys]
    kept = [name for name in source.names if name in COLUMNS]
    mapped = partial(_mapped, records, plan, made, kept, keys)
    return partial(load_tasks.load, records, plan, made=mapped), made.in_python


def _mapped(
    read: ReadPlan,
    write: load_tasks.WritePlan,
    made: ArrowMap,
    kept: Sequence[str],
    keys: Sequence[str],
    records: pa.Table,
    rejects: Rejects,
) -> pa.Table:
    """Return the table's rows of some records; reject those that fail, or lack a key."""
    rows = made.apply(records, [*kept, ROW_ORIGIN])
    errors = rows.column(ERROR)
    for key in keys:
        known = key in rows.column_names
        missing = rows.column(key).is_null() if known else pa.scalar(True)
        errors = pc.coalesce(errors, pc.if_else(missing, missing_key_reason(key), None))
    Originals(read).reject_all(rows.column(ROW_ORIGIN), errors, rejects)
    return conform(rows.filter(errors.is_null()), write.columns)
