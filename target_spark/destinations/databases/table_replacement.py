"""Replacement of all rows of a table: readers see the old rows until all new ones are there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from target_spark.destinations.databases.database_tables import TablePlace
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.table_work import TableWork

if TYPE_CHECKING:
    from target_spark.core.load_plans import TableRequest


def empty_table(work: TableWork, requests: Sequence[TableRequest]) -> TableWork:
    """Return work on an empty table with the columns that all requests need.

    It is the table itself if others have created it or its triggers and foreign keys, or DDL and
    the new rows are one transaction; otherwise a new one, for `swap_in`.

    Raises:
        DestinationError: The stream's columns have changed their types during the run, and the
            settings do not resolve that. All rows are unchanged.
    """
    sql, cursor = work.database.sql, work.cursor
    _check_cascades(work)
    if work.is_theirs() or sql.has_ties(cursor, work.place):
        for request in requests:
            work.alter(request, work.plan(request))
        work.connection.commit()
        _delete_all(work)
        return work
    is_there = work.database.describe(cursor, work.place) is not None
    conflicts = dict.fromkeys(chain.from_iterable(map(work.conflicting, requests)))
    if is_there and not conflicts:
        for request in requests:
            work.alter(request, work.plan(request))
        # Readers of an altered table wait for the transaction's end.
        work.connection.commit()
    is_keyed = is_there and all(map(work.is_keyed, requests))
    is_ready = is_keyed and not conflicts
    if is_there and not is_ready:
        _check_attached(work, list(conflicts), is_copied=sql.undoes_ddl or is_keyed)
    if is_there and (is_ready or sql.undoes_ddl):
        _delete_all(work)
    if is_ready:
        return work
    created = work if sql.undoes_ddl else _spare(work, is_keyed)
    if is_keyed or created is work:
        created.drop_columns(conflicts)
    for request in requests:
        created.alter(request, created.plan(request))
    for request in requests:
        created.key(request, created.plan(request))
    return created


def _delete_all(work: TableWork) -> None:
    """Delete all rows; raise SettingsError if a trigger or rule of others keeps some."""
    work.cursor.execute(work.database.sql.delete_all(work.place))
    if work.database.sql.keeps_rows(work.cursor, work.place):
        raise SettingsError(
            f"'overwrite' cannot replace the rows of '{work.place.table}': "
            "a trigger or rule of the table keeps them",
            where=Where(setting="load_method"),
            hint="load the stream with 'upsert', or drop that trigger or rule",
        )


def _check_cascades(work: TableWork) -> None:
    """Raise SettingsError if rows of other tables would go with those of the table."""
    if work.database.describe(work.cursor, work.place) is None:
        return
    others = work.database.sql.cascades(work.cursor, work.place)
    if others:
        raise SettingsError(
            f"'overwrite' would change rows of '{others[0]}' too: its foreign key to the table "
            f"'{work.place.table}' has an action ON DELETE",
            where=Where(setting="load_method"),
            hint="load the stream with 'upsert', or drop that foreign key",
        )


def _check_attached(work: TableWork, conflicts: Sequence[str], *, is_copied: bool) -> None:
    """Raise SettingsError if what others have made of columns would go with them.

    Args:
        work: The locked table.
        conflicts: Columns that are created anew, for another type.
        is_copied: Whether the other columns stay, with what belongs to them.
    """
    table = work.database.describe(work.cursor, work.place)
    columns = [column.name for column in table.columns] if table and not is_copied else conflicts
    others = work.database.sql.attached(work.cursor, work.place, columns)
    if others:
        raise SettingsError(
            f"'overwrite' would create columns of '{work.place.table}' anew for other types or "
            f"keys ({', '.join(conflicts)}), and drop what was made by others: {', '.join(others)}",
            where=Where(setting="load_method"),
            hint="drop that and run again, or choose another table",
        )


def _spare(work: TableWork, is_keyed: bool) -> TableWork:
    """Return work on a new table, a copy of the current one if that has the right keys."""
    created = replace(work, place=TablePlace(work.place.schema, swap_names(work)[0]))
    work.cursor.execute(work.database.sql.drop(created.place))
    if is_keyed:
        work.cursor.execute(work.database.sql.copy(created.place, work.place))
    return created


def swap_in(work: TableWork, filled: TableWork) -> None:
    """Replace the old table by the filled one from `empty_table`.

    The ledger is written afterwards: if that fails, everything is repeated.
    """
    if filled.place == work.place:
        return
    pairs = [(filled.place, work.place)]
    if work.database.describe(work.cursor, work.place) is not None:
        pairs.insert(0, (work.place, TablePlace(work.place.schema, swap_names(work)[1])))
    work.connection.commit()
    work.cursor.execute(work.database.sql.rename(pairs))


def swap_names(work: TableWork) -> tuple[str, str]:
    """Return names for the new and the old table, which are removed like staging tables."""
    digest = hashlib.sha256(work.place.table.encode()).hexdigest()[:15]
    return f"{PREFIX}{work.ledger.run}_{digest}n", f"{PREFIX}{work.ledger.run}_{digest}o"
