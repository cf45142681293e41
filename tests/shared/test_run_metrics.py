"""The metrics of a run: what a collector of Prometheus reads, and what the samples ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from shared.errors import DestinationError, RecordError
from shared.singer.run_report import METRICS
from shared.singer.run_summary import RunSummary, summarized

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_configs" / "prometheus"
HOSTILE = 'a"b\\n\\\n{x="y"} 1\n# HELP'
Samples = dict[tuple[str, str | None], float]


def read(path: Path) -> Samples:
    families = list(text_string_to_metric_families(path.read_text()))
    assert {(family.name, family.documentation) for family in families} <= METRICS.items()
    assert {family.type for family in families} == {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["pipeline"] for sample in samples} == {"orders"}
    return {(sample.name, sample.labels.get("stream")): sample.value for sample in samples}


def run(path: Path, error: Exception | None = None) -> RunSummary:
    with summarized("target-spark", metrics=str(path)) as summary:
        summary.add(HOSTILE, received=3, rejected=1, flush_seconds=0.5)
        summary.add_to_table(HOSTILE, "t", committed=2)
        summary.count(rejected_lines=4)
        if error:
            raise error
    return summary


def test_metrics_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "orders.target.prom"
    run(path)
    actual = read(path)
    assert actual["singer_run_success", None] == 1
    assert actual["singer_run_rejected_lines", None] == 4
    assert actual["singer_stream_rejected_records", HOSTILE] == 1
    assert actual["singer_stream_flush_seconds", HOSTILE] == 0.5
    assert actual["singer_stream_failed", HOSTILE] == 0
    assert actual["singer_table_committed_rows", HOSTILE] == 2
    assert [path] == list(tmp_path.iterdir())


def test_a_failed_run_keeps_the_time_of_the_last_good_one(tmp_path: Path) -> None:
    path, last = tmp_path / "orders.prom", "singer_run_last_success_timestamp_seconds"
    with pytest.raises(RecordError):
        run(path, RecordError("bad"))
    assert (last, None) not in read(path)
    run(path)
    good = read(path)
    assert good[last, None] == good["singer_run_end_timestamp_seconds", None]
    for _ in range(2):
        with pytest.raises(RecordError):
            run(path, RecordError("bad"))
        actual = read(path)
        assert (actual["singer_run_success", None], actual["singer_run_exit_code", None]) == (0, 5)
        assert actual[last, None] == good[last, None]


def test_a_dry_run_is_no_good_run(tmp_path: Path) -> None:
    path = tmp_path / "orders.prom"
    with summarized("target-spark", metrics=str(path)) as summary:
        summary.mark_dry()
    assert ("singer_run_last_success_timestamp_seconds", None) not in read(path)


def test_a_stream_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "orders.prom"
    with summarized("tap-spark", metrics=str(path)) as summary:
        summary.note("s", error="gone")
    assert read(path)["singer_stream_failed", "s"] == 1


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.prom").mkdir()
    with pytest.raises(DestinationError, match="--metrics-file"):
        run(tmp_path / "a.prom")


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bsinger_\w+", text))


def panels() -> list[dict[str, Any]]:
    return json.loads((SAMPLES / "dashboard.json").read_text())["panels"]


def test_alerts_ask_for_metrics_and_labels_that_are_there() -> None:
    [group] = yaml.safe_load((SAMPLES / "alerts.yml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 6
    for rule in group["rules"]:
        names = metrics_in(rule["expr"] + json.dumps(rule["annotations"]))
        assert names <= METRICS.keys(), rule
        assert names or "node_textfile_scrape_error" in rule["expr"]
        assert {"summary"} <= rule["annotations"].keys()
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        of_streams = all(name.startswith("singer_stream") for name in names)
        allowed = {"pipeline", "program", *(["stream"] if of_streams else [])}
        assert labels <= allowed if names else labels == {"instance"}


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        for target in panel["targets"]:
            assert metrics_in(target["expr"])
            assert metrics_in(target["expr"]) <= METRICS.keys()


def test_the_page_explains_every_metric() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    table = page.split("## Prometheus\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`singer_.*?) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(METRICS)
