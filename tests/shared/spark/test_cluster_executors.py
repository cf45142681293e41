"""The share of a cluster's cores, and the watch for executors, without Spark."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field

import pytest

from shared.errors import NoExecutorError
from shared.singer.logs import is_pipe
from shared.spark.cluster_executors import (
    NO_EXECUTOR,
    ExecutorWatch,
    masters,
    share_of_cores,
    shares_cores,
)
from shared.spark.spark_errors import explain


@pytest.mark.parametrize(
    ("conf", "shares"),
    [
        ({"spark.master": "spark://a:7077"}, True),
        ({"spark.master": "spark://a:7077", "spark.cores.max": "8"}, False),
        ({"spark.master": "spark://a:7077", "spark.dynamicAllocation.enabled": "true"}, False),
        ({"spark.master": "spark://a:7077", "spark.dynamicAllocation.enabled": "false"}, True),
        ({"spark.master": "yarn"}, False),
        ({"spark.master": "local[4]"}, False),
    ],
)
def test_only_a_standalone_cluster_without_a_word_on_cores_is_shared(
    conf: dict[str, str], shares: bool
) -> None:
    assert shares_cores(conf) is shares


@pytest.mark.parametrize(
    ("cores", "conf", "share"),
    [
        (8, {}, 4),
        (5, {}, 2),
        (1, {}, 1),
        (0, {}, 1),
        (8, {"spark.executor.cores": "2"}, 4),
        (8, {"spark.executor.cores": "6"}, 6),
    ],
)
def test_the_share_is_half_but_an_executor_at_least(
    cores: int, conf: dict[str, str], share: int
) -> None:
    assert share_of_cores(cores, conf) == share


def test_every_master_of_the_url_is_asked() -> None:
    assert masters("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert masters("spark://[::1]:7077") == [("[::1]", 7077)]


def test_a_pipe_is_told_from_a_file() -> None:
    read, write = os.pipe()
    try:
        with open(os.devnull) as nothing:
            assert is_pipe(write)
            assert not any(map(is_pipe, (nothing.fileno(), 9999)))
    finally:
        os.close(read)
        os.close(write)


@dataclass
class Cluster:
    jobs: list[int] = field(default_factory=list)
    count: int = 0
    cancelled: list[tuple[int, str]] = field(default_factory=list)

    def active(self) -> list[int]:
        return self.jobs

    def executors(self) -> int:
        return self.count

    def cancel(self, job: int, reason: str) -> None:
        self.cancelled.append((job, reason))


def test_a_job_without_executors_is_warned_of_and_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, cluster = [0.0], Cluster([7, 8])
    watch = ExecutorWatch(cluster, 600, lambda: clock[0])
    warnings = []
    for second in (0, 29, 30, 31, 599):
        clock[0] = second
        watch.look()
        warnings.append(len(caplog.records))
    assert warnings == [0, 0, 1, 1, 1]
    assert "no executor for 30 s" in caplog.text
    assert "spark.cores.max" in caplog.text
    assert cluster.cancelled == []
    clock[0] = 600
    watch.look()
    assert cluster.cancelled == [(7, NO_EXECUTOR), (8, NO_EXECUTOR)]


@pytest.mark.parametrize("change", [{"count": 1}, {"jobs": []}])
def test_the_wait_begins_anew_after_an_executor_or_without_work(
    change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock, cluster = [0.0], Cluster([1])
    watch = ExecutorWatch(cluster, 100, lambda: clock[0])
    watch.look()
    clock[0], before = 99.0, dict(vars(cluster))
    vars(cluster).update(change)
    watch.look()
    vars(cluster).update(before)
    for second in (120, 149, 219):
        clock[0] = second
        watch.look()
    assert cluster.cancelled == []
    clock[0] = 220
    watch.look()
    assert cluster.cancelled


def test_a_cancelled_job_is_explained() -> None:
    text = f"[SPARK_JOB_CANCELLED] Job 3 cancelled {NO_EXECUTOR} SQLSTATE: XXKDA"
    error = explain(RuntimeError(text))
    assert isinstance(error, NoExecutorError)
    assert error.exit_code == 17
    assert str(error).startswith("setting 'spark.executor_wait_seconds': no executor has come")
