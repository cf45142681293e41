"""S3 servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from s3_servers import Server, running, versitygw_program


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run whole programs and Spark jobs on one server: the real one, if it is there."""
    if not versitygw_program():
        return
    left = [item for item in items if not _is_costly_on_moto(item)]
    config.hook.pytest_deselected(items=[item for item in items if _is_costly_on_moto(item)])
    items[:] = left


def _is_costly_on_moto(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    costly = item.get_closest_marker("pipe") or item.get_closest_marker("spark")
    return parameters.get("server") == "moto" and costly is not None


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=pytest.mark.server) for name in ("moto", "versitygw")],
)
def server(request: Any, tmp_path_factory: Any) -> Iterator[Server]:
    """Each of the servers."""
    with running(request.param, tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def aws_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, found by the environment of this process."""
    import s3fs

    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield server
    s3fs.S3FileSystem.clear_instance_cache()
