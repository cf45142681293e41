"""Names of the files that a stream has all rows of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tap_spark.plan.replication import source_name
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import StreamConfig


def plan(path: Any = "orders.csv", **more: Any) -> StreamPlan:
    config = StreamConfig(name="orders", format="csv", path=path)
    return replace(StreamPlan("orders", "orders", config, {}, ()), **{"version": 5, **more})


def test_one_name_for_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    name = source_name(plan(), "here")
    assert name is not None
    assert "orders" not in name
    assert source_name(plan(str(tmp_path / "x" / ".." / "orders.csv"), version=6), "here") == name
    several = source_name(plan(("a.csv", "b.csv")), "here")
    assert several == source_name(plan(("b.csv", "a.csv")), "here")
    bucket = source_name(plan("s3://bucket/orders.csv"), "here")
    assert bucket == source_name(plan("s3://bucket/orders.csv"), "there")
    others = source_name(plan("b.csv"), "here"), source_name(plan(), "there")
    assert len({name, several, bucket, *others}) == 5


@pytest.mark.parametrize(
    "more", [{"version": None}, {"path": None}, {"start_value": 1}, {"end_value": 1}]
)
def test_no_name_if_rows_may_be_missing(more: dict[str, Any]) -> None:
    assert source_name(plan(**more), "here") is None
