"""Which options of Spark's reader the exact reader of JSON follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T  # noqa: N812

_FOLLOWED = frozenset(
    (
        *("multiline", "encoding", "charset", "basepath", "pathglobfilter", "recursivefilelookup"),
        *("modifiedafter", "modifiedbefore", "primitivesasstring", "prefersdecimal"),
        *("dropfieldifallnull", "samplingratio", "columnnameofcorruptrecord", "useunsaferow"),
    )
)
_OF_TIMES = frozenset(
    (
        *("dateformat", "timestampformat", "timestampntzformat", "locale", "timezone"),
        "enabledatetimeparsingfallback",
    )
)
"""Options for columns of dates and times alone."""
_VALUES: Mapping[str, str] = {
    "mode": "failfast",
    "linesep": "\n",
    **dict.fromkeys(
        (
            *("infertimestamp", "allowcomments", "allowunquotedfieldnames", "allowsinglequotes"),
            *("allownumericleadingzeros", "allowbackslashescapinganycharacter"),
            *("allowunquotedcontrolchars", "ignorecorruptfiles", "ignoremissingfiles"),
            "ignoreinvalidpartitionpaths",
        ),
        "false",
    ),
    "allownonnumericnumbers": "true",
}
"""Options that ask for what the exact reader does."""


def lax_options(options: Mapping[str, object], struct: T.StructType | None) -> list[str]:
    """Return the options that only Spark's reader follows.

    Args:
        options: The options of a stream.
        struct: The columns; None if they are inferred, so that none is a date or time.
    """
    with_times = struct is not None and any(_has_time(field.dataType) for field in struct)
    return [name for name, value in options.items() if _is_lax(name.lower(), value, with_times)]


def _is_lax(name: str, value: object, with_times: bool) -> bool:
    if name in _FOLLOWED or "." in name:
        return False
    if name in _OF_TIMES:
        return with_times
    return str(value).lower() != _VALUES.get(name)


def _has_time(dtype: T.DataType) -> bool:
    inner: Iterable[T.DataType] = ()
    if isinstance(dtype, T.StructType):
        inner = (field.dataType for field in dtype)
    elif isinstance(dtype, T.ArrayType):
        inner = (dtype.elementType,)
    elif isinstance(dtype, T.MapType):
        inner = (dtype.valueType,)
    return isinstance(dtype, T.DatetimeType) or any(map(_has_time, inner))
