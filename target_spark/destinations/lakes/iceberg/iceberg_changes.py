"""Changes of rows of Iceberg tables in Arrow: which rows change, and what they become."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from target_spark.destinations.lakes.iceberg.iceberg_files import Columns
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.small_flush import has_exact_bounds, places

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile

    from target_spark.destinations.lakes.merge import KeyRange, MergePlan

_ROW, _GIVEN = "__row", "__given"
_EPOCH = dt.date(1970, 1, 1)


class Found(NamedTuple):
    """Rows of a table that change.

    Attributes:
        rows: Their places among those that were read.
        given: As many places in the flush, if there is one.
    """

    rows: pa.Array
    given: pa.Array


class RowChange:
    """A change of rows. This one only adds rows.

    Args:
        columns: Columns of the table.
        given: Rows of a flush.
    """

    needs: Sequence[str] = ()
    """Columns by which rows are found."""
    is_marked = True
    """Whether it is committed even if no row changes: the mark tells that it was made."""

    def __init__(self, columns: Columns, given: pa.Table) -> None:
        self._columns, self._given = columns, columns.known(given)

    def may_be_in(self, file: DataFile) -> bool:  # noqa: ARG002
        """Return whether a file may have rows that change."""
        return False

    def find(self, rows: pa.Table) -> Found:  # noqa: ARG002
        """Find rows that change among rows of a file, which have at least the columns of `needs`.

        Its rows are looked through once more if any is found.
        """
        return Found(*2 * [places(self._columns.empty())])

    def replaced(self, rows: pa.Table, found: Found) -> pa.Table:
        """Return what found rows become, without those that are deleted."""
        return rows.take(found.rows)

    def added(self) -> pa.Table:
        """Return the rows to add, after all files have been looked through."""
        return self._columns.filled(self._given)


class Merging(RowChange):
    """The change of a MERGE.

    Args:
        columns: Columns of the table.
        given: Rows of the flush; one for each key.
        plan: Keys, columns and conditions.
    """

    def __init__(self, columns: Columns, given: pa.Table, plan: MergePlan) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import compute  # noqa: PLC0415

        super().__init__(columns, given)
        self._plan = plan
        keys = [key.column for key in plan.keys]
        self.needs = list(dict.fromkeys([*keys, *plan.order_by]))
        self._source = _joinable(self._given, plan.keys).append_column(_GIVEN, places(given))
        self._gone = pa.repeat(False, given.num_rows)
        if plan.deleted is not None:
            self._gone = compute.is_valid(given[plan.deleted]).combine_chunks()
        self._matched = [places(given.slice(0, 0))]

    def may_be_in(self, file: DataFile) -> bool:
        """See `RowChange`."""
        return not any(_is_apart(file, self._columns, key) for key in self._plan.keys)

    def find(self, rows: pa.Table) -> Found:
        """See `RowChange`."""
        from pyarrow import compute  # noqa: PLC0415

        target = _joinable(rows, self._plan.keys).append_column(_ROW, places(rows))
        names = [name for name in target.column_names if name != _ROW]
        pairs = target.join(self._source, names, join_type="inner")
        found = Found(*(pairs[name].combine_chunks() for name in (_ROW, _GIVEN)))
        self._matched.append(compute.unique(found.given))
        if self._plan.order_by:
            new, old = self._given.take(found.given), rows.take(found.rows)
            found = _chosen(found, not_older([(new[n], old[n]) for n in self._plan.order_by]))
        if not self._plan.update:
            found = _chosen(found, self._gone.take(found.given))
        return found

    def replaced(self, rows: pa.Table, found: Found) -> pa.Table:
        """See `RowChange`."""
        from pyarrow import compute  # noqa: PLC0415

        found = _chosen(found, compute.invert(self._gone.take(found.given)))
        new = self._columns.filled(self._given.take(found.given))
        old = rows.take(found.rows)
        for name in self._plan.update:
            old = old.set_column(old.column_names.index(name), name, new[name])
        return old

    def added(self) -> pa.Table:
        """See `RowChange`."""
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import compute  # noqa: PLC0415

        is_known = compute.is_in(places(self._given), pa.concat_arrays(self._matched))
        is_new = compute.invert(compute.or_(is_known, self._gone))
        return self._columns.filled(self._given.filter(is_new))


class Activating(RowChange):
    """The change of rows of older versions.

    Args:
        columns: Columns of the table.
        names: Column with the version of rows, and that which marks rows as deleted.
        below: Change rows with a lower version.
        at: Time for the mark, seconds since the epoch; None to delete the rows.
    """

    is_marked = False

    def __init__(
        self, columns: Columns, names: tuple[str, str], below: int, at: float | None
    ) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import types  # noqa: PLC0415

        super().__init__(columns, columns.empty())
        self.needs = names
        (self._version, self._deleted), self._below = names, below
        mark = columns.field(self._deleted).type
        number = columns.field(self._version).type
        if not types.is_integer(number) or not types.is_timestamp(mark):
            raise NeedsSparkError
        self._mark = None if at is None else pa.scalar(round(at * 1e6), pa.int64()).cast(mark)

    def may_be_in(self, file: DataFile) -> bool:  # noqa: ARG002
        """See `RowChange`."""
        return True

    def find(self, rows: pa.Table) -> Found:
        """See `RowChange`."""
        from pyarrow import compute  # noqa: PLC0415

        is_old = compute.fill_null(compute.less(rows[self._version], self._below), False)
        if self._mark is not None:
            is_old = compute.and_(is_old, compute.is_null(rows[self._deleted]))
        found = places(rows).filter(is_old.combine_chunks())
        return Found(found, found)

    def replaced(self, rows: pa.Table, found: Found) -> pa.Table:
        """See `RowChange`."""
        import pyarrow as pa  # noqa: PLC0415

        if self._mark is None:
            return self._columns.empty()
        old = rows.take(found.rows)
        marks = pa.repeat(self._mark, old.num_rows)
        return old.set_column(old.column_names.index(self._deleted), self._deleted, marks)


def not_older(pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Return for which rows `row_order.not_older` holds.

    Args:
        pairs: For each column the given and the stored values.
    """
    from pyarrow import compute  # noqa: PLC0415

    (new, old), *rest = pairs
    no_old = compute.is_null(old)
    above = compute.fill_null(compute.greater(new, old), False)
    newer = compute.or_(above, compute.and_(no_old, compute.is_valid(new)))
    same = compute.fill_null(compute.equal(new, old), False)
    same = compute.or_(same, compute.and_(no_old, compute.is_null(new)))
    return compute.or_(newer, compute.and_(same, not_older(rest)) if rest else same)


def _joinable(rows: pa.Table, keys: Sequence[KeyRange]) -> pa.Table:
    """Return keys in columns whose values Arrow joins as Spark compares the keys.

    A null is equal to no other one in a join, so that whether there is one is a column of its own.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    columns = []
    for key in keys:
        column = rows[key.column]
        if key.nulls:
            columns.append(compute.is_valid(column))
            column = compute.fill_null(column, _any_value(column.type))
        columns.append(column)
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def _any_value(kind: pa.DataType) -> pa.Scalar:
    import pyarrow as pa  # noqa: PLC0415

    zeros = pa.py_buffer(bytes(64))
    return pa.Array.from_buffers(kind, 1, [None, zeros, zeros][: kind.num_buffers])[0]


def _chosen(found: Found, which: Any) -> Found:
    import pyarrow as pa  # noqa: PLC0415

    mask = which.combine_chunks() if isinstance(which, pa.ChunkedArray) else which
    return Found(found.rows.filter(mask), found.given.filter(mask))


def _is_apart(file: DataFile, columns: Columns, key: KeyRange) -> bool:
    """Return whether all values of a key column in a file are below or above those of a flush."""
    number = columns.identifiers[key.column]
    low, high = ((b or {}).get(number) for b in (file.lower_bounds, file.upper_bounds))
    if key.nulls or None in (low, high, key.first, key.last):
        return False
    if not has_exact_bounds(columns.field(key.column).type):
        return False
    if isinstance(key.first, str):
        first, last = (value.encode("utf-8", "surrogatepass") for value in (key.first, key.last))
        return bool(low > last or high < first)  # type: ignore[operator]
    return bool(number_of(low) > _days(key.last) or number_of(high) < _days(key.first))


def number_of(bound: Any) -> int:
    """Return the number of a bound of a file."""
    return int.from_bytes(bound, "little", signed=True)


def _days(value: int | dt.date) -> int:
    return (value - _EPOCH).days if isinstance(value, dt.date) else value
