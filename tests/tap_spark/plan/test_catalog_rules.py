"""Rules of the command line on top of a catalog."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shared.errors import SettingsError
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import build_entry, selected_schema, stream_selected
from tap_spark.plan.replication import plan_streams
from tap_spark.plan.run_options import CatalogRules, RunOptions, chosen_settings, ruled_catalog
from tap_spark.state.stream_plans import Method
from tap_spark.stream_config import StreamConfig

ADDRESS = StructType([StructField("city", StringType()), StructField("ssn", StringType())])
STRUCT = StructType(
    [
        StructField("id", LongType()),
        StructField("line", LongType()),
        StructField("updated_at", TimestampType()),
        StructField("ssn", StringType()),
        StructField("places", ArrayType(ADDRESS)),
    ]
)
EVERYTHING = ["id", "line", "updated_at", "ssn", "places", "places.city", "places.ssn"]


def table(name: str, **supplied: Any) -> dict[str, Any]:
    entry = build_entry(f"public-{name}", STRUCT, **supplied)
    entry["metadata"][0]["metadata"] |= {"schema-name": "public", "table-name": name}
    return entry


CATALOG = {
    "streams": [
        table("orders", key_properties=["id"]),
        table("order_lines"),
        build_entry("log.v1", STRUCT),
    ]
}


def ruled(*select: str, **more: Any) -> dict[str, list[str]]:
    """Return the selected columns of each selected stream."""
    before = deepcopy(CATALOG)
    actual = ruled_catalog(CATALOG, CatalogRules(select, **more))
    assert before == CATALOG
    entries = (entry for entry in actual["streams"] if stream_selected(entry))
    return {entry["stream"]: list(paths(selected_schema(entry))) for entry in entries}


def paths(schema: Any, above: str = "") -> Any:
    for name, child in schema["properties"].items():
        yield above + name
        inner = child.get("items", child)
        if "properties" in inner:
            yield from paths(inner, f"{above}{name}.")


def without(*names: str) -> list[str]:
    return [name for name in EVERYTHING if name not in names]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["public.orders.*"], {"public-orders": EVERYTHING}),
        (["public-orders"], {"public-orders": EVERYTHING}),
        (["public.order*", "log.v1"],
         {"public-orders": EVERYTHING, "public-order_lines": EVERYTHING, "log.v1": EVERYTHING}),
        (["public.orders.*", "!*.ssn"], {"public-orders": without("ssn", "places.ssn")}),
        (["!*.ssn", "!*lines"],
         {"public-orders": without("ssn", "places.ssn"), "log.v1": without("ssn", "places.ssn")}),
        (["*.line"], {"public-orders": ["id", "line"], "public-order_lines": ["line"],
                      "log.v1": ["line"]}),
        (["log.v1.places.city"], {"log.v1": ["places", "places.city"]}),
        (["log.v1.places", "!log.v1.places.ssn"], {"log.v1": ["places", "places.city"]}),
        (["!public.*", "log.v1.id"], {"log.v1": ["id"]}),
        (["!public-orders.*"], {"public-order_lines": EVERYTHING, "log.v1": EVERYTHING}),
    ],
)  # fmt: skip
def test_select(select: list[str], expected: dict[str, list[str]]) -> None:
    assert ruled(*select) == expected


def test_rules_win_over_a_catalog() -> None:
    catalog = deepcopy(CATALOG)
    orders, lines, _ = catalog["streams"]
    orders["metadata"][0]["metadata"]["selected"] = False
    lines["metadata"] = [{"breadcrumb": [], "metadata": {"selected": True}}]
    catalog["streams"][2].pop("metadata")
    rules = CatalogRules(("public.orders.ssn", "log*"))
    actual = ruled_catalog(catalog, rules)["streams"]
    assert [stream_selected(entry) for entry in actual] == [True, False, True]
    assert list(paths(selected_schema(actual[0]))) == ["id", "ssn"]
    assert list(paths(selected_schema(actual[2]))) == EVERYTHING


@pytest.mark.parametrize("without", [{}, {"metadata": None}, {"metadata": []}])
def test_a_catalog_without_metadata_stays_selected(without: dict[str, Any]) -> None:
    rows = table("orders", key_properties=["id"])
    del rows["metadata"]
    for rules in (
        CatalogRules(("!*.ssn",)),
        CatalogRules((), ("*=id",)),
        CatalogRules((), (), ("*=updated_at",)),
    ):
        chosen, off = ruled_catalog(
            {"streams": [rows | without, rows | without | {"selected": False, "stream": "x"}]},
            rules,
        )["streams"]
        assert stream_selected(chosen)
        assert not stream_selected(off)
    keyless = table("orders")
    keyless["metadata"][0]["metadata"]["table-key-properties"] = None
    assert ruled_catalog({"streams": [keyless]}, CatalogRules((), ("*=id",)))


def test_keys() -> None:
    rules = CatalogRules((), ("public.orders=line, ssn", "log*=id"), ("*=updated_at",))
    actual = ruled_catalog(CATALOG, rules)
    config = TapConfig(streams=tuple(StreamConfig(e["stream"], "csv") for e in actual["streams"]))
    plans = plan_streams(config, actual, {}, 0)
    assert [plan.key_properties for plan in plans] == [("line", "ssn"), (), ("id",)]
    assert {(plan.method, plan.replication_key) for plan in plans} == {
        (Method.INCREMENTAL, "updated_at")
    }
    marks = {tuple(m["breadcrumb"]): m["metadata"] for m in actual["streams"][0]["metadata"]}
    kinds = {name: marks["properties", name]["inclusion"] for name in STRUCT.names}
    assert kinds == {
        "id": "available",
        "line": "automatic",
        "updated_at": "automatic",
        "ssn": "automatic",
        "places": "available",
    }


def test_a_text_that_is_not_offered_as_key() -> None:
    entry = table("codes")
    entry["metadata"][0]["metadata"]["valid-replication-keys"] = ["id"]
    [ruled] = ruled_catalog({"streams": [entry]}, CatalogRules((), (), ("*=ssn",)))["streams"]
    assert ruled["replication_key"] == "ssn"
    with pytest.raises(SettingsError, match="'places' is not a number"):
        ruled_catalog({"streams": [entry]}, CatalogRules((), (), ("*=places",)))


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        (CatalogRules(("publik.orders",)), r"--select 'publik.orders' matches nothing "
         r"\(near: public.orders, "),
        (CatalogRules(("!*.snn",)), r"--select '\*.snn' matches nothing \(near: .*"),
        (CatalogRules(("public.orders.adress",)), r"matches nothing \(near: .*public.orders.*"),
        (CatalogRules((), ("order=id",)), r"--key 'order' matches nothing \(near: .*orders"),
        (CatalogRules((), ("log.v1=idd",)), r"stream 'log.v1': --key: 'idd' is not a column "
         r"\(near: id\)"),
        (CatalogRules((), ("log.v1",)), r"--key 'log.v1' is not STREAM=COLUMN,..."),
        (CatalogRules((), ("log.v1=id,",)), r"--key 'log.v1=id,' is not STREAM=COLUMN,..."),
        (CatalogRules((), (), ("log.v1=id,ssn",)), "--replication-key .* is not STREAM=COLUMN"),
        (CatalogRules((), (), ("log.v1=places",)), "'places' is not a number, date, timestamp or "
         r"string \(choose one of id, line, updated_at, ssn\)"),
        (CatalogRules(("!*.id",)), "stream 'public-orders': --select leaves out 'id', which is "
         "part of a key"),
        (CatalogRules(("!*.ssn",), ("*=ssn",)), "leaves out 'ssn', which is part of a key"),
    ],
)  # fmt: skip
def test_rules_that_are_wrong(rules: CatalogRules, error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        ruled_catalog(CATALOG, rules)


def test_a_stream_that_could_not_be_described_may_be_meant() -> None:
    rules = CatalogRules(("lost.*", "log.v1"), ("lost=id",))
    assert ruled_catalog(CATALOG, rules, ["lost"])
    with pytest.raises(SettingsError, match="'lost"):
        ruled_catalog(CATALOG, rules, ["other"])


def test_only_streams_that_may_be_selected_are_looked_at() -> None:
    config = TapConfig(streams=tuple(StreamConfig(name, "csv") for name in ("a", "a.b", "c", "")))

    def left(*select: str) -> list[str]:
        options = RunOptions(rules=CatalogRules(select))
        return [stream.name for stream in chosen_settings(config, options).streams]

    assert left("a.b") == left("a.b*") == left("a.b", "!c") == ["a", "a.b"]
    assert left("!a") == left("*.x") == left("[ac]") == ["a", "a.b", "c", ""]
    assert left("c.x.y") == left("c*") == ["c"]
    with pytest.raises(SettingsError, match=r"--select 'd.x' matches nothing \(near: a, a.b, c, "):
        left("c", "d.x")
