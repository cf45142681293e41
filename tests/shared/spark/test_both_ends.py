from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from shared.spark import running_java
from shared.spark.conf import SparkSettings, scheduling
from shared.spark.packages import LAKES, with_needs
from shared.spark.running_java import (
    VARIABLE,
    BothEnds,
    declare,
    joined,
    spark_of_both_ends,
    why_apart,
)
from shared.spark.spark_release import installed

PLAIN = SparkSettings(master="local[2]", conf={"spark.driver.memory": "2g"})


def test_both_get_what_either_needs() -> None:
    delta, iceberg = (with_needs(PLAIN, [LAKES[name]]) for name in ("delta", "iceberg"))
    assert why_apart(delta, iceberg) == ""
    both = joined(delta, iceberg)
    assert both.packages == tuple(installed().packages[name] for name in ("delta", "iceberg"))
    assert both.conf["spark.sql.extensions"].split(",") == [
        LAKES[name].extensions for name in ("delta", "iceberg")
    ]
    assert both.conf.items() >= LAKES["delta"].conf.items()
    assert why_apart(PLAIN, delta) == why_apart(delta, PLAIN) == ""
    assert joined(PLAIN, delta) == joined(delta, PLAIN) == delta


def test_java_only_schedules_if_it_does_for_both() -> None:
    one = scheduling(PLAIN, True)
    assert why_apart(one, PLAIN) == why_apart(PLAIN, one) == why_apart(one, one) == ""
    assert joined(one, PLAIN) == joined(PLAIN, one) == PLAIN
    assert joined(one, one) == one != PLAIN


@pytest.mark.parametrize(
    ("master", "both"),
    [("local[2]", "local[4]"), ("local", "local[3]"), ("local[2, 3]", "local[4]")],
)
def test_tasks_that_wait_hold_no_core_of_others(master: str, both: str) -> None:
    settings = joined(replace(PLAIN, master=master), PLAIN, waiting=2)
    assert settings.master == both
    # As many parts as without them.
    assert settings.conf["spark.default.parallelism"] == str(int(both[6]) - 2)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(PLAIN, conf={"spark.driver.memory": "4g"}), "differ (spark.conf: spark.driver.me"),
        (replace(PLAIN, conf={}), "differ (spark.conf: spark.driver.memory)"),
        (replace(PLAIN, master="local[3]", jars=("driver.jar",)), "(spark.master, spark.jars)"),
        (with_needs(PLAIN, [], [("jdbc:x:", "org.apache.hadoop:hadoop-aws:3.4.2")]), "S3"),
    ],
)
def test_programs_that_differ_have_a_spark_each(other: SparkSettings, why: str) -> None:
    assert why in why_apart(PLAIN, other)
    assert why in why_apart(other, PLAIN)


def test_clusters_and_servers_are_not_shared() -> None:
    for same in (SparkSettings(master="spark://host:7077"), SparkSettings(remote="sc://host")):
        assert "cluster or a server" in why_apart(same, same)


def test_programs_find_each_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(running_java, "_SECONDS", 0.0)
    with spark_of_both_ends() as environ:
        monkeypatch.setenv(VARIABLE, environ[VARIABLE])
        declare("tap", PLAIN)
        assert BothEnds.of(environ) is None, "another process than the command has started it"
        monkeypatch.setattr(os, "getppid", os.getpid)
        ends = BothEnds.of(environ)
        assert ends is not None
        folder = ends.folder
        assert not (folder / "tap.json").exists()
        assert folder.stat().st_mode & 0o77 == 0
        assert ends.java is None
        declare("tap", PLAIN)
        assert ends.joined() is None
        assert "the other program has not said" in caplog.text
        monkeypatch.setattr(running_java, "_SECONDS", 10.0)
        declare("target", PLAIN)
        assert ends.joined() == PLAIN
        declare("target", PLAIN, "it is apart")
        assert ends.joined() is None
        assert caplog.messages[-1].endswith(": it is apart")
    assert not folder.exists()
    assert BothEnds.of({}) is None


def test_without_a_temporary_folder_nothing_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with spark_of_both_ends() as environ:
        assert environ == {}
