"""What the programs log, told apart from threads that other tests have left behind."""

from __future__ import annotations

from logging import LogRecord

import pytest

_OWN = ("shared.", "tap_spark.", "target_spark.")


def own_records(caplog: pytest.LogCaptureFixture) -> list[LogRecord]:
    """Return the records of this project's loggers: exporters of others retry for seconds."""
    return [record for record in caplog.records if record.name.startswith(_OWN)]
