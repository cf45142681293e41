"""Rows that a filter leaves out, where something is to be known of them all the same."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.transforms.transform import Cell, Made, Transform, once, passes

LEFT_OUT = "__left_out"
"""A column that is true in rows that the filter leaves out, and null in all others."""

_DECIDED = "__map_decided"


def marked(transform: Transform, frame: DataFrame) -> tuple[Transform, DataFrame]:
    """Mark the rows that a transform's filter leaves out, instead of removing them.

    Args:
        transform: Has a filter or none.
        frame: What it is to be applied to.

    Returns:
        A transform without a filter, to be applied with `LEFT_OUT` as `bypass`, and the frame with
        that column. The reason why the filter fails for a row stays the row's first reason.
    """
    if transform.filter is None:
        return transform, frame.withColumn(LEFT_OUT, F.lit(None).cast("boolean"))
    decides = decided = transform.filter.made
    if decides.in_python:
        frame, decided = _once(frame, decides)

    def swapped(cell: Cell) -> Cell:
        return replace(cell, made=decided) if cell.made is decides else cell

    others = tuple(made for made in transform.made if made is not decides)
    cells = tuple(swapped(cell) for cell in transform.cells)
    left_out = F.when(~passes(transform.filter, *decided.columns), F.lit(True))
    unfiltered = replace(transform, cells=cells, made=(decided, *others), filter=None)
    return unfiltered, frame.withColumn(LEFT_OUT, left_out)


def _once(frame: DataFrame, made: Made) -> tuple[DataFrame, Made]:
    """Put what Python makes into a column of the frame, so that it is made once."""
    frame = frame.withColumn(_DECIDED, once(made, _DECIDED))
    known = replace(
        made,
        value=lambda: F.col(_DECIDED).getField("value"),
        error=lambda: F.col(_DECIDED).getField("error"),
        reads=frozenset({_DECIDED}),
        in_python=False,
    )
    return frame, known
