"""How far a reader walks: files and functions that a run passes, and those that a page names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {"properties": {"id": {"type": "integer"}, "v": {"type": ["null", "string"]}}},
    "key_properties": ["id"],
}
STATE = {"type": "STATE", "value": {"a": 1}}
# Files and functions, with about ten of the latter for what passes by chance or by machine (a beat,
# a signal, a link that the disk refuses). They only get less.
CEILINGS = {
    "record": (73, 465),
    "batch": (86, 556),
    "csv": (51, 298),
}

pytestmark = [
    pytest.mark.once,
    pytest.mark.pipe,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified name"),
]


def walk(folder: Path, program: str, config: object, *messages: object) -> list[tuple[str, str]]:
    """Run a program; return the file and function of each first call."""
    settings = folder / "settings.json"
    settings.write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "tools.trace", program, "--config", str(settings)],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        cwd=ROOT,
        # Folders that killed runs have left would be removed on the way.
        env={n: t for n, t in os.environ.items() if n != "LOGLEVEL"} | {"TMPDIR": str(folder)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = re.findall(r"^((?:shared|\w+_spark)/[\w/]+\.py) (\S+)$", done.stderr, re.MULTILINE)
    assert lines
    return lines


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """Return what a RECORD into Parquet, a BATCH into Delta and a CSV file out pass."""
    folder = tmp_path_factory.mktemp("walks")
    record = {"type": "RECORD", "stream": "s", "record": {"id": 1, "v": "a"}}
    # Of so many rows that columns are copied.
    rows = pa.table({"id": range(30_000), "v": ["a"] * 30_000})
    pq.write_table(rows, folder / "b.parquet", write_page_checksum=True)
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "parquet"},
        "manifest": [(folder / "b.parquet").as_uri()],
    }
    (folder / "o.csv").write_text("id,v\n1,a\n")
    stream = {"name": "o", "format": "csv", "path": str(folder / "o.csv")}
    files, lake = {"path": str(folder / "out")}, {"path": str(folder / "lake"), "format": "delta"}
    return {
        "record": walk(folder, "target", files, SCHEMA, record, STATE),
        "batch": walk(folder, "target", lake, SCHEMA, batch, STATE),
        "csv": walk(folder, "tap", {"streams": [stream]}),
    }


@pytest.mark.parametrize("run", CEILINGS)
def test_a_run_passes_no_more_than_before(
    run: str, walks: dict[str, list[tuple[str, str]]]
) -> None:
    files, functions = CEILINGS[run]
    assert len({file for file, _ in walks[run]}) <= files
    assert len(walks[run]) <= functions, "\n".join(" ".join(place) for place in walks[run])


@pytest.mark.parametrize(
    ("run", "heading"),
    [
        ("csv", "`tap-spark` without Spark:"),
        ("record", "`target-spark` into Parquet files:"),
        ("batch", "## Follow one batch file"),
    ],
)
def test_the_page_names_what_a_run_passes_in_order(
    run: str, heading: str, walks: dict[str, list[tuple[str, str]]]
) -> None:
    _, _, text = PAGE.partition(heading)
    text = re.split(r"\n(?:## |`target-spark`)", text)[0]
    named = [
        (file, function)
        for file, functions in re.findall(
            r"^\d+\. `(\S+\.py)`: ((?:`\S+`,? ?)+)", text + "\n", re.M
        )
        for function in re.findall(r"`([^`]+)`", functions)
    ]
    assert len(named) > 12
    passed = [place for place in walks[run] if place in named]
    assert passed == named
