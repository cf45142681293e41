"""Files on S3 without Spark: parts, credentials, what may not be shown."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from shared.formats.file_formats import FORMATS, read_lines
from shared.storage.access import (
    S3_PART_BYTES,
    StorageOptions,
    delete,
    remote,
    size_of,
)
from shared.storage.files import codec_of, open_input, open_output, open_random
from shared.storage.urls import join
from tap_spark.config import tap_config
from tap_spark.sources.files import columnar_files
from tap_spark.sources.source import source_for

BIG = os.urandom(1024 * 1024) * 20


@pytest.fixture
def options(server: Any) -> StorageOptions:
    return StorageOptions(server.options)


def test_a_file_in_parts(server: Any, options: StorageOptions) -> None:
    url = join(server.folder(), "a file+%25.bin")
    assert len(BIG) > S3_PART_BYTES
    with open_output(url, options=options) as sink:
        sink.write(BIG)
        filesystem, inside = remote(url, options)
        assert not filesystem.exists(inside), "it appears when it is whole"
    assert size_of(url, options) == len(BIG)
    with open_input(url, options) as source:
        assert source.read() == BIG
    with open_random(url, options) as source:
        source.seek(7_000_000)
        assert source.read(100) == BIG[7_000_000:7_000_100]
    delete(url, options)
    delete(url, options)
    with pytest.raises(FileNotFoundError):
        size_of(url, options)


def test_compressed_lines(server: Any, options: StorageOptions) -> None:
    url = join(server.folder(), "x.json.gz")
    lines = pa.table({"value": ['{"a":1}\n'] * 1000})
    FORMATS["jsonl"].write(url, lines.schema, [lines], "gzip", options)
    assert codec_of(url, options) == "gzip"
    assert b"".join(read_lines(url, options=options)) == b'{"a":1}\n' * 1000


def test_found_by_the_environment(aws_environment: Any) -> None:
    url = join(aws_environment.folder(), "x")
    with open_output(url) as sink:
        sink.write(b"text")
    assert size_of(url) == 4


def test_found_by_a_profile(server: Any, tmp_path: Path, monkeypatch: Any) -> None:
    import s3fs

    credentials = tmp_path / "credentials"
    credentials.write_text(
        f"[mine]\naws_access_key_id = {server.options['aws_access_key_id']}\n"
        f"aws_secret_access_key = {server.options['aws_secret_access_key']}\n"
    )
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    common = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
    options = StorageOptions({"profile_name": "mine", **common})
    url = join(server.folder(), "x")
    with open_output(url, options=options) as sink:
        sink.write(b"text")
    assert size_of(url, options) == 4
    if server.name == "versitygw":  # moto lets everybody in
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(OSError):
            size_of(url, StorageOptions(common))


def test_wrong_secrets_are_not_shown(server: Any) -> None:
    if server.name == "moto":
        return  # it checks no credentials
    secret = "very-wrong-secret-77"
    options = StorageOptions({**server.options, "aws_secret_access_key": secret})
    with pytest.raises(OSError) as caught:
        size_of(join(server.folder(), "x"), options)
    assert secret not in str(caught.value)


def test_options_hide_their_values() -> None:
    options = StorageOptions({"secret": "hush-hush", "client_kwargs": {"token": "nested-token"}})
    for text in (repr(options), str(options), f"{options}", repr([options])):
        assert "hush" not in text
        assert "nested" not in text
    assert "secret" in repr(options)
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert again.for_url("s3://x")["secret"] == "hush-hush"
    clean = options.without_secrets("key hush-hush and nested-token at http://host")
    assert clean == "key *** and *** at http://host"


def test_names_of_the_aws_sdks() -> None:
    options = StorageOptions(
        {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t",
         "profile_name": "p", "region_name": "r", "endpoint_url": "http://x"}
    )  # fmt: skip
    assert options.for_url("s3://b/k") == {
        "key": "k", "secret": "s", "token": "t", "profile": "p", "endpoint_url": "http://x",
        "client_kwargs": {"region_name": "r"},
    }  # fmt: skip
    assert StorageOptions({"a": 1}).for_url("gs://b") == {"a": 1}


def test_unknown_schemes_and_options() -> None:
    with pytest.raises(OSError, match="nosuch://"):
        size_of("nosuch://a/b")
    with pytest.raises(OSError) as caught:
        size_of("s3://a/b", StorageOptions({"no_such_option": "my-own-secret"}))
    assert "my-own-secret" not in str(caught.value)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_footers_tell_the_rows_of_a_source(
    aws_environment: Any, options: StorageOptions, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    folder = aws_environment.folder()
    for number in range(3):
        with open_output(join(folder, f"{number}.{form}"), options=options) as sink:
            table = pa.table({"id": pa.array(range(number), pa.int64())})
            (orc.write_table if form == "orc" else pq.write_table)(table, sink)
    stream = tap_config({"streams": [{"name": "s", "format": form, "path": folder}]}).streams[0]
    source: Any = source_for(stream)
    assert source.told_rows() == 3
    monkeypatch.setattr(columnar_files, "MOST_REMOTE_FOOTERS", 2)
    assert source.told_rows() is None
