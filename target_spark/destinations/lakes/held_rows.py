"""What a run holds back for a table until it is audited, and the conditions of the audit. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING

from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.tables.version_edit import VersionEdit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class HeldEdit:
    """An ACTIVATE_VERSION that takes effect after the flushes before it."""

    request: TableRequest
    edit: VersionEdit


Step = Flush | HeldEdit


def steps_of(held: Sequence[Step]) -> list[Step]:
    """Return the steps with those flushes merged that one commit can load; none without rows.

    A merged flush has the token, the request and the STATE of its last one.
    """
    return [step for _, group in groupby(held, key=_kind) for step in _merged(list(group))]


def flushes_in(held: Sequence[Step]) -> list[Flush]:
    """Return the flushes alone."""
    return [step for step in held if isinstance(step, Flush)]


def summed(found: Sequence[Committed]) -> Committed:
    """Return what several commits tell together."""
    rows = [one.rows for one in found if one.rows is not None]
    keys = [one.keys for one in found if one.keys is not None]
    return Committed(
        rows=sum(rows) if len(rows) == len(found) else None,
        keys=sum(keys) if found and len(keys) == len(found) else None,
        by_key=any(one.by_key for one in found),
        may_skip=any(one.may_skip for one in found),
    )


def _kind(step: Step) -> Hashable:
    if isinstance(step, HeldEdit):
        return step.request.stream
    return step.request.struct.json(), step.request.keys


def _merged(group: Sequence[Step]) -> Iterator[Step]:
    flushes = flushes_in(group)
    if not flushes:
        yield from group
        return
    parts = tuple(part for flush in flushes for part in flush.parts)
    if parts:
        yield replace(flushes[-1], parts=parts)


def rows_found(frame: DataFrame, conditions: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the rows of a table, one line each.

    Args:
        frame: The rows; read once, without files that cannot have such rows.
        conditions: Spark SQL over the columns.

    Raises:
        Exception: Spark's, if the rows cannot be read.
    """
    from pyspark.errors import (  # noqa: PLC0415
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        NumberFormatException,
    )
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    valid = []
    for text in conditions:
        try:
            frame.where(text).schema  # noqa: B018 - Spark Connect looks at it only now
            valid.append(text)
        except AnalysisException as error:
            yield f"the condition '{text}' cannot be checked: {_reason(error)}"
    if not valid:
        return
    columns = [F.expr(text) for text in valid]
    counting = frame.where(reduce(or_, columns)).agg(*map(F.count_if, columns))
    try:
        [counts] = counting.collect()
    except (ArithmeticException, DateTimeException, NumberFormatException) as error:
        yield f"one of the conditions cannot be checked: {_reason(error)}"
        return
    for text, count in zip(valid, counts, strict=True):
        if count:
            yield f"{count} rows meet '{text}'"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
