"""The lock of tables on a local disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shared.errors import DestinationError
from target_spark.destinations.lakes import lake_table
from target_spark.destinations.lakes.lake_table import one_writer

HOLD = """
import sys
from target_spark.destinations.lakes.lake_table import one_writer
with one_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time_within_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_table, "_PAUSE", 0.0)
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with one_writer(str(tmp_path / "t")):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert set(most) == {1}


def test_another_process_is_waited_for_and_its_end_frees_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path / "new" / "t")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, table], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    waits: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(lake_table, "LONGEST_WAIT", 1)
        patch.setattr(lake_table.time, "sleep", waits.append)
        with (
            pytest.raises(DestinationError, match=r"another program.*for 1 s"),
            one_writer(table),
        ):
            pytest.fail("two hold it")
    assert sum(waits) == pytest.approx(1)
    with one_writer(str(tmp_path / "new" / "other")):
        pass
    other.kill()
    other.wait()
    with one_writer(table):
        pass
    assert not Path(table).exists()


@pytest.mark.parametrize("folder", [None, "s3://bucket/t"])
def test_tables_elsewhere_go_without(folder: str | None) -> None:
    with one_writer(folder), one_writer(folder):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match="file/x/t"), one_writer(f"{tmp_path}/file/x/t"):
        pytest.fail("held")
