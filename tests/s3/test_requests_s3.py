"""Requests of a run to S3: few for a small table, and few after the storage has died."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import s3fs
from engines import IdleSpark, engine_without_spark, threads
from whole_runs import run_target

from shared.errors import DestinationError
from shared.singer.stdout import MessageOutput
from shared.storage.access import StorageOptions, delete_all, remote
from shared.storage.files import open_input
from shared.storage.urls import join
from tap_spark.config import tap_config
from tap_spark.plan.run_options import RunOptions
from tap_spark.send import sync
from target_spark.config import target_config
from target_spark.load.loader import Loader

pytestmark = pytest.mark.once
SCHEMA = {"properties": {"id": {"type": "integer"}}}


class Requests:
    """Counts requests, and refuses all once one names a key with `outage_at`.

    Attributes:
        sent: Requests.
        refused: Those refused; each waits about ten seconds for the retries of its library.
    """

    def __init__(self, patch: pytest.MonkeyPatch, outage_at: str = "never") -> None:
        self.sent = self.refused = 0
        # `call_s3` is made of the first one as it was.
        inner, outer = s3fs.S3FileSystem._call_s3, s3fs.S3FileSystem.call_s3

        def check(*request: Any) -> None:
            self.sent += 1
            if self.refused or outage_at in str(request):
                self.refused += 1
                raise ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens")

        async def call_inner(filesystem: Any, *args: Any, **more: Any) -> Any:
            check(args, more)
            return await inner(filesystem, *args, **more)

        def call_outer(filesystem: Any, *args: Any, **more: Any) -> Any:
            check(args, more)
            return outer(filesystem, *args, **more)

        patch.setattr(s3fs.S3FileSystem, "_call_s3", call_inner)
        patch.setattr(s3fs.S3FileSystem, "call_s3", call_outer)


def load(server: Any, folder: Path, streams: int, path: str = "") -> None:
    """Load one record of each stream, and of one that is named `last`."""
    settings = {"path": path or server.folder(), "storage_options": server.options}
    config = target_config(settings)
    messages = [
        message
        for name in (*(f"s{number}" for number in range(streams)), "last")
        for message in (
            {"type": "SCHEMA", "stream": name, "schema": SCHEMA, "key_properties": []},
            {"type": "RECORD", "stream": name, "record": {"id": 1}},
        )
    ]
    engine = threads(IdleSpark())
    loader = Loader(config, engine)
    try:
        run_target(config, loader, folder, messages, engine)
    finally:
        loader._destination._close()  # type: ignore[attr-defined]


def requests_of(server: Any, folder: Path, streams: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        requests = Requests(patch)
        load(server, folder, streams)
    return requests.sent


def refused_requests(server: Any, folder: Path, streams: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        requests = Requests(patch, ".last.lease")
        with pytest.raises(DestinationError, match="stream 'last': cannot write"):
            load(server, folder, streams)
    return requests.refused


def test_a_small_table_takes_few_requests(server: Any, tmp_path: Path) -> None:
    if server.name == "moto":
        return  # the requests are those of the client
    few, more = (requests_of(server, tmp_path, streams) for streams in (1, 6))
    assert (more - few) / 5 <= 18


def test_an_object_that_stands_for_a_folder_is_no_file(server: Any, tmp_path: Path) -> None:
    """As the console of AWS makes it."""
    path = server.folder()
    filesystem, inside = remote(path, StorageOptions(server.options))
    bucket, _, key = inside.partition("/")
    filesystem.call_s3("put_object", Bucket=bucket, Key=f"{key}/last/", Body=b"")
    load(server, tmp_path, 0, path)
    load(server, tmp_path, 0, path)
    filesystem.invalidate_cache()
    parts = [name for name in filesystem.find(f"{inside}/last") if name.endswith(".parquet")]
    assert len(parts) == 2


def test_a_run_ends_as_soon_with_many_streams(server: Any, tmp_path: Path) -> None:
    if server.name == "moto":
        return  # the requests are those of the client
    few = refused_requests(server, tmp_path, 2)
    assert 1 <= refused_requests(server, tmp_path, 12) == few <= 5


def test_files_that_cannot_be_reached_are_not_tried_one_by_one(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.name == "moto":
        return
    requests = Requests(monkeypatch, "gone")
    urls = [join(server.folder(), f"gone-{number}") for number in range(500)]
    errors = delete_all(urls, StorageOptions(server.options))
    assert [url for url, _ in errors] == urls
    assert {type(error) for _, error in errors} == {ConnectionRefusedError}
    # One for all, then those that began at the same time.
    assert requests.refused <= 1 + 2 * 16


ROWS = {"csv": b"id,v\n1,a\n2,b\n", "json": b'{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n'}


def read_requests(form: str, method: str, files: int, server: Any, folder: Path) -> int:
    path = server.folder()
    filesystem, inside = remote(path)
    for number in range(files):
        filesystem.pipe_file(f"{inside}/{number}.{form}", ROWS[form])
    filesystem.invalidate_cache()
    stream = {"name": "s", "format": form, "path": path, "replication_method": method}
    out = folder / "out.jsonl"
    with pytest.MonkeyPatch.context() as patch, out.open("wb") as file:
        requests = Requests(patch)
        patch.setattr(sync, "engine_of", engine_without_spark)
        output = MessageOutput(os.dup(file.fileno()))
        sync.run_sync(tap_config({"streams": [stream]}), None, {}, output, RunOptions())
        output.close()
    assert out.read_bytes().count(b'"RECORD"') == 2 * files
    return requests.sent


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
@pytest.mark.parametrize("form", ROWS)
def test_a_small_source_file_takes_one_request(
    aws_environment: Any, tmp_path: Path, form: str, method: str
) -> None:
    if aws_environment.name == "moto":
        return  # the requests are those of the client
    few, more = (read_requests(form, method, files, aws_environment, tmp_path) for files in (2, 12))
    assert more - few == 10


def test_a_file_that_has_changed_is_read_anew(server: Any) -> None:
    path = f"{server.folder()}/one"
    options = StorageOptions(server.options)
    filesystem, inside = remote(path, options)
    for content in (b"first", b"other", b"x" * 100_000):
        filesystem.pipe_file(inside, content)
        for _ in range(2):
            with open_input(path, options) as file:
                assert bytes(file.read()) == content
