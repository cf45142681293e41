"""Leases on tables of real databases."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from database_loads import PG, Loads, MariaDb, request

from target_spark.destinations.databases.run_resources import DatabaseLease

pytestmark = [pytest.mark.server, pytest.mark.costly]

TAKE = """
import sys
sys.path[:0] = sys.argv[4:]
from database_loads import request
from target_spark.destinations.databases.database_destination import JdbcDestination
from target_spark.destinations.databases.database_tables import address_of
from target_spark.destinations.databases.database_tables import JdbcSettings
place = address_of(JdbcSettings(*sys.argv[1:4]))
lease = JdbcDestination(place).lease(request("n long"))
print(lease.take(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def new_lease(db: PG | MariaDb, new_loads: Callable[..., Loads]) -> Callable[..., DatabaseLease]:
    """Return a function for leases of runs of their own on the table `t`."""

    def make(stream: str = "t") -> DatabaseLease:
        return new_loads(db).destination.lease(request("n long", stream=stream, table="t"))

    return make


def test_one_run_at_a_time(new_lease: Callable[..., DatabaseLease]) -> None:
    first, second, other = new_lease(), new_lease(), new_lease("u")
    assert first.take() is None
    assert first.take() is None, "asked twice"
    assert other.take() is None, "another stream"
    holder = second.take()
    assert holder is not None
    assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
    assert holder.since
    assert first.renew()
    assert not second.renew()
    second.release()
    assert first.renew()
    first.release()
    assert second.take() is None
    second.release()
    other.release()


def test_a_killed_run_does_not_block_the_next_one(
    db: PG | MariaDb, new_lease: Callable[..., DatabaseLease]
) -> None:
    place = db.place
    url = f"jdbc:{place.kind}://127.0.0.1:{place.ports[0]}/{place.name}"
    supplied = [url, str(place.user), str(place.password), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE, *supplied], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"None\n"
    lease = new_lease()
    holder = lease.take()
    assert holder is not None
    assert holder.pid == process.pid
    process.kill()
    process.communicate()
    _take_soon(lease)
    lease.release()


def test_a_run_that_lost_its_connection_takes_the_lease_again(
    new_lease: Callable[..., DatabaseLease],
) -> None:
    lease = new_lease()
    lease.take()
    _cut(lease)
    assert lease.renew()
    assert new_lease().take() is not None
    lease.release()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_run_that_lost_its_connection_to_another_one(
    new_lease: Callable[..., DatabaseLease], has_ended: bool
) -> None:
    slow, other = new_lease(), new_lease()
    slow.take()
    _cut(slow)
    _take_soon(other)
    if has_ended:
        other.release()
    assert not slow.renew(), "it must not go on after the other one"
    assert other.renew() is not has_ended
    other.release()


def test_an_earlier_connection_that_the_server_still_has(
    new_lease: Callable[..., DatabaseLease],
) -> None:
    lease = new_lease()
    lease.take()
    earlier, lease.leases._connection = lease.leases._connection, None
    assert lease.renew(), "nobody else can have it"
    assert earlier is not None
    earlier.close()
    for _ in range(100):
        assert lease.renew()
        if not lease.leases.lingering:
            break
        time.sleep(0.05)
    assert new_lease().take() is not None
    lease.release()


def test_the_server_ends_idle_sessions_of_lost_clients(
    db: PG | MariaDb, new_loads: Callable[..., Loads]
) -> None:
    lease = new_loads(db, expiry=30).destination.lease(request("n long"))
    lease.take()
    cursor = lease.leases._connection.cursor()
    setting = "tcp_keepalives_idle" if isinstance(db, PG) else "VARIABLES LIKE 'wait_timeout'"
    cursor.execute(f"SHOW {setting}")
    assert cursor.fetchone()[-1] == ("15" if isinstance(db, PG) else "30")
    lease.release()


def _take_soon(lease: DatabaseLease) -> None:
    """Take a lease as soon as the server has noticed the end of a connection."""
    for _ in range(100):
        if lease.take() is None:
            return
        time.sleep(0.05)
    pytest.fail("the server has not released the lock")


def _cut(lease: DatabaseLease) -> None:
    connection = lease.leases._connection
    assert connection is not None
    connection.close()
