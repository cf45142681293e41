"""Executors of a cluster: the share of both ends of a pipe, and a watch for those that do not come.

On a standalone cluster, an application takes every core unless `spark.cores.max` says less. Of two
programs in a pipe, the second one then waits for the first, and the first for its reader.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import first_line
from shared.singer.logs import is_pipe
from shared.singer.stdout import original_stdout

CORES = "spark.cores.max"
STANDALONE = "spark://"
NO_EXECUTOR = "no executor has come in time"
"""Part of the reason of a cancelled job, by which `spark_errors` recognises it."""
WARNING_SECONDS = 30.0
_LOOK_SECONDS = 2.0

_log = logging.getLogger(__name__)


def shares_cores(conf: Mapping[str, str]) -> bool:
    """Return whether a program in a pipe takes only a share of a standalone cluster's cores.

    It does not if the user names their number, or Spark asks for executors as it needs them.
    """
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    is_standalone = conf.get("spark.master", "").startswith(STANDALONE)
    return is_standalone and CORES not in conf and not is_dynamic


def share_of_cores(cores: int, conf: Mapping[str, str]) -> int:
    """Return how many cores one of two programs takes: half, but an executor at least."""
    return max(1, int(conf.get("spark.executor.cores", "1")), cores // 2)


def masters(url: str) -> list[tuple[str, int]]:
    """Return host and port of each master of a standalone cluster."""
    places = (place.rpartition(":") for place in url.removeprefix(STANDALONE).split(","))
    return [(host, int(port)) for host, _, port in places if port.isdigit()]


def limit_cores(java: Any, spark_conf: Any) -> None:
    """Take a part of a standalone cluster alone if another program may need the rest."""
    conf = dict(spark_conf.getAll())
    if not any(map(is_pipe, (0, original_stdout()))) or not shares_cores(conf):
        return
    reason = "no address"
    for host, port in masters(conf["spark.master"]):
        try:
            cores = _cores_of_cluster(java, spark_conf._jconf, host, port)
        except Exception as error:  # a standby, or a master of another release
            reason = first_line(error)
            continue
        share = share_of_cores(cores, conf)
        spark_conf.set(CORES, str(share))
        _log.info(
            "takes %s of %s cores of the cluster, as the other end of the pipe may use it, too "
            "(spark.conf: %s)",
            share,
            cores,
            CORES,
        )
        return
    _log.warning(
        "the cluster does not tell how many cores it has (%s): give both ends of the pipe a share "
        "(spark.conf: %s)",
        reason,
        CORES,
    )


def _cores_of_cluster(java: Any, jconf: Any, host: str, port: int) -> int:
    """Ask a standalone master how many cores its workers have, as its own page does."""
    spark, jconf = java.org.apache.spark, jconf.clone()
    for name in ("spark.rpc.lookupTimeout", "spark.rpc.askTimeout"):
        jconf.set(name, "30s")
    default = "$lessinit$greater$default$"
    manager = spark.SecurityManager
    security = manager(jconf, getattr(manager, f"{default}2")(), getattr(manager, f"{default}3")())
    rpc = getattr(getattr(spark.rpc, "RpcEnv$"), "MODULE$")
    environment = rpc.create("cores", "localhost", 0, jconf, security, True)
    try:
        master = environment.setupEndpointRef(spark.rpc.RpcAddress(host, port), "Master")
        question = getattr(getattr(spark.deploy, "DeployMessages$RequestMasterState$"), "MODULE$")
        answer = java.java.lang.Class.forName(
            "org.apache.spark.deploy.DeployMessages$MasterStateResponse"
        )
        tag = getattr(getattr(java.scala.reflect, "ClassTag$"), "MODULE$").apply(answer)
        workers = master.askSync(question, tag).workers()
        return sum(int(worker.cores()) for worker in workers if worker.isAlive())
    finally:
        environment.shutdown()


class ClusterJobs:
    """The jobs that a SparkContext runs on the cluster."""

    def __init__(self, context: Any) -> None:
        self._java = context._jsc.sc()

    def active(self) -> list[int]:
        return list(self._java.statusTracker().getActiveJobIds())

    def executors(self) -> int:
        return len(self._java.statusTracker().getExecutorInfos()) - 1  # without the driver

    def cancel(self, job: int, reason: str) -> None:
        self._java.cancelJob(job, reason)


@dataclass
class ExecutorWatch:
    """Says that jobs wait for executors, and cancels them if none comes.

    Attributes:
        limit: Seconds after which jobs are cancelled.
        now: Returns the time in seconds.
    """

    jobs: ClusterJobs
    limit: float
    now: Callable[[], float] = time.monotonic
    _since: float | None = None
    _has_warned: bool = False

    def look(self) -> None:
        """Look once."""
        active = self.jobs.active()
        if not active or self.jobs.executors():
            self._since, self._has_warned = None, False
            return
        now = self.now()
        if self._since is None:
            self._since = now
        waited = now - self._since
        if waited >= min(WARNING_SECONDS, self.limit / 2) and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "Spark has had no executor for %.0f s: other programs have the cores or memory of "
                "the cluster (spark.cores.max, spark.executor.memory), or executors end at their "
                "start (see their logs); the run ends after %.0f s "
                "(setting 'spark.executor_wait_seconds')",
                waited,
                self.limit,
            )
        if waited >= self.limit:
            for job in active:
                self.jobs.cancel(job, NO_EXECUTOR)

    def run(self, over: threading.Event) -> None:
        """Look again and again until the event is set."""
        while not over.wait(min(_LOOK_SECONDS, self.limit / 4)):
            try:
                self.look()
            except Exception as error:  # a lost Spark is reported by what uses it
                _log.debug("the watch over executors ends: %s", error)
                return
