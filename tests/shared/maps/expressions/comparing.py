"""Compares what this project makes of expressions with what another mapper makes of them."""

from __future__ import annotations

import ast
import copy
import datetime
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from case_matrix import with_slow
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql.types import StructType
from sdk_expressions import CONFIG, STREAM

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import struct_to_arrow
from shared.maps.arrow_maps import arrow_map, has_kernels
from shared.maps.column_makers import Maker
from shared.maps.expressions.arrow_columns import Rows, column, view
from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import ERROR, parse
from shared.maps.expressions.values import Names
from shared.maps.transform import Cell, Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Case = TypeVar("_Case")
Oracle = Callable[[str, Sequence[dict[str, Any]]], list[Any]]
"""Returns what an expression is for each record."""

PER_JOB = 20
SHARES = 3
EACH_SHARE = with_slow("share", [0], range(1, SHARES))
"""Each expression takes Spark a fraction of a second: `.ci/run` has a share of them."""
WHERE = Where(setting="stream_maps.orders.p")


def share_of(cases: Sequence[_Case], share: int) -> Sequence[_Case]:
    """Return the cases of a share."""
    return cases[share::SHARES]


def generated(examples: int) -> Any:
    """Return settings of hypothesis for tests whose examples are Spark jobs of many records."""
    return settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Raised:
    """Stands for a value that could not be computed."""

    def __init__(self, text: object) -> None:
        self.text = str(text)

    def __repr__(self) -> str:
        return f"Raised({self.text!r})"


def by_sdk(expression: str, all_records: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the result of the SDK's mapper for each record."""
    from singer_sdk.mapper import PluginMapper

    own = "name" if "self" in expression else "p"
    config: Any = {
        "stream_maps": {STREAM: {own: expression, "__else__": None}},
        "stream_map_config": CONFIG,
    }
    mapper = PluginMapper(config, logging.getLogger("sdk"))
    mapper.register_raw_stream_schema(STREAM, {"properties": {}}, [])
    (stream_map,) = mapper.stream_maps[STREAM]
    return [_sdk_result(stream_map, copy.deepcopy(record), own) for record in all_records]


def _sdk_result(stream_map: Any, record: dict[str, Any], own: str) -> Any:
    try:
        created = stream_map.transform(record)
    except Exception as error:  # an expression may raise any error
        return Raised(repr(error))
    return as_json(created[own])


def _md5(string: str) -> str:
    return hashlib.md5(string.encode()).hexdigest()


def _sha256(string: str) -> str:
    return hashlib.sha256(string.encode()).hexdigest()


OF_PYTHON = {"datetime": datetime, "json": json, "md5": _md5, "sha256": _sha256}


def by_python(expression: str, all_records: Sequence[dict[str, Any]]) -> list[Any]:
    """Return Python's own result for each record."""
    code = compile(expression, "expression", "eval")
    actual = []
    for record in all_records:
        try:
            actual.append(as_json(eval(code, {**OF_PYTHON, **record})))
        except Exception as error:
            actual.append(Raised(repr(error)))
    return actual


def as_json(value: Any) -> Any:
    """Return the value as a RECORD message has it."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, (datetime.date, datetime.timedelta)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def by_spark(
    frame: DataFrame, expressions: Sequence[str]
) -> Iterator[tuple[str, bool, list[Any] | SettingsError]]:
    """Yield each expression, whether Spark computes it, and our result for each record."""
    names = Names(frame.schema, config=CONFIG, stream=STREAM, original=STREAM, own="name")
    for start in range(0, len(expressions), PER_JOB):
        chunk = expressions[start : start + PER_JOB]
        plans = {}
        for text in chunk:
            try:
                plans[text] = plan(parse(text, WHERE), names, WHERE)
            except SettingsError as error:
                yield text, True, error
        columns, decoders = [], []
        for at, planned in enumerate(plans.values()):
            value, decode = _shown(planned)
            columns.append(value.alias(f"v{at}"))
            columns.append(_error(planned).alias(f"e{at}"))
            decoders.append(decode)
        table = frame.select(*columns).toArrow().to_pydict() if columns else {}
        for at, (text, planned) in enumerate(plans.items()):
            pairs = zip(table[f"v{at}"], table[f"e{at}"], strict=True)
            decode = decoders[at]
            actual = [Raised(said) if said is not None else decode(got) for got, said in pairs]
            yield text, not planned.in_python, actual


def by_evaluation(
    struct: StructType, expressions: Sequence[str], all_records: Sequence[dict[str, Any]]
) -> dict[str, list[Any]]:
    """Return our results without Spark, of the expressions whose results go into a column."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names = Names(struct, config=CONFIG, stream=STREAM, original=STREAM, own="name")
    table = pa.Table.from_pylist([dict(record) for record in all_records], to_arrow_schema(struct))
    maker, actual = Maker(names), {}
    for text in expressions:
        try:
            result = maker.make(parse(text, WHERE), "name", WHERE)
        except SettingsError:
            continue
        cell = Cell("p", result.data_type, path=result.path, computed=result.computed)
        created = () if result.computed is None else (result.computed,)
        whole = arrow_map(Transform((cell,), created), struct)
        if whole is not None:
            rows = whole.apply(table)
            pairs = zip(rows["p"].to_pylist(), rows[ERROR].to_pylist(), strict=True)
            actual[text] = [as_json(got) if said is None else Raised(said) for got, said in pairs]
    return actual


def by_kernels(
    names: Names, expressions: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> dict[str, list[tuple[Any, str | None]]]:
    """Return the values and errors of the expressions that are computed over Arrow."""
    schema = struct_to_arrow(StructType([one for one in names.struct if view(one.dataType)]))
    table = pa.Table.from_pylist([dict(row) for row in rows], schema)
    actual = {}
    for text in expressions:
        try:
            planned = plan(parse(text, WHERE), names, WHERE)
        except SettingsError:
            continue
        copied = planned.source or not planned.reads <= {*schema.names}
        pair = None if copied else planned.over_arrow()
        if pair is None or not has_kernels(pair, names.struct):
            continue
        arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
        batch = Rows(arrays, table.num_rows)
        values, errors = (batch.array(column(None) if one is None else one) for one in pair)
        actual[text] = list(zip(values.to_pylist(), errors.to_pylist(), strict=True))
    return actual


def _shown(planned: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import VariantType

    if isinstance(planned.data_type, VariantType):
        text = F.to_json(planned.value())
        return text, lambda got: None if got is None else json.loads(got)
    return planned.value(), as_json


def _error(planned: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    error = planned.error()
    return F.lit(None).cast("string") if error is None else error


def same(expected: Any, actual: Any) -> bool:
    """Return whether both are errors, or equal in type and value."""
    if isinstance(expected, Raised) or isinstance(actual, Raised):
        return isinstance(actual, Raised) and isinstance(expected, Raised)
    if isinstance(expected, float) and isinstance(actual, float):
        both_nan = math.isnan(expected) and math.isnan(actual)
        signs = math.copysign(1, expected) == math.copysign(1, actual)
        return both_nan or (expected == actual and signs)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            same(value, actual[key]) for key, value in expected.items()
        )
    return type(expected) is type(actual) and expected == actual


def too_large(actual: Any) -> bool:
    """Return whether it is the intended error: Python would go on with more bits."""
    return isinstance(actual, Raised) and "64 bits" in actual.text


def large_within(text: str, record: dict[str, Any]) -> bool:
    """Return whether a part of the expression is an integer of more than 64 bits."""
    tree = ast.parse(text, mode="eval")
    return any(_is_large(node, record) for node in ast.walk(tree) if isinstance(node, ast.expr))


def _is_large(node: ast.expr, record: dict[str, Any]) -> bool:
    try:
        actual = eval(compile(ast.Expression(node), "part", "eval"), dict(record))
    except Exception:
        return False
    return isinstance(actual, int) and not -(2**63) <= actual < 2**63


def differences(
    frame: DataFrame,
    expressions: Sequence[str],
    all_records: Sequence[dict[str, Any]],
    oracle: Oracle = by_sdk,
) -> list[str]:
    """Return a line for each expression that differs, with the first record that shows it."""
    actual, due = [], {text: oracle(text, all_records) for text in expressions}
    for text, compiled, results in by_spark(frame, expressions):
        expected = due[text]
        how = "compiled" if compiled else "evaluated"
        if isinstance(results, SettingsError):
            values = [value for value in expected if not isinstance(value, Raised)]
            if values:
                actual.append(f"{text}: refused ({results}), but gives {values[0]!r}")
            continue
        actual += wrong_results(f"{text} ({how})", text, expected, results, all_records)
    names = Names(frame.schema, config=CONFIG, stream=STREAM, original=STREAM, own="name")
    for text, results in by_kernels(names, expressions, all_records).items():
        ours = [Raised(said) if said is not None else as_json(got) for got, said in results]
        actual += wrong_results(f"{text} (over Arrow)", text, due[text], ours, all_records)
    return actual


def differences_of_share(
    spark: SparkSession,
    ddl: str,
    expressions: Sequence[str],
    all_records: Sequence[dict[str, Any]],
    share: int,
    oracle: Oracle = by_python,
) -> list[str]:
    """Return such lines of a share of the expressions, over one frame."""
    frame = framed(spark, all_records, ddl).cache()
    actual = differences(frame, share_of(expressions, share), all_records, oracle)
    frame.unpersist()
    return actual


def differences_without_spark(
    struct: StructType,
    expressions: Sequence[str],
    all_records: Sequence[dict[str, Any]],
    oracle: Oracle = by_python,
) -> list[str]:
    """Return such lines of the expressions whose results go into a column."""
    return [
        line
        for text, results in by_evaluation(struct, expressions, all_records).items()
        for line in wrong_results(text, text, oracle(text, all_records), results, all_records)
    ]


def wrong_results(
    label: str,
    text: str,
    expected: Sequence[Any],
    results: Sequence[Any],
    all_records: Sequence[dict[str, Any]],
) -> list[str]:
    """Return a line with the first record for which an expression differs, if there is one."""
    wrong = [
        (left, right, record)
        for left, right, record in zip(expected, results, all_records, strict=True)
        if not same(left, right) and not (too_large(right) and large_within(text, record))
    ]
    if not wrong:
        return []
    left, right, record = wrong[0]
    used = {name: record[name] for name in _names(text) if name in record}
    return [f"{label}: {len(wrong)} records: {left!r} expected, {right!r} found, of {used}"]


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} | {"name"}


def framed(spark: SparkSession, all_records: Sequence[dict[str, Any]], ddl: str) -> DataFrame:
    """Return the records as a frame."""
    schema: StructType = spark.createDataFrame([], ddl).schema
    return spark.createDataFrame([dict(record) for record in all_records], schema).coalesce(1)
