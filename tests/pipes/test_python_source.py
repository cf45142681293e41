"""The worked example of a REST API as a stream, against a server, through the real programs."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow.parquet as pq
import pytest
from pipe_programs import Programs

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
SAMPLE = Path(__file__).resolve().parents[2] / "sample_configs" / "python_source"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def item(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"Zoë {number}",
        "amount": f"{number}.50",
        "updated_at": (START + timedelta(hours=number)).isoformat(),
    }


@dataclass
class Api:
    """A paged API that is busy at times."""

    items: list[dict[str, Any]]
    asked: list[dict[str, str]] = field(default_factory=list)
    busy: int = 1
    url: str = ""

    def answer(self, query: dict[str, str]) -> dict[str, Any] | None:
        if self.busy:
            self.busy -= 1
            return None
        self.asked.append(query)
        since = datetime.fromisoformat(query.get("since", START.isoformat()))
        actual = [i for i in self.items if datetime.fromisoformat(i["updated_at"]) >= since]
        size, page = int(query["per_page"]), int(query["page"])
        return {
            "pages": -(-len(actual) // size),
            "items": actual[(page - 1) * size : page * size],
        }


@pytest.fixture
def api() -> Iterator[Api]:
    served = Api([item(number) for number in range(1, 26)])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            right = url.path == "/orders" and self.headers["Authorization"] == "Bearer hush"
            body = served.answer(query) if right else {"error": "no"}
            self.send_response(503 if body is None else 200 if right else 401)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/orders"
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


def loaded(folder: Path) -> list[dict[str, Any]]:
    columns = ["id", "name", "amount", "updated_at"]
    actual = [
        row
        for file in folder.rglob("*.parquet")
        if not any(part[0] in "._" for part in file.relative_to(folder).parts)
        for row in pq.ParquetFile(file).read(columns=columns).to_pylist()
    ]
    return sorted(actual, key=lambda row: int(row["id"]))


def as_sent(row: dict[str, Any]) -> dict[str, Any]:
    moment = row["updated_at"].astimezone(timezone.utc).isoformat()
    return {**row, "amount": str(row["amount"]), "updated_at": moment}


def test_a_rest_api_is_a_stream(programs: Programs, api: Api) -> None:
    shutil.copy(SAMPLE / "rest_source.py", programs.folder)
    config = json.loads((SAMPLE / "tap.json").read_text())
    del config["spark"]
    options = {"url": api.url, "per_page": 10, "token": "hush"}
    config["streams"][0]["options"] = options
    target = {"path": "out", "format": "parquet", "load_method": "append-only"}
    first = programs.pipe(config, target).check()
    assert [as_sent(row) for row in loaded(programs.folder / "out")] == api.items
    assert {query["page"] for query in api.asked} == {"1", "2", "3"}
    assert "hush" not in first.tap_log

    api.asked.clear()
    api.items += [item(number) for number in range(26, 29)]
    refused = {**config["streams"][0], "name": "refused", "options": {**options, "token": "wrong"}}
    config["streams"].append(refused)
    second = programs.run(programs.tap_command(config, first.state))
    assert second.returncode == 3, second.stderr
    messages = [json.loads(line) for line in second.stdout.splitlines()]
    ids = [m["record"]["id"] for m in messages if m["type"] == "RECORD"]
    # The bookmark is inclusive: the last row comes once more.
    assert sorted(ids) == [25, 26, 27, 28]
    assert all(query["since"].startswith("2026-01-02T01:00") for query in api.asked)

    line = second.stderr.decode().splitlines()[-1]
    assert "stream 'refused', file '" in line
    assert "rest_source.py', line" in line
    assert "HTTPError: HTTP Error 401" in line
