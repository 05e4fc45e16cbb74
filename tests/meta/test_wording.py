"""Every code that a reader can meet has a sentence, and every sentence says what it is given."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator

import pytest

from scheduling.domain import wording
from scheduling.domain.reports import EndReason
from scheduling.engine.reasons import PARAMS, ReasonCode
from scheduling.lifecycle.states import StopReason
from tests.meta.source_tree import parsed, python_files, where

RAISED = {"Conflict": 0, "Denied": 0, "Problem": 1}
"""Callable -> position of the code among its arguments."""


def codes_raised() -> Iterator[tuple[str, str]]:
    """Yield (code, place) of each literal code in the domain packages."""
    for path in python_files("scheduling/domain", "tenants/domain"):
        for node in ast.walk(parsed(path)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            position = RAISED.get(node.func.id)
            if position is None or len(node.args) <= position:
                continue
            argument = node.args[position]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, where(path, node)


def test_every_refusal_has_a_sentence() -> None:
    """A code that a domain function raises is never shown bare."""
    missing = sorted({code for code, _ in codes_raised() if not wording.has_sentence(code)})

    assert missing == []


@pytest.mark.parametrize(
    "code",
    [*ReasonCode, *EndReason, *(f"stop_{reason}" for reason in StopReason)],
)
def test_every_reason_has_a_sentence(code: str) -> None:
    """A reason of the engine, of a node or of a stop has words."""
    assert wording.has_sentence(code)


@pytest.mark.parametrize("code", list(ReasonCode))
def test_sentences_use_only_what_the_engine_gives(code: ReasonCode) -> None:
    """A placeholder of a reason's sentence is a parameter that the engine fills in."""
    text = str(wording.SENTENCES[code])
    names = {name for _, name, _, _ in string.Formatter().parse(text) if name}

    assert names <= set(PARAMS[code]) | {"resource"}


def test_numbers_are_written_in_units_that_people_use() -> None:
    """Amounts come in GPUs, cores and GiB, maps as lists, what is missing as a question mark."""
    gpu = {"queue": "vision", "resource": "nvidia.com/gpu", "requested": 8000, "allocated": 6000}
    memory = {"queue": "a", "resource": "memory", "requested": 3 << 29, "allocated": 0, "max": 1}

    assert "8 GPU wanted, 6 of ? in use" in wording.sentence("queue_max", gpu)
    assert "1.5 GiB memory wanted, 0 MiB of" in wording.sentence("queue_max", memory)
    assert "taint: 3" in wording.sentence(
        "nodes_unfit", {"nodes": 3, "role": "w", "histogram": {"taint": 3}}
    )
    assert wording.sentence("no_such_code", {}) == "no_such_code"
