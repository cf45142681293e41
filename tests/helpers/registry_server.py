"""A schema registry on loopback: the two requests of its REST interface that readers send."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LOGIN = "registry:p w"


class RegistryServer:
    """A running registry.

    Args:
        subjects: For each its versions, the oldest first: their ids and Avro schemas.
        needs_login: Whether it asks for user and password.
        deleted: Numbers of versions, counted from 1, that are shown only if a request wants them.
    """

    def __init__(
        self,
        subjects: Mapping[str, Sequence[tuple[int, Any]]],
        *,
        needs_login: bool = False,
        deleted: Collection[int] = (),
    ) -> None:
        registry = self
        self.subjects = subjects
        self.deleted = deleted
        self.needs_login = needs_login

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = registry.answer(self.path, self.headers.get("Authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        login = "registry:p%20w@" if self.needs_login else ""
        return f"http://{login}127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, login: str | None) -> tuple[int, Any]:
        """Return the status and JSON value that a path gives."""
        if self.needs_login and login != f"Basic {base64.b64encode(LOGIN.encode()).decode()}":
            return 401, {"error_code": 401}
        _, kind, subject, what, *rest = map(unquote, urlsplit(path).path.split("/"))
        versions = self.subjects.get(subject)
        if (kind, what) != ("subjects", "versions") or versions is None:
            return 404, {"error_code": 40401}
        hidden = () if urlsplit(path).query == "deleted=true" else self.deleted
        numbers = [number for number in range(1, len(versions) + 1) if number not in hidden]
        if not (numbers if not rest else int(rest[0]) in numbers):
            return 404, {"error_code": 40401}
        if not rest:
            return 200, numbers
        number, schema = versions[int(rest[0]) - 1]
        if isinstance(schema, str):
            return 200, {"id": number, "schema": schema, "schemaType": "PROTOBUF"}
        return 200, {"subject": subject, "id": number, "schema": json.dumps(schema)}

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
