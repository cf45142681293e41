"""Conditions that no row of a table may meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
