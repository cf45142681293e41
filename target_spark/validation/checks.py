"""Vectorised checks of one keyword on the values of one column.

A check returns the values that may be invalid. It must not miss a value that the library rejects;
a false suspicion costs only time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.types.schema_nodes import JsonText
from shared.types.type_hints import INTEGER_WIDTHS, MAX_DIGITS
from target_spark.validation.block_facts import Facts
from target_spark.validation.re2_patterns import certain_pattern

Check = Callable[[pa.Array, Facts], "pa.Array | None"]
"""Converts values to a mask of suspects, null for null values; None without any suspect."""

_EXACT_IN_DOUBLES = 2**53
_WIDE = Context(prec=100)
_LARGE = 1e300
_INTEGERS = tuple(INTEGER_WIDTHS)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)


class Unscreened(Exception):  # noqa: N818 - an answer, not an error
    """A keyword with this value has no vectorised check for this column."""


def suspect_all(array: pa.Array, _: Facts) -> pa.Array:
    """Mark every value as suspect."""
    return pc.or_kleene(array.is_valid(), array.is_null())


def is_text(data_type: T.DataType) -> bool:
    """Return whether a column holds the strings of its property unchanged."""
    return isinstance(data_type, _TEXTS) and not isinstance(data_type, JsonText)


def is_number(value: object) -> bool:
    """Return whether a value of a schema is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def size_checks(length: Callable[[pa.Array], pa.Array], least: object, most: object) -> list[Check]:
    """Return checks of a length; None means unbounded."""
    found: list[Check] = []
    if is_number(least) and least > 0:  # type: ignore[operator]
        found.append(lambda array, _: pc.less(length(array), least))
    if is_number(most):
        found.append(lambda array, _: pc.greater(length(array), most))
    return found


def pattern_checks(pattern: str) -> list[Check]:
    """Return a check by RE2 if it matches nothing that Python would not match.

    Raises:
        Unscreened: It may match more than Python.
    """
    certain = certain_pattern(pattern)
    if certain is None:
        raise Unscreened
    return [lambda array, _: pc.invert(pc.match_substring_regex(array, certain))]


def value_checks(values: Iterable[object], data_type: T.DataType, kind: pa.DataType) -> list[Check]:
    """Return a check that values are among those of `enum` or `const`.

    Raises:
        Unscreened: Columns of this type are not compared.
    """
    alike = [value for value in values if _is_comparable(value, data_type)]
    if is_text(data_type) or isinstance(data_type, T.BooleanType | T.DoubleType):
        known = pa.array(alike, kind)
    elif isinstance(data_type, _INTEGERS):
        low, high = INTEGER_WIDTHS[type(data_type)]
        whole = [int(v) for v in alike if math.isfinite(v) and v == int(v)]  # type: ignore[arg-type,call-overload]
        known = pa.array([v for v in whole if low <= v <= high], kind)
    elif isinstance(data_type, T.DecimalType):
        known = pa.array([d for d in map(_exact, alike) if _fits(d, data_type)], kind)
    else:
        raise Unscreened
    return [lambda array, _: pc.invert(pc.is_in(array, known))]


def _is_comparable(value: object, data_type: T.DataType) -> bool:
    if isinstance(data_type, T.BooleanType):
        return isinstance(value, bool)
    if is_text(data_type):
        return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value
    if not is_number(value):
        return False
    return abs(value) < _EXACT_IN_DOUBLES or isinstance(data_type, _INTEGERS)  # type: ignore[arg-type]


def _exact(value: Any) -> Decimal:
    return Decimal(repr(value))


def _fits(value: Decimal, data_type: T.DecimalType) -> bool:
    exponent = value.normalize().as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else MAX_DIGITS + 1
    whole = data_type.precision - data_type.scale
    return scale <= data_type.scale and (not value or value.adjusted() < whole)


def bound_checks(keyword: str, bound: Any, data_type: T.DataType, kind: pa.DataType) -> list[Check]:
    """Return a check of `minimum`, `maximum` or their exclusive forms.

    Raises:
        Unscreened: Columns of this type are not compared.
    """
    if abs(bound) > _LARGE:
        raise Unscreened
    lower, strict = keyword.lower().endswith("minimum"), keyword.startswith("exclusive")
    if isinstance(data_type, _INTEGERS):
        return _bound_of_integers(bound, lower, strict, data_type, kind)
    if isinstance(data_type, T.DoubleType) and abs(bound) < _EXACT_IN_DOUBLES:
        outside = {
            (True, False): pc.less,
            (True, True): pc.less_equal,
            (False, False): pc.greater,
            (False, True): pc.greater_equal,
        }[lower, strict]
        limit = pa.scalar(float(bound), kind)
        return [lambda array, _: outside(array, limit)]
    if isinstance(data_type, T.DecimalType):
        return _bound_of_decimals(bound, lower, strict, data_type, kind)
    raise Unscreened


def _bound_of_integers(
    bound: Any, lower: bool, strict: bool, data_type: T.DataType, kind: pa.DataType
) -> list[Check]:
    smallest, largest = INTEGER_WIDTHS[type(data_type)]
    if lower:
        least = math.floor(bound) + 1 if strict else math.ceil(bound)
        if least <= smallest:
            return []
        limit = pa.scalar(min(least, largest), kind)
        return [suspect_all] if least > largest else [lambda array, _: pc.less(array, limit)]
    most = math.ceil(bound) - 1 if strict else math.floor(bound)
    if most >= largest:
        return []
    limit = pa.scalar(max(most, smallest), kind)
    return [suspect_all] if most < smallest else [lambda array, _: pc.greater(array, limit)]


def _bound_of_decimals(
    bound: Any, lower: bool, strict: bool, data_type: T.DecimalType, kind: pa.DataType
) -> list[Check]:
    """Return checks of a bound; the library compares doubles, so the next double is used."""
    if isinstance(bound, int) and not data_type.scale:
        edge = Fraction(bound)  # of integers, compared as they are
    else:
        edge = Fraction(math.nextafter(float(bound), math.inf if lower else -math.inf))
        if not strict and Fraction(float(bound)) == Fraction(bound):
            edge = Fraction(bound)
        strict = False
    unit = 10**data_type.scale
    steps = edge * unit
    whole = math.ceil(steps) if lower else math.floor(steps)
    whole += (1 if lower else -1) * (strict and whole == steps)
    limit_of_type = 10**data_type.precision - 1
    if (lower and whole <= -limit_of_type) or (not lower and whole >= limit_of_type):
        return []
    if abs(whole) > limit_of_type:
        return [suspect_all]
    limit = pa.scalar(Decimal(whole).scaleb(-data_type.scale, _WIDE), kind)
    if lower:
        return [lambda array, _: pc.less(array, limit)]
    return [lambda array, _: pc.greater(array, limit)]


def multiple_checks(step: Any, data_type: T.DataType) -> list[Check]:
    """Return a check of `multipleOf`.

    Raises:
        Unscreened: It takes more than integers, or digits that a column has anyway.
    """
    unit = Fraction(_exact(step))
    if isinstance(data_type, T.DecimalType):
        own = Fraction(1, 10**data_type.scale)
        if (own / unit).denominator == 1:
            return []
        raise Unscreened
    if not isinstance(data_type, _INTEGERS):
        raise Unscreened
    if (1 / unit).denominator == 1:
        return []
    if unit.denominator != 1 or unit > INTEGER_WIDTHS[type(data_type)][1]:
        raise Unscreened
    whole = int(unit)
    return [lambda array, _: pc.not_equal(pc.multiply(pc.divide(array, whole), whole), array)]
