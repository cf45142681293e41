"""Marks tests of the suites for authors `slow` where another suite of ours has their code path."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that its class names in `SLOW`, as methods are shared by all subclasses."""
    if getattr(item, "originalname", "") in getattr(getattr(item, "cls", None), "SLOW", ()):
        item.add_marker(pytest.mark.slow)
