"""Requests with a key or a login, which no server can pass on to another one."""

from __future__ import annotations

from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener


class _NoRedirects(HTTPRedirectHandler):
    """Follows none: another server would get the key. An answer that redirects is an error."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def open_without_redirects(request: Request, seconds: float) -> Any:
    """Send a request to a URL that the settings name, and return the open answer.

    Raises:
        OSError: The server cannot be reached, or answers with an error or a redirect.
    """
    return build_opener(_NoRedirects).open(request, timeout=seconds)
