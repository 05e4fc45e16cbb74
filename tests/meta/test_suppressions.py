"""Every silenced warning says why."""

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.meta.source_tree import PACKAGES, python_files, where

SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover)[^-#]*")
WITH_REASON = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover)[^-#]*[-#]\s*\S+")


def _bare(path: Path) -> Iterator[int]:
    """Yield the lines of suppressions without `- reason` after them."""
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type != tokenize.COMMENT:
                continue
            for match in SUPPRESSION.finditer(token.string):
                if not WITH_REASON.match(token.string[match.start() :]):
                    yield token.start[0]


def test_suppressions_end_in_a_reason() -> None:
    """Each `noqa`, `type: ignore` and `pragma: no cover` is followed by its reason."""
    found = [where(path, line) for path in python_files(*PACKAGES, "tests") for line in _bare(path)]

    assert found == []


def test_suppressions_without_reason_are_recognised(tmp_path: Path) -> None:
    """A bare suppression is found and one with a reason is not."""
    source = tmp_path / "example.py"
    source.write_text(
        "a = 1  # no" + "qa: E501\nb = 2  # no" + "qa: E501 - a table reads better on one line\n",
        encoding="utf-8",
    )

    assert list(_bare(source)) == [1]
