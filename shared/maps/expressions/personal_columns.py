"""The functions that hide personal data, compiled to Spark columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from shared.maps.expressions import building
from shared.maps.expressions.kinds import STR
from shared.maps.expressions.personal import (
    FUNCTIONS,
    SALT,
    check_hash,
    check_mask,
    check_redact,
    check_truncate,
    redacted,
)
from shared.maps.expressions.travel import send_by_value

if TYPE_CHECKING:
    from pyspark.sql import Column

    from shared.maps.expressions.values import Call, Value

_CHECKS: dict[str, Callable[..., None]] = {
    "hash_value": check_hash,
    "mask": check_mask,
    "redact": check_redact,
    "truncate": check_truncate,
}


def _compiler(name: str) -> Callable[[Call], Value]:
    signature = inspect.signature(FUNCTIONS[name])

    def compiled(call: Call) -> Value:
        keywords = dict(call.keywords)
        if name == "hash_value" and len(call.args) < 2 and call.names is not None:  # noqa: PLR2004
            keywords.setdefault("salt", building.constant(call.names.config.get(SALT)))
        try:
            bound = signature.bind(*call.args, **keywords)
        except TypeError as error:
            raise building.Fails(f"TypeError: {name}() {error}", call.node) from None
        value, *given = bound.arguments.values()
        kind = STR.or_none() if value.kind.nullable else STR
        if not all(option.is_known for option in given):
            return building.uncompiled(kind, f"{name}() with an option that records differ in")
        bound.apply_defaults()
        options = list(bound.arguments.values())[1:]
        known = [getattr(option, "known", option) for option in options]
        try:
            _CHECKS[name](*known)
        except (TypeError, ValueError) as error:
            raise building.Fails(f"{type(error).__name__}: {error}", call.node) from None
        if value.kind.name not in ("str", "int", "bool", "none"):
            return building.uncompiled(kind, f"{name}() of a value of kind {value.kind}", value)
        made = _COLUMNS[name](*known)
        return building.computed(kind, lambda column: made(column.cast("string")), value)

    return compiled


def _hashed(salt: str, algorithm: str) -> Callable[[Column], Column]:
    def made(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.sha2(F.concat(F.lit(salt), text).cast("binary"), int(algorithm[3:]))

    return made


def _masked(keep_last: int, char: str) -> Callable[[Column], Column]:
    def made(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        length = F.length(text)
        kept = F.right(text, F.lit(keep_last)) if keep_last else F.lit("")
        some = F.concat(F.repeat(F.lit(char), length - keep_last), kept)
        return F.when(length > keep_last, some).otherwise(F.repeat(F.lit(char), length))

    return made


def _truncated(length: int) -> Callable[[Column], Column]:
    def made(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.substring(text, 1, length)

    return made


def _redacted(pattern: str | None, replacement: str) -> Callable[[Column], Column]:
    def made(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415
        from pyspark.sql.types import StringType  # noqa: PLC0415

        if pattern is None:
            return F.when(text.isNotNull(), F.lit(replacement))
        send_by_value()
        # Java's own patterns can take for ever.
        replaced = F.arrow_udf(  # type: ignore[attr-defined]
            lambda texts: redacted(texts, pattern, replacement), StringType()
        )
        made: Column = replaced(text)
        return made

    return made


_COLUMNS: dict[str, Callable[..., Callable[[Column], Column]]] = {
    "hash_value": _hashed,
    "mask": _masked,
    "redact": _redacted,
    "truncate": _truncated,
}
PERSONAL: dict[str, Callable[[Call], Value]] = {name: _compiler(name) for name in FUNCTIONS}
"""The same functions, compiled."""
