"""Leases on S3: conditional writes of real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from shared.storage.access import StorageOptions, remote
from shared.storage.urls import join
from target_spark.config import target_config
from target_spark.destinations import leases
from target_spark.destinations.lakes.lake_table import Place
from target_spark.destinations.lakes.run_files import hidden_folder
from target_spark.destinations.leases import FolderLeases, Holder, NoLeasesError, S3Lease, this_run

TAKE = """
import json, sys
from shared.storage.access import StorageOptions
from target_spark.destinations.leases import this_run
from target_spark.destinations.leases import S3Lease
url, options = json.loads(sys.argv[1])
print(S3Lease(url, StorageOptions(options), this_run(), 60).take(), flush=True)
sys.stdin.read()
"""


class Runs:
    """Runs with one lease and one clock."""

    def __init__(self, server: Any) -> None:
        self.options = StorageOptions(server.options)
        self.url = join(server.folder(), ".orders.lease-1")
        self.now = 0.0

    def lease(self) -> S3Lease:
        return S3Lease(self.url, self.options, this_run(), 60, lambda: self.now)

    def exists(self) -> bool:
        filesystem, path = remote(self.url, self.options)
        filesystem.invalidate_cache()
        return bool(filesystem.exists(path))


@pytest.fixture
def runs(server: Any) -> Runs:
    return Runs(server)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run seems to be on another machine."""
    monkeypatch.setattr(leases, "owner_status", lambda owner: "unknown")


def test_one_run_at_a_time(runs: Runs) -> None:
    first, second = runs.lease(), runs.lease()
    assert first.take() is None
    assert first.take() is None, "asked twice"
    assert first.renew()
    holder = second.take()
    assert holder is not None
    assert (holder.pid, holder.is_alive) == (os.getpid(), True), "its process lives"
    assert not second.renew()
    second.release()
    assert runs.exists(), "another run holds it"
    first.release()
    assert not runs.exists()
    assert second.take() is None
    second.release()


def test_a_run_elsewhere_lives_if_it_gives_a_sign(runs: Runs, elsewhere: None) -> None:
    first, second = runs.lease(), runs.lease()
    first.take()
    assert _alive(second.take()) is False, "not known yet"
    runs.now += 59
    assert _alive(second.take()) is False
    assert first.renew()
    assert _alive(second.take()) is True


def test_a_run_elsewhere_that_gives_no_sign_is_replaced(runs: Runs, elsewhere: None) -> None:
    dead, second, third = runs.lease(), runs.lease(), runs.lease()
    dead.take()
    assert second.take() is not None
    assert third.take() is not None
    runs.now += 61
    assert second.take() is None
    assert third.take() is not None, "only one of the two takes it over"
    assert not dead.renew(), "it has lost the lease"
    dead.release()
    assert second.renew()
    second.release()
    assert not runs.exists()


def test_a_killed_run_of_this_machine_is_replaced_at_once(runs: Runs, server: Any) -> None:
    import json

    supplied = json.dumps([runs.url, server.options])
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE, supplied], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"None\n"
    lease = runs.lease()
    assert _alive(lease.take()) is True
    process.kill()
    process.communicate()
    assert lease.take() is None
    lease.release()


def test_a_lease_that_is_gone_is_lost(runs: Runs) -> None:
    lease = runs.lease()
    lease.take()
    filesystem, path = remote(runs.url, runs.options)
    filesystem.rm_file(path)
    assert not lease.renew(), "another run may have had it"
    lease.release()


def test_a_storage_that_ignores_conditions(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem, _ = remote(runs.url, runs.options)
    call = filesystem.call_s3

    def ignoring(method: str, **supplied: Any) -> Any:
        supplied.pop("IfNoneMatch", None)
        return call(method, **supplied)

    monkeypatch.setattr(filesystem, "call_s3", ignoring, raising=False)
    with pytest.raises(NoLeasesError, match="ignores"):
        runs.lease().take()
    assert not runs.exists()


def test_machines_share_the_leases_of_a_catalog_by_the_staging_root(
    server: Any, elsewhere: None
) -> None:
    config = target_config(
        {
            "format": "iceberg",
            "catalog": "lake",
            "staging": {"root": server.folder()},
            "storage_options": server.options,
            "overlapping_runs": {"expiry_seconds": 2},
        }
    )
    table = Place("`lake`.`shop`.`orders`", "lake.shop.orders")
    first, second, other = (
        FolderLeases(config)(hidden_folder(config, table), stream)
        for stream in ("orders", "orders", "refunds")
    )
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.take() is None
    assert second.take() is not None
    assert other.take() is None, "a lease is for one stream"
    first.release()
    other.release()
    assert second.take() is None
    second.release()


def _alive(holder: Holder | None) -> bool | None:
    return None if holder is None else holder.is_alive
