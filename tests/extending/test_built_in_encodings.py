"""The suite for encodings over every built-in one."""

from __future__ import annotations

import pytest

from shared.encodings.encoding_format import BUILT_IN
from shared.testing import EncodingSuite

pytestmark = pytest.mark.once


class TestSinger(EncodingSuite):
    form = BUILT_IN["singer"]


class TestJsonl(EncodingSuite):
    form = BUILT_IN["jsonl"]


class TestJson(EncodingSuite):
    form = BUILT_IN["json"]


class TestParquet(EncodingSuite):
    form = BUILT_IN["parquet"]


class TestOrc(EncodingSuite):
    form = BUILT_IN["orc"]
    # Arrow reads instants of ORC files only if they fit in nanoseconds.
    cannot_hold = ("clock", "span", "months", "at", "local", "in.side")


class TestCsv(EncodingSuite):
    form = BUILT_IN["csv"]


class TestAvro(EncodingSuite):
    form = BUILT_IN["avro"]


class TestArrow(EncodingSuite):
    form = BUILT_IN["arrow"]


def test_every_encoding_of_this_package_is_tested() -> None:
    created = [kind for kind in globals().values() if isinstance(kind, type)]
    tested = {kind.form.name for kind in created if "form" in vars(kind)}
    assert tested == set(BUILT_IN)
