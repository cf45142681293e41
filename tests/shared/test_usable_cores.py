"""How many cores a run takes: those of its container, not of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.singer import platform


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 16),
        ({"cpu.max": "max 100000\n"}, 16),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "6400000 100000\n"}, 16),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 16),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_a_quota_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(platform.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(platform.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert platform.usable_cores(tmp_path, tmp_path / "none") == expected


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({"a.slice/b.service": "200000 100000", ".": "max 100000"}, 2),
        ({"a.slice/b.service": "max 100000", "a.slice": "300000 100000"}, 3),
        ({"other.slice": "100000 100000"}, 16),
    ],
)
def test_a_quota_of_a_service_or_of_what_it_is_part_of_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, str], expected: int
) -> None:
    groups, own = tmp_path / "groups", tmp_path / "own"
    for name, text in quotas.items():
        (groups / name).mkdir(parents=True, exist_ok=True)
        (groups / name / "cpu.max").write_text(text + "\n")
    own.write_text("1:name=systemd:/x\n0::/a.slice/b.service\n")
    monkeypatch.setattr(platform.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert platform.usable_cores(groups, own) == expected


@pytest.mark.parametrize(("counted", "expected"), [(None, 1), (8, 8)])
def test_without_affinity_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None, expected: int
) -> None:
    monkeypatch.delattr(platform.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(platform.os, "cpu_count", lambda: counted)
    assert platform.usable_cores(tmp_path) == expected
