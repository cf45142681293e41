"""Pages that an installed user can print."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from shared.cli import docs_command, page_text, topics
from shared.errors import SettingsError


def test_topics_are_pages_with_titles() -> None:
    actual = topics()
    assert actual["s3"] == "S3"
    assert "README" not in actual
    assert len(actual) > 25
    listed = CliRunner().invoke(docs_command, []).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(actual)


def test_a_page_by_all_of_its_names() -> None:
    page = page_text("errors")
    assert page.startswith("# Exit codes\n")
    assert page_text("errors.md") == page_text("docs/errors.md") == page
    assert CliRunner().invoke(docs_command, ["errors"]).stdout == page


def test_a_part_of_a_page() -> None:
    part = page_text("errors#exit-code-3")
    assert part.startswith("## Exit code 3\n")
    assert "Exit code 4" not in part
    assert page_text("errors#exit-codes") == page_text("errors")


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("eror", r"there is no page 'eror' \(near: errors"),
        ("s3#credentals", r"there is no page 's3#credentals' \(near: s3#credentials"),
        ("../README", "there is no page '../README'"),
        ("zzzzzzzz", r"\(`docs` without a topic lists them\)"),
    ],
)
def test_what_is_not_there(topic: str, error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        page_text(topic)
