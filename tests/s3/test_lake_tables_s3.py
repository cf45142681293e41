"""Delta and Iceberg tables on S3: the whole target, configured only by `storage_options`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.spark import s3a
from shared.spark.conf import NO_CODE
from shared.storage.access import StorageOptions, remote
from shared.storage.urls import join

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "tests" / "helpers"
STREAMS = {"delta": ("kept", "merged"), "iceberg": ("kept", "fresh")}
"""S3A is slow: what an upsert and an overwrite do there, one format each shows."""


def delta_rows(table: str, server: Any) -> list[dict[str, Any]]:
    deltalake = pytest.importorskip("deltalake")
    options = {"AWS_ALLOW_HTTP": "true", **server.environment}
    actual: list[dict[str, Any]] = (
        deltalake.DeltaTable(table, storage_options=options).to_pyarrow_table().to_pylist()
    )
    return actual


def iceberg_rows(table: str, server: Any) -> list[dict[str, Any]]:
    static = pytest.importorskip("pyiceberg.table").StaticTable
    filesystem, inside = remote(table, StorageOptions(server.options))
    filesystem.invalidate_cache()
    names = [Path(path).name for path in filesystem.glob(f"{inside}/metadata/v*.metadata.json")]
    newest = max(names, key=lambda name: int(name[1:].partition(".")[0]))
    access = {"access-key-id": "aws_access_key_id", "secret-access-key": "aws_secret_access_key"}
    place = {"endpoint": "endpoint_url", "region": "region_name"}
    properties = {f"s3.{name}": server.options[key] for name, key in {**access, **place}.items()}
    actual = static.from_metadata(f"{table}/metadata/{newest}", properties)
    rows: list[dict[str, Any]] = actual.scan().to_arrow().to_pylist()
    return rows


# The other server does not check credentials.
@pytest.mark.parametrize("server", ["versitygw"], indirect=True)
def test_loads_of_every_method(server: Any, tmp_path: Path, monkeypatch: Any) -> None:
    import lake_story

    events = tmp_path / "events"
    events.mkdir()
    spark = {
        "master": "local[2]",
        "packages": [s3a.PACKAGE],
        "conf": {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.databricks.delta.snapshotPartitions": "1",
            **NO_CODE,
        },
    }
    places = {form: server.folder() for form in STREAMS}
    storage = {"root": server.folder(), "options": server.options}
    listed = [
        lake_story.settings(
            STREAMS[form],
            format=form,
            path=path,
            storage_options=server.options,
            batch_config={"storage": storage},
            spark=spark,
        )
        for form, path in places.items()
    ]
    listed[0]["spark"]["conf"]["spark.sql.catalog.any"] = "org.apache.iceberg.spark.SparkCatalog"
    (tmp_path / "settings.json").write_text(json.dumps(listed))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [
            sys.executable,
            str(HELPERS / "lake_story.py"),
            str(tmp_path / "settings.json"),
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**plain, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    for form, read in (("delta", delta_rows), ("iceberg", iceberg_rows)):
        for stream in STREAMS[form]:
            actual = lake_story.actual(read(join(places[form], stream), server))
            assert actual == lake_story.EXPECTED[stream], (form, stream)
    secret = server.options["aws_secret_access_key"]
    assert secret not in done.stderr
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    assert not any(secret.encode() in path.read_bytes() for path in logs)
