"""The client of web servers, which follows redirects only to places that the settings allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from shared.storage.roots import Roots


class RedirectRefusedError(OSError):
    """A server redirects to a place that the settings do not allow."""


@dataclass(frozen=True)
class GuardedClient:
    """Makes the session of an fsspec file system; file systems differ by its `repr`.

    Attributes:
        reach: Hosts that get what the session sends with each request; None for any.
        bound: Folders that files must be in; None for any.
    """

    reach: Roots | None
    bound: Roots | None

    async def __call__(self, **given: Any) -> Any:
        """Make one."""
        import aiohttp  # noqa: PLC0415

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(self._check)
        return aiohttp.ClientSession(**{**given, "trace_configs": [trace]})

    async def _check(self, _session: Any, _context: Any, params: Any) -> None:
        answer = params.response
        location = answer.headers.get("Location") or answer.headers.get("URI") or ""
        target = urljoin(str(answer.url), location)
        if (self.bound is None or self.bound.hold(target)) and (
            self.reach is None or self.reach.reach(target)
        ):
            return
        host = urlsplit(target).netloc.rpartition("@")[2]
        what = "outside of batch_config.allowed_roots" if self.bound else "without a root there"
        raise RedirectRefusedError(f"the server redirects to '{host}', {what}")
