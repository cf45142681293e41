"""The order of two rows of a key, by columns: SQL of the comparison. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def not_older(pairs: Sequence[tuple[str, str]], equal: str) -> str:
    """Return the condition that a given row is not older than the stored one; null is the oldest.

    Args:
        pairs: For each column the given and the stored value; the first that differ decide.
        equal: Operator that is true for two nulls.
    """
    (new, old), *rest = pairs
    if not rest:
        return f"({new} >= {old} OR {old} IS NULL)"
    newer = f"{new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL)"
    return f"({newer} OR ({new} {equal} {old} AND {not_older(rest, equal)}))"
