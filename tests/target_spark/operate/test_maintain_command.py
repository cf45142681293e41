"""The command `maintain`, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from target_spark.cli import main


def test_formats_that_cannot_be_maintained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tmp_path / "config.json"
    settings.write_text('{"path": "x"}')
    assert main(["maintain", "--config", str(settings)]) == 2
    assert "tables of the format 'parquet' cannot be maintained" in caplog.text
