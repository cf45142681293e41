"""Events as JSON by HTTP, sent in the background: a receiver that is down or slow delays nobody."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.request import Request

from shared.storage.urls import shown
from shared.storage.web_requests import open_without_redirects

_log = logging.getLogger(__name__)

MOST_WAITING = 64
"""Events that wait at most; older ones are dropped."""
TIMEOUT_SECONDS = 5.0
"""Longest wait for the receiver of one event."""


class EventSender:
    """Sends events in order, each once; the first that is lost is a warning, the others are not.

    Args:
        url: Where to POST them.
        headers: For each of them.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", **headers}
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MOST_WAITING)
        self._changed = threading.Condition()
        self._is_busy = False
        self._has_warned = False
        threading.Thread(target=self._run, name="openlineage", daemon=True).start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event soon; return at once."""
        with self._changed:
            self._waiting.append(event)
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until everything was sent or lost, but not for longer than so many seconds."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._is_busy:
                left = until - time.monotonic()
                if left <= 0:
                    self._lost(f"no answer within {seconds:g} s")
                    return
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                while not self._waiting:
                    self._changed.wait()
                event = self._waiting.popleft()
                self._is_busy = True
            try:
                self._post(json.dumps(event, default=str).encode())
            except Exception as error:
                self._lost(str(getattr(error, "reason", None) or type(error).__name__))

    def _post(self, body: bytes) -> None:
        request = Request(self._url, body, self._headers, method="POST")  # noqa: S310
        with open_without_redirects(request, TIMEOUT_SECONDS):
            pass

    def _lost(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("OpenLineage events are lost: %s: %s", shown(self._url), reason)
