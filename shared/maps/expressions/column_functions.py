"""The functions that rules make columns with: those of Spark, or those of `arrow_columns`.

Rules call them by the names and with the arguments of `pyspark.sql.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as spark_functions

_T = TypeVar("_T")
_current: ContextVar[Any] = ContextVar("functions", default=spark_functions)


class Unsupported(Exception):  # noqa: N818
    """Only Spark has a function, or only for such operands."""


class _Functions:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*operands: Any, **options: Any) -> Any:
            function = getattr(_current.get(), name, None)
            if function is None:
                raise Unsupported(name)
            return function(*operands, **options)

        return call


if TYPE_CHECKING:
    F = spark_functions
else:
    F = _Functions()


@contextmanager
def using(functions: Any) -> Iterator[None]:
    """Make columns with the functions of an object or a module instead of Spark's."""
    token = _current.set(functions)
    try:
        yield
    finally:
        _current.reset(token)


def over_arrow() -> Any:
    """Return the functions that columns are made with instead of Spark's; None if with those."""
    functions = _current.get()
    return None if functions is spark_functions else functions


def once(make: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that makes something once for each set of functions."""
    made: dict[Any, _T] = {}

    @wraps(make)
    def kept() -> _T:
        functions = _current.get()
        if functions not in made:
            made[functions] = make()
        return made[functions]

    return kept
