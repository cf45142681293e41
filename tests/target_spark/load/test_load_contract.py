"""A destination of someone else needs the contract of loading alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from engines import threads
from mapped_bench import record, schema, state
from whole_runs import run_target

from shared.errors import SettingsError
from shared.formats.file_formats import Encoding
from target_spark.config import REGISTRY
from target_spark.core.differences import Verification
from target_spark.destinations.destination import Destination, Flush, TableWrite
from target_spark.destinations.destination_declaration import Declaration, Supports
from target_spark.load.loader import Loader
from target_spark.operate import table_maintenance, trial_runs
from target_spark.run_settings import TargetConfig

MESSAGES = [schema("s", {"id": {"type": "integer"}}), record("s", {"id": 1}), state({"at": 1})]
ROWS: list[Any] = []


class Kept(Destination):
    """Keeps rows in memory."""

    def __init__(self, config: TargetConfig, _: object) -> None:
        self.path = config.path

    def prepare(self, request: Any) -> TableWrite:
        return TableWrite(self.path, Encoding("parquet", "none"), request.struct)

    def commit(self, flush: Flush) -> None:
        for part in flush.parts:
            ROWS.extend(pq.read_table(part.url)["id"].to_pylist())


KEPT = Declaration("kept", "memory", Kept, needs_spark=lambda _: "")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetConfig:
    monkeypatch.setitem(REGISTRY.declarations, KEPT.name, KEPT)  # type: ignore[arg-type]
    ROWS.clear()
    return TargetConfig(format=KEPT.name, path=str(tmp_path))


def load(config: TargetConfig, messages: Sequence[Any] = MESSAGES) -> list[bytes]:
    return run_target(config, Loader(config, threads()), Path(config.path), messages)


def test_it_loads(config: TargetConfig) -> None:
    assert load(config) == [b'{"at": 1}\n']
    assert ROWS == [1]


def test_operating_on_it_says_what_it_lacks(config: TargetConfig) -> None:
    with pytest.raises(SettingsError, match=r"'kept' cannot hold rows .* lacks `Operations.audit`"):
        load(replace(config, write_audit_publish=True))
    ROWS.clear()
    keyed = {**MESSAGES[0], "key_properties": ["id"]}
    compared = replace(config, verification=Verification(print))
    with pytest.raises(SettingsError, match=r"'kept' cannot compare .* lacks `Operations.verify`"):
        load(compared, [keyed, *MESSAGES[1:]])
    assert ROWS == []
    with pytest.raises(SettingsError, match="'kept' cannot be verified"):
        trial_runs.check_compared(config, repair=False)
    with pytest.raises(SettingsError, match="'kept' does not keep earlier versions"):
        table_maintenance.check_kept(config)
    with pytest.raises(SettingsError, match="'kept' cannot be maintained"):
        table_maintenance.check_kept(config, maintains=True)


def test_what_can_be_verified_has_operations() -> None:
    with pytest.raises(ValueError, match=r"'supports.verify' needs 'operate'"):
        replace(KEPT, supports=Supports(verify=True))
