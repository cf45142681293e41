"""Names of the files that a stream has all rows of. Pure."""

from __future__ import annotations

import hashlib
import os

from shared.storage.urls import local_path
from tap_spark.state.stream_plans import StreamPlan


def source_name(plan: StreamPlan, machine: str) -> str | None:
    """Return a name that only streams of the same paths share; None for streams of anything else.

    Args:
        plan: The stream; one with bookmarks or of a range may lack rows of its files.
        machine: Name of the machine, whose files are not those of others.
    """
    if plan.version is None or not plan.config.paths:
        return None
    if plan.start_value is not None or plan.end_value is not None:
        return None
    places = [_place(path, machine) for path in sorted(plan.config.paths)]
    return hashlib.sha256("\0".join(places).encode(errors="surrogatepass")).hexdigest()[:24]


def _place(path: str, machine: str) -> str:
    local = local_path(path)
    return path if local is None else f"{machine}:{os.path.abspath(local)}"  # noqa: PTH100
