"""Checks of a SCHEMA message if records are validated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from shared.errors import MessageError, Where
from target_spark.core.load_plans import StreamSchema

_log = logging.getLogger(__name__)


def checked(plan: Callable[[StreamSchema], bool]) -> Callable[[StreamSchema], bool]:
    """Return the plan for streams with a check of the schema before it.

    Raises (from the function):
        MessageError: The schema is not valid by the metaschema of the draft.
    """

    def check(stream: StreamSchema) -> bool:
        from target_spark.validation.judge import schema_problem  # noqa: PLC0415

        problem = schema_problem(stream.schema)
        if problem is not None:
            raise MessageError(
                f"the SCHEMA is not a valid JSON Schema (draft 2020-12): {problem}",
                where=Where(stream=stream.stream),
                hint="records cannot be validated; fix the tap, or set `validate_records: false`",
            )
        return plan(stream)

    return check


class SlowKeywords:
    """Logs once for each schema of a stream why the library checks every record."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[str, ...]] = {}

    def log(self, stream: str, schema: Mapping[str, Any], *, files: bool) -> None:
        """Log the slow keywords of a stream's schema if they are new.

        Args:
            stream: Name of the stream.
            schema: The schema for its records.
            files: For rows of files with typed columns.
        """
        from target_spark.validation.validator import RecordValidator  # noqa: PLC0415

        words = RecordValidator(schema, files=files).slow_keywords()
        if words and self._logged.get(stream) != words:
            _log.info(
                "stream '%s': every record is validated by the jsonschema library, which is slow, "
                "because of %s",
                stream,
                ", ".join(words),
            )
        self._logged[stream] = words
