"""A lease on S3: an object that is only ever written conditionally, with a sign of life.

The holder writes the object again and again. Whoever has seen it unchanged for as long as the
object itself says takes it over; no two machines compare their clocks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shared.errors import causes
from shared.storage.files import StorageOptions, remote
from shared.storage.process_owner import ENDED, LIVING, owner_status, process_owner
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.leases.lease import Holder, NoLeasesError, holder_of

_REFUSED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey"})
_UNKNOWN = frozenset({"NotImplemented", "501"})


class S3Lease:
    """See `Lease`.

    Args:
        url: The object.
        options: Of the storage.
        holder: This run.
        expiry: Seconds without a sign of life after which others may take it over.
        clock: Returns seconds.
    """

    def __init__(
        self,
        url: str,
        options: StorageOptions,
        holder: Holder,
        expiry: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._options = options
        self._holder = holder
        self._expiry = expiry
        self._clock = clock
        self._beats = 0
        self._tag: str | None = None
        self._seen: tuple[str, float] | None = None

    def take(self) -> Holder | None:
        """See `Lease`. A holder of another machine is not known to live before it is seen to."""
        with writing(self._url, self._options):
            if self._tag is not None:
                return None
            found = self._read()
            if found is None:
                if self._put(IfNoneMatch="*"):
                    self._prove()
                    return None
                found = self._read()
                if found is None:
                    return Holder(is_alive=False)
            tag, content = found
            other = holder_of(content.get("holder"))
            if other.run == self._holder.run:
                self._tag = tag  # The answer to our own request was lost.
                return None
            is_alive = self._is_alive(tag, content)
            if is_alive is False and self._put(IfMatch=tag):
                return None
            return Holder(other.run, other.host, other.pid, other.since, is_alive is True)

    def renew(self) -> bool:
        """See `Lease`."""
        with writing(self._url, self._options):
            if self._tag is None:
                return False
            if self._put(IfMatch=self._tag):
                return True
            # If it is gone, another run may have had it.
            tag, content = self._read() or ("", {})
            is_ours = holder_of(content.get("holder")).run == self._holder.run
            self._tag = tag if is_ours else None
            return is_ours

    def release(self) -> None:
        """See `Lease`."""
        if self.renew():
            with writing(self._url, self._options):
                self._remove()

    def _is_alive(self, tag: str, content: dict[str, Any]) -> bool | None:
        """Return whether the holder lives; None if that is not known yet."""
        status = owner_status(content.get("owner") or {})
        if status in {LIVING, ENDED}:
            return status == LIVING
        now, before = self._clock(), self._seen
        if before is None or before[0] != tag:
            self._seen = tag, now
            return None if before is None else True
        expiry = content.get("expiry")
        unchanged = now - before[1]
        return False if unchanged > (expiry if isinstance(expiry, int | float) else 0) else None

    def _prove(self) -> None:
        """Raise NoLeasesError if the storage ignores conditions."""
        if self._put(IfNoneMatch="*"):
            self._remove()
            raise NoLeasesError("the storage ignores the conditions of writes")

    def _remove(self) -> None:
        self._tag = None
        filesystem, path = remote(self._url, self._options)
        with suppress(FileNotFoundError):
            filesystem.rm_file(path)

    def _put(self, **condition: str) -> bool:
        """Write the object if a condition holds; return whether it does."""
        filesystem, path = remote(self._url, self._options)
        bucket, key, _ = filesystem.split_path(path)
        self._beats += 1
        content = {
            "holder": self._holder.to_json(),
            "owner": process_owner(),
            "expiry": self._expiry,
            "beat": self._beats,
        }
        body = json.dumps(content).encode()
        try:
            answer = filesystem.call_s3(
                "put_object", Bucket=bucket, Key=key, Body=body, **condition
            )
        except Exception as error:
            code = _code(error)
            if code in _UNKNOWN:
                raise NoLeasesError("the storage has no conditional writes") from error
            if code in _REFUSED:
                return False
            raise
        self._tag = str(answer["ETag"])
        return True

    def _read(self) -> tuple[str, dict[str, Any]] | None:
        filesystem, path = remote(self._url, self._options)
        bucket, key, _ = filesystem.split_path(path)
        try:
            tag = str(filesystem.call_s3("head_object", Bucket=bucket, Key=key)["ETag"])
            content = json.loads(filesystem.cat_file(path))
        except FileNotFoundError:
            return None
        except ValueError:
            content = None
        return tag, content if isinstance(content, dict) else {}


def _code(error: BaseException) -> str:
    """Return the code of the server's answer; `NotImplemented` if the client has no conditions."""
    for cause in causes(error, suppressed=True):
        if type(cause).__name__ == "ParamValidationError":
            return "NotImplemented"
        response = getattr(cause, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):
            return str(response["Error"].get("Code") or "")
    return ""
