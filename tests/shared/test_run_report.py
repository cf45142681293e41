"""The report of a run: one page with all its numbers."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from shared.errors import RecordError
from shared.run_report import html_report
from shared.run_summary import RunSummary, summarized


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
    made = RunSummary("target-spark")
    made.add("a<b>&", received=1200, flushes=2)
    made.add("other", received=3)
    made.add_to_table("a<b>&", "table", ["add the column 'x'"], committed=1199, merged=1)
    made.moved(1200)
    return made


def test_all_numbers_are_on_the_page() -> None:
    page = Page(html_report(summary().as_dict(None)))
    assert page.loads == []
    for text in ("a<b>&", "other", "1,200", "1,199", "success", "merged", "add the column 'x'"):
        assert any(text in found for found in page.texts), text


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    with pytest.raises(RecordError), summarized("target-spark", report=str(path)):
        raise RecordError("<not> a number")
    page = Page(path.read_text())
    assert "exit code 5" in page.texts
    assert any("<not> a number" in found for found in page.texts)
    assert [path] == list(tmp_path.iterdir())


def test_a_run_without_rows() -> None:
    page = Page(html_report(RunSummary("tap-spark").as_dict(None)))
    assert "No rows." in page.texts
