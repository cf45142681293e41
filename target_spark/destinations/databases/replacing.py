"""All rows of a table replaced: readers find the old ones until all new ones are there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from target_spark.destinations.databases import TablePlace
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.work import Work

if TYPE_CHECKING:
    from target_spark.plans import TableRequest


def emptied(work: Work, requests: Sequence[TableRequest]) -> Work:
    """Work on a table without rows that has what all requests need.

    It is the table itself where all of this and the new rows are one transaction; otherwise a new
    one, for `put_in_place`.

    Raises:
        DestinationError: The stream's columns have changed their types during the run, and the
            settings do not say what becomes of such. No row has changed.
    """
    sql, cursor = work.database.sql, work.cursor
    is_there = work.database.describe(cursor, work.place) is not None
    conflicts = dict.fromkeys(chain.from_iterable(map(work.conflicting, requests)))
    if is_there and not conflicts:
        for request in requests:
            work.alter(request, work.plan(request))
        # Readers of an altered table wait for the transaction's end.
        work.connection.commit()
    is_keyed = is_there and all(map(work.is_keyed, requests))
    is_ready = is_keyed and not conflicts
    if is_there and (is_ready or sql.undoes_ddl):
        cursor.execute(sql.delete_all(work.place))
    if is_ready:
        return work
    made = work if sql.undoes_ddl else _spare(work, is_keyed)
    if is_keyed or made is work:
        made.drop_columns(conflicts)
    for request in requests:
        made.alter(request, made.plan(request))
    for request in requests:
        made.key(request, made.plan(request))
    return made


def _spare(work: Work, is_keyed: bool) -> Work:
    """Another table, like the one of the work if that has the right keys; otherwise none yet."""
    made = replace(work, place=TablePlace(work.place.schema, spares(work)[0]))
    work.cursor.execute(work.database.sql.drop(made.place))
    if is_keyed:
        work.cursor.execute(work.database.sql.copy(made.place, work.place))
    return made


def put_in_place(work: Work, filled: Work) -> None:
    """Puts the table that `emptied` has made, with rows by now, in the place of the old one.

    A ledger tells of it afterwards only: should that fail, all is done again.
    """
    if filled.place == work.place:
        return
    pairs = [(filled.place, work.place)]
    if work.database.describe(work.cursor, work.place) is not None:
        pairs.insert(0, (work.place, TablePlace(work.place.schema, spares(work)[1])))
    work.connection.commit()
    work.cursor.execute(work.database.sql.rename(pairs))


def spares(work: Work) -> tuple[str, str]:
    """Names for the table that is made and for the old one, both to be removed as staged ones."""
    digest = hashlib.sha256(work.place.table.encode()).hexdigest()[:15]
    return f"{PREFIX}{work.ledger.run}_{digest}n", f"{PREFIX}{work.ledger.run}_{digest}o"
