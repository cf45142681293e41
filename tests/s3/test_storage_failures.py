"""Failures of S3, without Spark: numbers, texts, hints, and which are temporary."""

from __future__ import annotations

import errno
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shared.errors import (
    DestinationError,
    SettingsError,
    SingerSparkError,
    Where,
    may_pass,
    settled,
)
from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import Encoding
from shared.formats.schema_nodes import json_schema_to_spark
from shared.spark.spark_errors import explain
from shared.storage.access import (
    StorageOptions,
    delete,
    failures,
    is_trouble,
    size_of,
    storage_error,
    storage_hint,
)
from shared.storage.files import head_of, open_input, open_output, open_random
from shared.storage.urls import join
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.task_reports import raise_failure
from target_spark.convert.write_tasks import load
from target_spark.core.load_plans import InputFile
from target_spark.destinations.destination import TableWrite
from target_spark.destinations.folders.stored_folder import RemoteFolder
from target_spark.destinations.folders.table_folder import FolderChange, write_error

pytestmark = pytest.mark.once
QUICK = {"config_kwargs": {"retries": {"max_attempts": 0}}}
"""Options for one attempt."""
BIG = 20_000_000
"""More than one part, so that an upload begins before the file is closed."""


def write(url: str, options: StorageOptions, count: int = 5) -> None:
    with open_output(url, options=options) as sink:
        sink.write(b"x" * count)


def read(url: str, options: StorageOptions) -> None:
    with open_input(url, options) as source:
        source.read()


def read_at_random(url: str, options: StorageOptions) -> None:
    with open_random(url, options) as source:
        source.read()


def write_big(url: str, options: StorageOptions) -> None:
    write(url, options, BIG)


def pack(url: str, options: StorageOptions) -> None:
    with open_output(url, "gzip", options) as sink:
        sink.write(b"x")


def head(url: str, options: StorageOptions) -> None:
    head_of(url, 4, options)


WAYS: tuple[Callable[[str, StorageOptions], Any], ...] = (
    write, write_big, pack, read, read_at_random, head, size_of, delete,
)  # fmt: skip


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers everything with 503 SlowDown."""

    protocol_version = "HTTP/1.1"  # with which it answers `Expect: 100-continue`

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<Error><Code>SlowDown</Code><Message>Please wait.</Message></Error>"
        self.send_response(503)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def slow_down() -> Iterator[str]:
    """Endpoint of a server that asks for fewer requests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def caught(variant: Callable[[str, StorageOptions], Any], url: str, options: Any) -> OSError:
    with pytest.raises(OSError) as error:
        variant(url, StorageOptions(options))
    return error.value


@pytest.mark.parametrize("variant", WAYS)
def test_wrong_secret(server: Any, variant: Any) -> None:
    if server.name == "moto":
        return  # it checks no credentials
    secret = "very-wrong-secret-77"
    url = join(server.folder(), "x")
    error = caught(variant, url, {**server.options, "aws_secret_access_key": secret})
    assert isinstance(error, PermissionError)
    assert (error.errno, error.filename) == (errno.EACCES, url)
    assert secret not in repr(error)
    assert "403" in str(error) or "SignatureDoesNotMatch" in str(error)
    assert error.__cause__ is None
    assert is_trouble(error)
    assert not may_pass(error)
    assert "credentials" in str(write_error(url, error))


@pytest.mark.parametrize("variant", (write, write_big, read, size_of))
def test_unknown_key(server: Any, variant: Any) -> None:
    if server.name == "moto":
        return
    error = caught(
        variant, join(server.folder(), "x"), {**server.options, "aws_access_key_id": "no"}
    )
    assert isinstance(error, PermissionError)
    assert not may_pass(error), "versitygw's own code for it must not pass for a failing disk"


def test_no_credentials(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    error = caught(write, join(server.folder(), "x"), {"endpoint_url": server.endpoint})
    assert isinstance(error, PermissionError)
    assert "Unable to locate credentials" in str(error)
    assert not may_pass(error)


@pytest.mark.parametrize("variant", (write, write_big, read, size_of))
def test_no_bucket(server: Any, variant: Any) -> None:
    error = caught(variant, "s3://no-such-bucket/x", server.options)
    assert isinstance(error, FileNotFoundError)
    assert error.filename == "s3://no-such-bucket/x"
    assert not may_pass(error)
    assert "bucket" in str(write_error("s3://no-such-bucket/x", error))


def test_no_file(server: Any) -> None:
    url = join(server.folder(), "x")
    error = caught(read, url, server.options)
    assert error.strerror == "No such file or directory"
    assert not is_trouble(error)


@pytest.mark.parametrize("variant", (write, write_big, read))
def test_nobody_listens(variant: Any, free_port: int) -> None:
    endpoint = f"http://127.0.0.1:{free_port}"
    # How often to try is botocore's: its default, seconds long, is that of `test_tasks`.
    options = {"key": "k", "secret": "s", "endpoint_url": endpoint, **QUICK}
    error = caught(variant, "s3://bucket/x", options)
    assert isinstance(error, ConnectionRefusedError)
    assert endpoint in str(error)
    assert is_trouble(error)
    assert may_pass(error)


@pytest.mark.parametrize("variant", (write, size_of))
def test_slow_down(slow_down: str, variant: Any) -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": slow_down, **QUICK}
    error = caught(variant, "s3://bucket/x", options)
    assert error.errno == errno.EBUSY
    assert is_trouble(error)
    assert may_pass(error)
    assert "fewer requests" in str(write_error("s3://bucket/x", error))


def test_table_folder(server: Any) -> None:
    """Every step of a commit reports the same error, and whether to retry."""
    if server.name == "moto":
        return
    secret = "very-wrong-secret-77"
    table = join(server.folder(), "t")
    wrong = StorageOptions({**server.options, "aws_secret_access_key": secret})
    folder = RemoteFolder(table, "run", wrong).open()
    change = FolderChange({join(folder.pending, "a"): "b"}, side=b"{}")
    for step in (lambda: folder.publish(change), folder.close):
        with pytest.raises(DestinationError) as error:
            step()
        text = str(error.value)
        assert table in text
        assert "credentials" in text
        assert secret not in text
        assert not may_pass(error.value)


def test_options_of_a_table_folder(server: Any) -> None:
    options = StorageOptions(server.options)
    folder = RemoteFolder(join(server.folder(), "t"), "run", options).open()
    pending = join(folder.pending, "a")
    write(pending, options)
    part = "part-1700000000000-run-1.parquet"
    folder.publish(FolderChange({pending: part}, side=b"{}"))
    assert folder.files() == (part,)
    assert folder.side() == b"{}"
    # Escapes of partitions are part of the keys.
    inside = "b=a%2Fb ü%25/c=+&/part-2"
    pending = join(folder.pending, "b=a%2Fb ü%25/c=+&/b")
    write(pending, options)
    folder.publish(FolderChange({pending: inside}))
    assert folder.files() == (inside, part)
    folder.publish(FolderChange({}, frozenset({inside})))
    assert folder.files() == (part,)
    folder.close()


def test_own_errors_pass_through() -> None:
    from shared.errors import RecordError
    from target_spark.destinations.folders.table_folder import writing

    with pytest.raises(RecordError), writing("s3://b/t"):
        raise RecordError("mine")


@pytest.mark.parametrize(
    ("code", "number", "passes"),
    [
        ("SlowDown", errno.EBUSY, True),
        ("ThrottlingException", errno.EBUSY, True),
        ("503", errno.EBUSY, True),
        ("InternalError", errno.EIO, True),
        ("RequestTimeout", errno.ETIMEDOUT, True),
        ("ExpiredToken", errno.EACCES, False),
        ("AccessDenied", errno.EACCES, False),
        ("NoSuchBucket", errno.ENOENT, False),
        ("AuthorizationHeaderMalformed", errno.EINVAL, False),
        ("NeverHeardOf", errno.EINVAL, False),
    ],
)
def test_codes(code: str, number: int, passes: bool) -> None:
    from botocore.exceptions import ClientError

    answer = ClientError({"Error": {"Code": code, "Message": "Words."}}, "PutObject")
    wrapped = OSError(errno.EIO, "Words.")
    wrapped.__cause__ = answer
    for error in (answer, wrapped):
        actual = storage_error(error, "s3://b/k")
        assert actual.errno == number
        assert code in str(actual)
        assert may_pass(actual) is passes


def test_what_is_explained_already_stays() -> None:
    with pytest.raises(OSError) as outer, failures("s3://b/k"), failures("s3://b/k"):
        raise TimeoutError("late")
    assert str(outer.value) == "[Errno 110] late: 's3://b/k'"
    assert storage_hint(outer.value.errno).startswith("check the endpoint")
    with pytest.raises(OSError, match="KeyError: 'x'") as odd, failures("s3://b/k"):
        raise KeyError("x")
    assert odd.value.errno is None


def test_secrets_of_an_endpoint_are_not_shown() -> None:
    endpoint = "http://me:hidden-password@127.0.0.1:1"
    options = StorageOptions({"endpoint_url": endpoint})
    with pytest.raises(OSError) as error, failures("s3://b/k", options):
        raise ConnectionRefusedError(f"Could not connect to {endpoint}/b/k")
    assert "hidden-password" not in str(error.value)
    assert error.value.errno == errno.ECONNREFUSED


def task_failure(source: str, table: str, reads: Any, writes: Any) -> SingerSparkError:
    """Return the driver's error for a task that reads a file of lines and writes a part."""
    schema = {"properties": {"id": {"type": "integer"}}}
    struct = json_schema_to_spark(schema)
    columns = struct_to_arrow(struct)
    file = InputFile(source, Encoding("jsonl"))
    read = ReadPlan(((Piece(file),),), schema, columns, options=StorageOptions(reads))
    write = TableWrite(table, Encoding("parquet"), struct, StorageOptions(writes))
    number = pa.RecordBatch.from_pydict({"id": [0]})
    try:
        reported = [
            row for batch in load(read, write, columns, [number]) for row in batch.to_pylist()
        ]
    except OSError as error:
        # As Spark passes it on, from the traceback of its worker.
        text = f"Traceback (most recent call last):\n{type(error).__name__}: {error}\n"
        failed = explain(RuntimeError(text), Where(stream="s"), DestinationError)
        failed.__cause__ = RuntimeError(text)
        return failed
    with pytest.raises(SingerSparkError) as raised:
        raise_failure(reported, Where(stream="s"))
    return raised.value


@pytest.mark.parametrize("side", ("read", "write"))
@pytest.mark.parametrize("trouble", ("secret", "bucket", "endpoint"))
def test_tasks(
    server: Any,
    tmp_path: Path,
    free_port: int,
    side: str,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (server.name, trouble) in {("moto", "secret"), ("versitygw", "endpoint")}:
        return  # moto checks no credentials; nobody's endpoint is alike for both
    wrong: dict[str, Any] = dict(server.options)
    if trouble == "secret":
        wrong["aws_secret_access_key"] = "very-wrong-secret-77"
    if trouble == "endpoint":
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        wrong["endpoint_url"] = f"http://127.0.0.1:{free_port}"
    bad = "s3://no-such-bucket/x" if trouble == "bucket" else join(server.folder(), "x")
    local = tmp_path / "in.jsonl"
    local.write_text('{"id":1}\n')
    if side == "read":
        error = task_failure(bad, str(tmp_path / "out"), wrong, {})
    else:
        error = task_failure(str(local), bad, {}, wrong)
    missing = (side, trouble) == ("read", "bucket")
    lasting = SettingsError.exit_code if trouble != "endpoint" else DestinationError.exit_code
    assert settled(error).exit_code == (4 if missing else lasting)
    assert bad in str(error)
    assert "very-wrong-secret-77" not in str(error)
    assert may_pass(error) is (trouble == "endpoint")
    hints = {"secret": "credentials", "bucket": "bucket", "endpoint": "check the endpoint"}
    assert hints[trouble] in str(error)
    assert "executor" not in str(error)


def test_a_refused_connection_is_not_spark() -> None:
    actual = storage_error(ConnectionRefusedError(111, "Connection refused"), "sftp://h/x")
    text = f"Traceback (most recent call last):\nConnectionRefusedError: {actual}"
    assert isinstance(explain(RuntimeError(text)), DestinationError)
