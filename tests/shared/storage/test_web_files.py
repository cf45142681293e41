"""Batch files on a real web server: what it is sent, and where it may lead on to. No Spark."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from shared.errors import MessageError
from shared.formats.file_formats import Encoding
from shared.settings.batch_settings import BatchConfig
from target_spark.convert.batch_files import batch_options, resolve_files
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import UnreadableInputError, read_task
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile
from target_spark.run_settings import TargetConfig

pytestmark = pytest.mark.once

SECRET = "Sesame-0pen-now"
HEADERS = {"headers": {"X-Api-Key": SECRET}}
DATA = gzip.compress(b'{"id":1}\n{"id":2}\n')
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


class Server(ThreadingHTTPServer):
    """Serves files, and redirects; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str | None]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("X-Api-Key")))
        if self.path in self.server.redirects:
            code, target = self.server.redirects[self.path]
            self.send_response(code)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = self.server.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data or b"")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    actual = Server()
    yield actual
    actual.shutdown()
    actual.server_close()


@pytest.fixture
def other() -> Iterator[Server]:
    yield from server.__wrapped__()  # type: ignore[attr-defined]


def load(url: str, **batch: Any) -> list[Any]:
    """Return the rows of a file that a manifest names, as an executor reads them."""
    config = TargetConfig(path="/tables", batch_config=BatchConfig(**batch))
    (file,) = resolve_files([InputFile(url, Encoding("jsonl"))], "s", batch.get("allowed_roots"))
    plan = ReadPlan((), SCHEMA, pa.schema([("id", pa.int64())]), options=batch_options(config))
    return [row for table in read_task(plan, [Piece(file)], Rejects()) for row in table.to_pylist()]


ROWS = [{"id": 1}, {"id": 2}]


def test_a_file_below_a_root(server: Server) -> None:
    server.files["/in/a"] = DATA
    roots = (server.url("/in"),)
    assert load(server.url("/in/a"), allowed_roots=roots, options=HEADERS) == ROWS
    assert {secret for _, secret in server.asked} == {SECRET}


@pytest.mark.parametrize("written", ["/in/%2e%2e/b", "/in/..%2fb", "/in/../b", "/in/a?x=/../../b"])
def test_ways_out_are_not_asked_for(server: Server, written: str) -> None:
    server.files["/b"] = DATA
    with pytest.raises(MessageError, match="allowed_roots"):
        load(server.url(written), allowed_roots=(server.url("/in"),))
    assert server.asked == []


@pytest.mark.parametrize(
    ("code", "target"),
    [*((code, "{other}/in/b") for code in (301, 302, 303, 307, 308)),
     *((302, target) for target in ("/out/b", "/in/../out/b", "/in/%2e%2e/out/b"))],
)  # fmt: skip
def test_redirects_out_of_the_roots(server: Server, other: Server, code: int, target: str) -> None:
    other.files["/in/b"] = server.files["/out/b"] = DATA
    server.redirects["/in/a"] = (code, target.format(other=other.url("")))
    with pytest.raises(UnreadableInputError, match=r"redirects to .*outside of .*allowed_roots"):
        load(server.url("/in/a"), allowed_roots=(server.url("/in"),), options=HEADERS)
    assert other.asked == []
    assert {path for path, _ in server.asked} == {"/in/a"}


def test_redirects_within_the_roots(server: Server, other: Server) -> None:
    other.files["/in/b"] = DATA
    server.redirects |= {"/in/a": (302, "a2"), "/in/a2": (307, other.url("/in/b"))}
    roots = (server.url("/in"), other.url("/in"))
    assert load(server.url("/in/a"), allowed_roots=roots) == ROWS


def test_options_stay_with_hosts_of_roots(server: Server, other: Server) -> None:
    """Without `allowed_roots` a file may be anywhere, but not every host gets the password."""
    server.files["/a"] = other.files["/a"] = DATA
    root = server.url("/elsewhere")
    assert load(other.url("/a"), root=root, options=HEADERS) == ROWS
    assert {secret for _, secret in other.asked} == {None}
    assert load(server.url("/a"), root=root, options=HEADERS) == ROWS
    assert {secret for _, secret in server.asked} == {SECRET}


def test_no_root_no_options(server: Server) -> None:
    server.files["/a"] = DATA
    assert load(server.url("/a"), options=HEADERS) == ROWS
    assert {secret for _, secret in server.asked} == {None}


def test_a_redirect_does_not_take_options_along(server: Server, other: Server) -> None:
    other.files["/b"] = DATA
    server.redirects["/a"] = (302, other.url("/b"))
    with pytest.raises(UnreadableInputError, match=r"redirects to .*without a root there"):
        load(server.url("/a"), root=server.url("/"), options=HEADERS)
    assert other.asked == []
    assert load(server.url("/a")) == ROWS
    assert json.dumps(other.asked).count(SECRET) == 0
