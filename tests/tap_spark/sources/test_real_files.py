"""Every file of the shared data, discovered, read both ways and compared value by value."""

from __future__ import annotations

import csv
import json
from datetime import date
from decimal import Decimal

import pytest
from case_matrix import matrix
from tap_runs import rows, stream, types

from shared.errors import SourceError

pytestmark = [pytest.mark.spark, pytest.mark.costly]

CSV = [
    "birdstrikes",
    "jaffle_raw_customers",
    "jaffle_raw_orders",
    "jaffle_raw_payments",
    "zipcodes",
]
JSON = {"movies": None, "flights-20k": None, "earthquakes": "features"}


def as_text(value):
    """Return a typed value as the file's own text, exactly."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value.isoformat() if isinstance(value, date) else str(value)


@pytest.mark.parametrize(("name", "method"), matrix(CSV, ["FULL_TABLE", "INCREMENTAL"]))
def test_csv(spark, data_dir, name, method):
    path = data_dir / f"{name}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        expected = list(csv.DictReader(file))
    config = stream("csv", str(path), replication_method=method, read_unterminated_line=True)
    actual = rows(spark, config)
    assert [{k: as_text(v) for k, v in row.items()} for row in actual] == [
        {
            k: as_text(float(v)) if k in ("latitude", "longitude") and v else v
            for k, v in row.items()
        }
        for row in expected
    ]


def test_a_document_of_lines_asks_for_its_records_path(spark, data_dir):
    config = stream("json", str(data_dir / "earthquakes.json"))
    with pytest.raises(SourceError, match=r"not a JSON object; of one document .*`records_path`"):
        types(spark, config)


def test_csv_types(spark, data_dir):
    zipcodes = types(spark, stream("csv", str(data_dir / "zipcodes.csv")))
    assert (zipcodes["zip_code"], zipcodes["latitude"]) == ("string", "double")
    birds = types(spark, stream("csv", str(data_dir / "birdstrikes.csv")))
    assert (birds["Flight Date"], birds["Cost Total $"]) == ("date", "long")
    assert birds["Effect Amount of damage"] == "string"
    orders = types(spark, stream("csv", str(data_dir / "jaffle_raw_orders.csv")))
    assert orders["order_date"] == "date"


def without_nulls(value):
    """Return JSON for a comparison: absent and null are equal, numbers are values."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return Decimal(repr(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("name", JSON)
def test_json(spark, data_dir, name):
    path = data_dir / f"{name}.json"
    expected = json.loads(path.read_text(encoding="utf-8"))
    expected = expected[JSON[name]] if JSON[name] else expected
    config = stream("json", str(path), records_path=JSON[name], replication_method="INCREMENTAL")
    actual = rows(spark, config)
    kinds = types(spark, config)
    for row in expected:
        for key, value in row.items():
            if kinds[key] == "string" and value is not None:
                row[key] = str(value)
    assert without_nulls(actual) == without_nulls(expected)
