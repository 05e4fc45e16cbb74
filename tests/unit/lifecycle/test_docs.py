"""The page about the lifecycle says what the tables say."""

from __future__ import annotations

from pathlib import Path

from scheduling.lifecycle.describe import as_markdown

PAGE = Path(__file__).resolve().parents[3] / "docs" / "lifecycle.md"


def test_the_page_is_the_table() -> None:
    """docs/lifecycle.md is what `python -m scheduling.lifecycle.describe` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown()
