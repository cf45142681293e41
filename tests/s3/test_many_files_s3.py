"""Sizes, checksums and removal of many files on S3, by few requests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiobotocore.client import AioBaseClient
from engines import IdleSpark, threads

from shared.formats.file_formats import Encoding
from shared.storage import access
from shared.storage.access import StorageFacts, StorageOptions, delete_all, facts_of, remote
from shared.storage.urls import join
from target_spark.config import target_config
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.load.loader import Loader


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count requests by operation; a page has 20 objects."""
    counted = Counter[str]()
    call = AioBaseClient._make_api_call

    async def counting(self: Any, operation: str, arguments: Any) -> Any:
        counted[operation] += 1
        return await call(self, operation, arguments)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", counting)
    monkeypatch.setattr(access, "PAGE", 20)
    return counted


def fill(folder: str, options: StorageOptions) -> list[str]:
    """Write 50 files of two folders among others; return their URLs."""
    names = [f"b/{number}.json" for number in range(30)] + [f"c/é +%{n}*[x]" for n in range(20)]
    others = [
        "a",
        "b/",
        "b/10.jso",
        "b/10.json.crc",
        "b/deep/1.json",
        "c/é +%1other[x]",
        "d/1.json",
    ]
    filesystem, _ = remote(folder, options)
    for size, name in enumerate([*names, *(other for other in others if other[-1] != "/")]):
        filesystem.pipe_file(remote(join(folder, name), options)[1], b"x" * size)
    return [join(folder, name) for name in names]


def test_facts(server: Any, requests: Counter[str]) -> None:
    options = StorageOptions(server.options)
    folder = server.folder()
    urls = fill(folder, options)
    gone = join(folder, "b/gone.json")
    requests.clear()
    *actual, missing = facts_of([*urls, gone], options)
    assert [facts.size for facts in actual if isinstance(facts, StorageFacts)] == [*range(50)]
    assert isinstance(missing, FileNotFoundError)
    assert requests["ListObjectsV2"] <= 5
    assert requests["HeadObject"] <= 2
    few = facts_of(urls[:3], options)
    assert few == actual[:3]
    assert all(isinstance(facts, StorageFacts) and facts.checksum for facts in few)


def test_a_listing_that_is_refused_is_no_error(
    server: Any, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StorageOptions(server.options)
    urls = fill(server.folder(), options)
    call = AioBaseClient._make_api_call

    async def refusing(self: Any, operation: str, arguments: Any) -> Any:
        if operation in {"ListObjectsV2", "DeleteObjects"}:
            raise PermissionError(operation)
        return await call(self, operation, arguments)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", refusing)
    actual = list(facts_of(urls, options))
    assert [facts.size for facts in actual if isinstance(facts, StorageFacts)] == [*range(50)]
    assert delete_all(urls, options) == []
    assert all(isinstance(facts, OSError) for facts in facts_of(urls, options))
    assert requests["DeleteObject"] == len(urls)


def test_removal(server: Any, requests: Counter[str]) -> None:
    options = StorageOptions(server.options)
    folder = server.folder()
    urls = fill(folder, options)
    requests.clear()
    assert delete_all([*urls, join(folder, "gone")], options) == []
    assert requests == {"DeleteObjects": 3}
    filesystem, inside = remote(folder, options)
    left = {name.removeprefix(f"{inside}/") for name in filesystem.find(inside)}
    assert left == {
        "a",
        "b/10.jso",
        "b/10.json.crc",
        "b/deep/1.json",
        "c/é +%1other[x]",
        "d/1.json",
    }


def test_a_load_takes_one_request_for_each_small_file(
    server: Any, requests: Counter[str], tmp_path: Any
) -> None:
    options, folder = StorageOptions(server.options), server.folder()
    filesystem, _ = remote(folder, options)
    urls = [join(folder, f"{number}.json") for number in range(30)]
    for number, url in enumerate(urls):
        filesystem.pipe_file(remote(url, options)[1], b'{"id":%d}\n' % number)
    requests.clear()
    batches = {"storage": {"root": folder, "options": server.options}, "cleanup": True}
    config = target_config({"path": str(tmp_path), "batch_config": batches})
    loader = Loader(config, threads(IdleSpark()))
    schema = StreamSchema("s", {"properties": {"id": {"type": "integer"}}})
    files = tuple(InputFile(url, Encoding("jsonl")) for url in urls)
    batch = Batch(schema, files, "token")
    loader.commit(batch, [loader.convert(batch)])
    loader.delete_consumed(files)
    assert sorted(pq.read_table(tmp_path / "s")["id"].to_pylist()) == [*range(30)]
    assert requests["HeadObject"] <= 1
    assert requests["GetObject"] == len(urls)
    assert (requests["DeleteObject"], requests["DeleteObjects"]) == (0, 2)


def test_a_parquet_file_that_fits_is_copied_by_the_server(
    server: Any, requests: Counter[str]
) -> None:
    options, folder = StorageOptions(server.options), server.folder()
    filesystem, inside = remote(folder, options)
    with filesystem.open(f"{inside}/in/a.parquet", "wb") as sink:
        pq.write_table(pa.table({"id": [1, 2], "name": ["a", None]}), sink)
    types = {"id": {"type": ["integer", "null"]}, "name": {"type": ["string", "null"]}}
    batches = {"storage": {"root": join(folder, "in"), "options": server.options}, "cleanup": True}
    table = {"path": folder, "storage_options": server.options, "add_record_metadata": False}
    loader = Loader(target_config({**table, "batch_config": batches}), threads())
    files = (InputFile(join(folder, "in/a.parquet"), Encoding("parquet", "snappy")),)
    batch = Batch(StreamSchema("s", {"properties": types}), files, "token")
    requests.clear()
    loader.commit(batch, [loader.convert(batch)])
    loader.delete_consumed(files)
    assert requests["CopyObject"] == 1
    [part] = [name for name in filesystem.find(inside) if name.endswith(".parquet")]
    assert pq.read_table(filesystem.open(part))["name"].to_pylist() == ["a", None]


def test_local_files_and_a_file_that_stays(tmp_path: Any) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"abc")
    urls = [str(tmp_path / name) for name in ("a", "gone", "folder")]
    first, second, _ = facts_of(urls)
    assert first == StorageFacts(3)
    assert isinstance(second, FileNotFoundError)
    [(url, error)] = delete_all(urls)
    assert (url, isinstance(error, OSError)) == (urls[2], True)
    assert not (tmp_path / "a").exists()
