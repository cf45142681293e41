"""The report of a run: one page with all its numbers."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from shared.errors import RecordError
from shared.singer.datasets import Dataset
from shared.singer.run_report import html_report
from shared.singer.run_summary import RunSummary, summarized


class Page(HTMLParser):
    """Checks that tags are closed, and collects texts and what a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.loads += [str(v) for k, v in attrs if k in {"src", "href", "data", "srcset"}]
        assert tag != "script"
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def summary() -> RunSummary:
    created = RunSummary("target-spark")
    created.add("a<b>&", received=1200, flushes=2)
    created.add("other", received=3)
    created.add_to_table("a<b>&", "table", ["add the column 'x'"], committed=1199, merged=1)
    created.moved(1200)
    return created


def test_all_numbers_are_on_the_page() -> None:
    page = Page(html_report(summary().as_dict(None)))
    assert page.loads == []
    for text in ("a<b>&", "other", "1,200", "1,199", "success", "merged", "add the column 'x'"):
        assert any(text in actual for actual in page.texts), text


HOSTILE = """'"><script>alert(1)</script><img src=//x>&amp;</details></style>"""


def both() -> list[dict[str, Any]]:
    tap = RunSummary("tap-spark")
    tap.add(HOSTILE, sent=1300, bytes=70_000)
    tap.note(HOSTILE, engine="threads", engine_reason="0.1 of 256 MiB", method=HOSTILE)
    target = summary()
    target.describe(destination={"format": HOSTILE, "place": HOSTILE})
    target.add(HOSTILE, received=1300, rejected=7)
    target.note(HOSTILE, undeclared={HOSTILE: 11})
    target.add_to_table(HOSTILE, HOSTILE, [HOSTILE], committed=1293)
    dataset = Dataset(HOSTILE, "s3://bucket", table=HOSTILE)
    target.uses(HOSTILE, lambda: [dataset], is_output=True)
    target.profile(HOSTILE, 4, {HOSTILE: (1, HOSTILE, HOSTILE)})
    return [tap.as_dict(None), {**target.as_dict(RecordError(HOSTILE)), "drift": [HOSTILE]}]


def test_one_page_for_both_programs_whatever_names_they_meet() -> None:
    tap, target = both()
    page = Page(html_report(tap, target, title=HOSTILE))
    assert page.loads == []
    shown = [text for text in page.texts if HOSTILE in text]
    # Title and head, error, drift, destination, stream, method, undeclared, table (thrice), change,
    # place, column, least, greatest.
    assert len(shown) >= 15
    ids = (tap["run_id"], target["run_id"], target["program_version"])
    for text in (*ids, "1,300", "1,293", "7", "70,000", "25.00%", "threads (0.1 of 256 MiB)"):
        assert any(text in actual for actual in page.texts), text


def test_a_stream_has_one_row_for_both_programs() -> None:
    texts = Page(html_report(*both())).texts
    streams = texts[texts.index("Streams") : texts.index("Tables")]
    assert streams.count(HOSTILE) == 2  # Its name, and its method.
    assert {"sent", "bytes sent", "received", "rejected", "read by"} <= set(streams)


def test_the_page_fits_phones_and_dark_rooms() -> None:
    page = html_report(*both())
    assert 'name="viewport"' in page
    assert "color-scheme: light dark" in page
    assert "@media (max-width: 700px)" in page
    assert 'data-name="bytes sent"' in page


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    with pytest.raises(RecordError), summarized("target-spark", report=str(path)):
        raise RecordError("<not> a number")
    page = Page(path.read_text())
    assert "exit code 5" in page.texts
    assert any("<not> a number" in actual for actual in page.texts)
    assert [path] == list(tmp_path.iterdir())


def test_a_run_without_rows() -> None:
    page = Page(html_report(RunSummary("tap-spark").as_dict(None)))
    assert any(text.endswith("no rows.") for text in page.texts)
