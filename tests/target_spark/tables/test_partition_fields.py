"""What `partition_by` says."""

from __future__ import annotations

import pytest
from table_plans import request

from shared.errors import SettingsError
from target_spark.tables.partitions import PartitionField, partition_fields

COLUMNS = "id INT, at TIMESTAMP, `a b` STRING, `days(at)x` INT, `bucket(2, id)` INT"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", PartitionField("id")),
        ("a b", PartitionField("a b")),
        ("days(at)", PartitionField("at", "days")),
        ("day( at )", PartitionField("at", "days")),
        ("MONTHS(at)", PartitionField("at", "months")),
        ("year(at)", PartitionField("at", "years")),
        ("hours(`at`)", PartitionField("at", "hours")),
        ("bucket(16, id)", PartitionField("id", "bucket", 16)),
        ("truncate(4,a b)", PartitionField("a b", "truncate", 4)),
        ("days(at)x", PartitionField("days(at)x")),
        ("bucket(2, id)", PartitionField("bucket(2, id)")),
    ],
)
def test_columns_and_transforms(text: str, expected: PartitionField) -> None:
    assert partition_fields(request(COLUMNS, partition_by=[text])) == (expected,)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nothing", "'nothing'"),
        ("days(nothing)", "'nothing'"),
        ("bucket(0, id)", "is not a column or a partition transform"),
        ("bucket(id)", "is not a column or a partition transform"),
        ("days(3, at)", "is not a column or a partition transform"),
        ("weeks(at)", "is not a column or a partition transform"),
    ],
)
def test_what_cannot_be(text: str, word: str) -> None:
    with pytest.raises(SettingsError, match=word) as caught:
        partition_fields(request(COLUMNS, partition_by=[text]))
    assert "stream 'orders', setting 'partition_by'" in str(caught.value)
