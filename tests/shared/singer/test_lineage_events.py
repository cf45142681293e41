"""OpenLineage events: the classes of OpenLineage's own package make the same JSON."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from openlineage.client import event_v2 as spec
from openlineage.client.serde import Serde

from shared.singer.datasets import Dataset
from shared.singer.lineage import (
    PRODUCER,
    RUNNING_SECONDS,
    DatasetUse,
    LineageJob,
    LineageObserver,
    last_kind,
    parent_run,
)
from shared.singer.run_summary import RunSummary

RUN, PARENT, ROOT = (str(UUID(int=number)) for number in (1, 2, 3))
AT = "2026-01-02T03:04:05.678Z"
JOB = LineageJob(
    "target-spark", "prod", "orders.load",
    parent_run(f"airflow/shop.load/{PARENT}"), parent_run(f"airflow/shop/{ROOT}"),
)  # fmt: skip
FACTS = {
    "run_id": RUN,
    "streams": {"orders": {"received": 5, "bytes": 70, "tables": {"orders": {"committed": 4}}}},
}
FIELDS = (("id", "bigint"), ("at", "timestamp"))
USES = [
    DatasetUse("orders", Dataset("orders", None, (("id", "integer"),))),
    DatasetUse("orders", Dataset("lake/orders", "s3://bucket", FIELDS, "orders"), is_output=True),
]
MODULES = {
    "errorMessage": "error_message_run", "parent": "parent_run", "schema": "schema_dataset",
    "jobType": "job_type_job", "inputStatistics": "input_statistics_input_dataset",
    "outputStatistics": "output_statistics_output_dataset",
}  # fmt: skip


def facets(actual: dict[str, Any]) -> dict[str, Any]:
    return {name: facet(name, one) for name, one in actual.items()}


def facet(name: str, content: dict[str, Any]) -> Any:
    """Make the object of OpenLineage's package: an unknown or missing key is a TypeError."""
    module = import_module(f"openlineage.client.generated.{MODULES[name]}")
    kind = getattr(module, content["_schemaURL"].rpartition("/")[2])
    own = {key: value for key, value in content.items() if not key.startswith("_")}
    if name == "schema":
        own["fields"] = [module.SchemaDatasetFacetFields(**one) for one in own["fields"]]
    if name == "parent":
        own = {"run": module.Run(**own["run"]), "job": module.Job(**own["job"])}
        if "root" in content:
            root = content["root"]
            own["root"] = module.Root(module.RootRun(**root["run"]), module.RootJob(**root["job"]))
    return kind(**own, producer=PRODUCER)


def dataset(kind: Any, content: dict[str, Any]) -> Any:
    parts = {key: facets(value) for key, value in content.items() if key.endswith("acets")}
    return kind(namespace=content["namespace"], name=content["name"], **parts)


def by_the_package(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event as OpenLineage's package writes it."""
    created = spec.RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        eventType=spec.RunState[event["eventType"]],
        run=spec.Run(event["run"]["runId"], facets(event["run"]["facets"])),
        job=spec.Job(event["job"]["namespace"], event["job"]["name"],
                     facets(event["job"]["facets"])),
        inputs=[dataset(spec.InputDataset, one) for one in event["inputs"]],
        outputs=[dataset(spec.OutputDataset, one) for one in event["outputs"]],
    )  # fmt: skip
    return dict(Serde.to_dict(created))


def without_empty(value: Any) -> Any:
    """Leave out what may be missing, and versions, which each release of the package raises."""
    if isinstance(value, str):
        return re.sub(r"/\d+-\d+-\d+/", "/", value)
    if isinstance(value, dict):
        actual = {key: without_empty(one) for key, one in value.items()}
        return {key: one for key, one in actual.items() if one not in ({}, [], None)}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"])
def test_events_are_those_of_the_specification(kind: str) -> None:
    facts = {**FACTS, "error": "bad" if kind == "FAIL" else None}
    event = JOB.event(kind, AT, facts, () if kind == "START" else USES)
    assert without_empty(event) == without_empty(by_the_package(event))


def test_content() -> None:
    event = JOB.event("FAIL", AT, {**FACTS, "error": "stream 's': bad"}, USES)
    assert event["run"]["runId"] == RUN
    parent = event["run"]["facets"]["parent"]
    assert parent["job"] == {"namespace": "airflow", "name": "shop.load"}
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (PARENT, ROOT)
    assert event["run"]["facets"]["errorMessage"]["message"] == "stream 's': bad"
    assert (event["job"]["namespace"], event["job"]["name"]) == ("prod", "orders.load")
    [came], [went] = event["inputs"], event["outputs"]
    assert (came["namespace"], came["name"]) == ("prod", "shop.load.orders")
    assert came["inputFacets"]["inputStatistics"]["rowCount"] == 5
    assert (went["namespace"], went["name"]) == ("s3://bucket", "lake/orders")
    statistics = went["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (4, 70)
    assert went["facets"]["schema"]["fields"][1] == {"name": "at", "type": "timestamp"}


def test_the_end_of_a_run() -> None:
    ends = [(None, 0), (None, 99), ("bad", 5)]
    ends += [("interrupted", 130), ("terminated", 143), ("stopped by SIGHUP", 129)]
    kinds = [last_kind({"error": error, "exit_code": code}) for error, code in ends]
    assert kinds == ["COMPLETE", "COMPLETE", "FAIL", "ABORT", "ABORT", "ABORT"]


@pytest.mark.parametrize("text", ["x", "a/b", f"a/{PARENT}", "a/b/c", "//"])
def test_a_parent_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"namespace/job/run id|UUID"):
        parent_run(text)


class Sent(list[dict[str, Any]]):
    """Stands for the receiver at the other end of a sender."""

    send = list.append

    def flush(self, seconds: float) -> None:
        assert seconds <= 2


def test_when_events_are_sent() -> None:
    now, sent, summary = [0.0], Sent(), RunSummary("tap-spark")
    observer = LineageObserver(JOB, sent, summary.as_dict, lambda: now[0])  # type: ignore[arg-type]
    summary.observe([observer])
    summary.uses("s", lambda: [Dataset("s")], is_output=True)
    for second in range(int(RUNNING_SECONDS) * 2):
        now[0] = float(second)
        summary.add("s", sent=1)
    summary.end(summary.as_dict(None))
    assert [event["eventType"] for event in sent] == ["START", "RUNNING", "COMPLETE"]
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"]
            for event in sent[1:]]  # fmt: skip
    assert rows == [RUNNING_SECONDS + 1, RUNNING_SECONDS * 2]
    assert {event["run"]["runId"] for event in sent} == {summary.run_id}
