"""Avro schemas from a schema registry, by its REST interface."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request

from shared.errors import SourceError
from shared.storage.storage_errors import storage_error
from shared.storage.web_requests import open_without_redirects
from shared.transient_failures import may_pass

SECONDS = 30.0
_NOT_FOUND = 404
_BUSY = {429, 500, 502, 503, 504}


@dataclass(frozen=True)
class RegisteredSchema:
    """A version of a subject.

    Attributes:
        number: The id that messages name.
        text: The Avro schema, as JSON.
    """

    number: int
    text: str


class SchemaRegistry:
    """A registry.

    Args:
        url: Its URL, with user and password if it asks for them.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, _, host = parts.netloc.rpartition("@")
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        token = base64.b64encode(unquote(login).encode()).decode()
        self._headers = {"Authorization": f"Basic {token}"} if login else {}

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return every version of a subject, the oldest first.

        Messages may still name deleted ones.

        Raises:
            SourceError: The registry cannot be reached, lacks the subject, or it is not Avro.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        numbers = sorted(self._get(f"{path}?deleted=true", subject))
        found = [self._get(f"{path}/{number}?deleted=true", subject) for number in numbers]
        for version in found:
            kind = version.get("schemaType", "AVRO")
            if kind != "AVRO":
                raise self._error(f"subject '{subject}' has a schema of type {kind}, not AVRO")
            if version.get("references"):
                raise self._error(f"a schema of subject '{subject}' refers to other subjects")
        return tuple(RegisteredSchema(int(one["id"]), str(one["schema"])) for one in found)

    def _get(self, path: str, subject: str) -> Any:
        # The settings allow only http and https.
        request = Request(self._url + path, headers=self._headers)  # noqa: S310
        try:
            with open_without_redirects(request, SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                text = f"it has no subject '{subject}'; set 'value_subject' or 'key_subject'"
                raise self._error(text) from error
            passes = error.code in _BUSY
            raise self._error(f"it answers {error.code} {error.reason}", passes=passes) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            passes = isinstance(reason, OSError) and may_pass(storage_error(reason, self._url))
            raise self._error(str(reason), passes=passes) from error

    def _error(self, text: str, *, passes: bool = False) -> SourceError:
        return SourceError(f"schema registry {self._url}: {text}", passes=passes)
