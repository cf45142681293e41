"""Division as Python does it: rounded once, floored, with the divisor's sign.

All of these give null for a divisor of zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXACT = 2**53
_DIGITS = 18
_GROUPS = 4


def true_quotient(a: Column, b: Column) -> Column:
    """Give a / b of two bigint as the nearest double.

    Doubles do it where both are exact in one; else the quotient's digits do, by long division.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    small = a.between(-_EXACT, _EXACT) & b.between(-_EXACT, _EXACT)
    divided = F.try_divide(a.cast("double"), b.cast("double"))
    by_one = F.when(b == 1, a.cast("double")).when(b == -1, F.negate(a.cast("double")))
    return F.when(small, divided).otherwise(F.coalesce(by_one, _long_division(a, b)))


def _long_division(a: Column, b: Column) -> Column:
    """Give the quotient by its decimal digits, and one more that tells whether more follow.

    A double, and what lies half way between two, has at most 72 of them behind the point here.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    wide = "decimal(20,0)"
    # 1 is no divisor here: the quotient would not always be a bigint.
    divisor = F.nullif(F.nullif(F.abs(b.cast(wide)), F.lit(0).cast(wide)), F.lit(1).cast(wide))
    dividend = F.abs(a.cast(wide))
    parts = [F.when((a < 0) != (b < 0), "-").otherwise(""), _digits(dividend, divisor), F.lit(".")]
    rest = dividend % divisor
    for _ in range(_GROUPS):
        shifted = rest.cast(wide) * F.lit(10**_DIGITS).cast("decimal(19,0)")
        parts.append(F.lpad(_digits(shifted, divisor), _DIGITS, "0"))
        rest = shifted % divisor
    parts.append(F.when(rest != 0, "1").otherwise("0"))
    return F.concat(*parts).cast("double")


def _digits(a: Column, b: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.call_function("div", a, b).cast("string")


def remainder(a: Column, b: Column) -> Column:
    """Give a % b of two bigint."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rest = a % F.nullif(b, F.lit(0).cast("bigint"))
    return F.when(_off(rest, b), rest + b).otherwise(rest)


def floor_quotient(a: Column, b: Column) -> Column:
    """Give a // b of two bigint; null where it has more bits."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    lowest = F.lit(-(2**63)).cast("bigint")
    outside = (b == 0) | ((a == lowest) & (b == -1))
    divisor = F.when(outside, None).otherwise(b)
    quotient = F.call_function("div", a, divisor)
    return F.when(_off(a % divisor, b), quotient - 1).otherwise(quotient)


def _off(rest: Column, b: Column) -> Column:
    """Whether a remainder has the sign of the dividend where Python's has the divisor's."""
    return (rest != 0) & ((rest < 0) != (b < 0))


def modulo(a: Column, b: Column) -> Column:
    """Give a % b of two double."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rest = a % F.nullif(b, F.lit(0.0))
    # Not one of the literals 0.0 and -0.0: to Spark's optimizer they are the same.
    zero = F.signum(b) * 0.0
    return F.when(rest == 0, zero).when(_off(rest, b), rest + b).otherwise(rest)


def floored(a: Column, b: Column) -> Column:
    """Give a // b of two double."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    divisor = F.nullif(b, F.lit(0.0))
    rest = a % divisor
    whole = F.try_divide(a - rest, b)
    whole = F.when(_off(rest, b), whole - 1).otherwise(whole)
    down = F.when(F.abs(whole) < float(_EXACT), F.floor(whole).cast("double")).otherwise(whole)
    down = F.when(whole - down > 0.5, down + 1).otherwise(down)  # noqa: PLR2004
    return F.when(whole == 0, F.try_divide(a, b) * 0.0).otherwise(down)
