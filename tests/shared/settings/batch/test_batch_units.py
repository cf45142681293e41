"""Durations and sizes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from batch_documents import calm
from hypothesis import given
from hypothesis import strategies as st

from shared.settings.checking import (
    DURATION_UNITS,
    SIZE_UNITS,
    byte_count,
    duration_text,
    milliseconds,
    size_text,
)

DURATIONS = [
    (0, 0),
    (1, 1),
    (250, 250),
    (1.5, 1.5),
    ("0", 0),
    ("250", 250),
    ("250ms", 250),
    ("250 ms", 250),
    ("250  ms", 250),
    (" 250 ms ", 250),
    ("0.5ms", 0.5),
    ("1s", 1_000),
    ("1.5s", 1_500),
    ("01s", 1_000),
    ("2m", 120_000),
    ("0.1m", 6_000),
    ("3h", 10_800_000),
    ("1d", 86_400_000),
    ("365d", 31_536_000_000),
    ("1 millisecond", 1),
    ("500 milliseconds", 500),
    ("1 second", 1_000),
    ("30 seconds", 30_000),
    ("1 minute", 60_000),
    ("5 minutes", 300_000),
    ("1 hour", 3_600_000),
    ("2 hours", 7_200_000),
    ("1 day", 86_400_000),
    ("7 days", 604_800_000),
    ("5minutes", 300_000),
]

WRONG_DURATIONS = [
    "",
    " ",
    "s",
    "ms",
    "-1s",
    "+1s",
    "1 S",
    "1 MS",
    "1 Minutes",
    "1 sec",
    "1 min",
    "1 month",
    "1w",
    "1e3ms",
    "1,5s",
    "1.s",
    ".5s",
    "1.5.5s",
    "0x10s",
    "1s1ms",
    "1h 30m",
    "inf",
    "NaN",
    "1_000ms",
    "1s\n",
    "1\ns",
    "1\ts",
    "٣s",
    "1 s s",
    "PT1S",
]

SIZES = [
    (0, 0),
    (1, 1),
    (1048576, 1048576),
    ("1", 1),
    ("1048576", 1048576),
    ("1B", 1),
    ("1b", 1),
    ("1 byte", 1),
    ("12 bytes", 12),
    ("1KB", 1_000),
    ("1kB", 1_000),
    ("1kb", 1_000),
    ("512 KB", 512_000),
    ("64MB", 64_000_000),
    ("64 mb", 64_000_000),
    ("1GB", 1_000_000_000),
    ("1TB", 1_000_000_000_000),
    ("1KiB", 1024),
    ("1kiB", 1024),
    ("1kib", 1024),
    ("1 MiB", 1_048_576),
    ("1mib", 1_048_576),
    ("1GiB", 1_073_741_824),
    ("1TiB", 1_099_511_627_776),
    ("1.5 KiB", 1536),
    ("0.5 MiB", 524_288),
    ("1.0001 KB", 1000),
    ("0.3B", 0),
    ("  7 KB  ", 7000),
]

WRONG_SIZES = [
    "",
    "MiB",
    "-1 MiB",
    "1 Mb",
    "1 MIB",
    "1 mIb",
    "1 M",
    "1k",
    "1 PB",
    "1 Bytes",
    "1 megabyte",
    "1e6",
    "1,000",
    "1MB\n",
    "1.",
    "ten MB",
]


@pytest.mark.parametrize(("value", "expected"), DURATIONS)
def test_reads_a_duration(value, expected):
    assert milliseconds(value) == Decimal(str(expected))


@pytest.mark.parametrize("value", WRONG_DURATIONS)
def test_refuses_what_is_no_duration(value):
    with pytest.raises(ValueError, match="is not a number with a unit"):
        milliseconds(value)


@pytest.mark.parametrize(("value", "expected"), SIZES)
def test_reads_a_size(value, expected):
    assert byte_count(value) == expected


@pytest.mark.parametrize("value", WRONG_SIZES)
def test_refuses_what_is_no_size(value):
    with pytest.raises(ValueError, match="is not a number with a unit"):
        byte_count(value)


@calm
@given(st.integers(0, 31_536_000_000))
def test_a_duration_written_reads_back(amount):
    assert milliseconds(duration_text(amount)) == amount


@calm
@given(st.decimals(0, 10**9, places=3))
def test_a_fraction_of_milliseconds_reads_back(amount):
    assert milliseconds(duration_text(amount)) == amount


@calm
@given(st.integers(0, 2**62))
def test_a_size_written_reads_back(count):
    assert byte_count(size_text(count)) == count


@calm
@given(st.integers(0, 10**6), st.sampled_from(sorted(DURATION_UNITS)))
def test_a_unit_multiplies_a_duration(number, unit):
    assert milliseconds(f"{number} {unit}") == number * DURATION_UNITS[unit]
    assert milliseconds(f"{number}{unit}") == number * DURATION_UNITS[unit]


@calm
@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZE_UNITS)))
def test_a_unit_multiplies_a_size(number, unit):
    assert byte_count(f"{number} {unit}") == number * SIZE_UNITS[unit]
    assert byte_count(f"{number}{unit.lower()}") == number * SIZE_UNITS[unit]


@calm
@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    for read in (milliseconds, byte_count):
        try:
            assert read(text) >= 0
        except ValueError as error:
            assert "is not a number with a unit" in str(error)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0ms"),
        (1, "1ms"),
        (1500, "1500ms"),
        (1000, "1s"),
        (90_000, "90s"),
        (120_000, "2m"),
        (3_600_000, "1h"),
        (172_800_000, "2d"),
    ],
)
def test_writes_a_duration_with_its_largest_whole_unit(amount, text):
    assert duration_text(amount) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1000, "1000 B"),
        (1024, "1 KiB"),
        (1536, "1536 B"),
        (2**20, "1 MiB"),
        (3 * 2**30, "3 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_writes_a_size_with_its_largest_whole_unit(count, text):
    assert size_text(count) == text
