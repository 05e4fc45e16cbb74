"""Every code that a reader can meet has a sentence, and every sentence says what it is given."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator

import pytest
from django.utils import translation

from scheduling.domain import wording
from scheduling.domain.reports import EndReason
from scheduling.engine.reasons import PARAMS, ReasonCode
from scheduling.lifecycle.states import StopReason
from tests.meta.source_tree import ROOT, parsed, python_files, where

RAISED = {"Conflict": 0, "Denied": 0, "Problem": 1, "refuse": 1}
"""Callable -> position of the code among its arguments."""


SOURCES = ("scheduling/domain", "scheduling/spec", "tenants/domain", "controlplane")


def codes_raised() -> Iterator[tuple[str, str]]:
    """Yield (code, place) of each literal code where refusals are made."""
    for path in python_files(*SOURCES):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else None
            position = RAISED.get(node.func.id if isinstance(node.func, ast.Name) else name or "")
            if position is None or len(node.args) <= position:
                continue
            argument = node.args[position]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, where(path, node)


def test_every_refusal_has_a_sentence() -> None:
    """A code that a domain function raises is never shown bare."""
    missing = sorted({one for one in codes_raised() if not wording.has_sentence(one[0])})

    assert missing == []


def codes_set() -> Iterator[str]:
    """Yield each literal that is written to a row's `reason_code`."""
    for path in python_files("scheduling/domain"):
        for node in ast.walk(parsed(path)):
            names = [node.arg] if isinstance(node, ast.keyword) else []
            if isinstance(node, ast.Assign):
                names = [one.attr for one in node.targets if isinstance(one, ast.Attribute)]
            if "reason_code" not in names or not isinstance(node, (ast.keyword, ast.Assign)):
                continue
            value = node.value
            branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            for one in branches:
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value:
                    yield one.value


def test_every_reason_on_a_row_has_a_sentence() -> None:
    """A reason that the domain writes itself has words."""
    codes = set(codes_set())

    assert {"quarantined", "tasks_failed", "NodeLost"} <= codes
    assert sorted(code for code in codes if not wording.has_sentence(code)) == []


END_CODE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*")


def codes_of_nodes() -> set[str]:
    """Return the codes that agent and shim write as constants, and those in their documentation."""
    written = {
        node.value.value
        for path in python_files("worker/agent", "worker/shim")
        if path.name in ("node.py", "supervisor.py")
        for node in parsed(path).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and END_CODE.fullmatch(node.value.value)
    }
    page = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
    table = page.partition("## How a task ends")[2].partition("\n## ")[0]
    return written | {
        code
        for line in table.splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`(\w+)`", line.split("|")[1])
    }


def test_every_end_that_a_node_tells_has_a_sentence() -> None:
    """The reasons of agent and shim, by source and by documentation, have words."""
    codes = codes_of_nodes()

    assert {"LaunchFailed", "BadCommand", "NodeRebooted"} <= codes
    assert sorted(code for code in codes if not wording.has_sentence(code)) == []


def histogram_keys() -> Iterator[str]:
    """Yield the names by which the engine's filters count the nodes that they refuse."""
    for path in python_files("scheduling/engine"):
        for function in ast.walk(parsed(path)):
            if not isinstance(function, ast.FunctionDef) or "_filters" not in function.name:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Tuple) and isinstance(node.elts[0], ast.Constant):
                    yield str(node.elts[0].value)


def test_every_cause_that_keeps_tasks_off_nodes_has_words() -> None:
    """Each filter of the engine, and its check of devices, is told in words."""
    causes = {*histogram_keys(), "devices"}

    assert causes >= {"not_schedulable", "taint", "runtime"}
    assert sorted(causes - wording.HISTOGRAM.keys()) == []


def test_stop_reasons_of_a_node_have_words() -> None:
    """An attempt that was stopped ends with the name of the reason to stop it, and has words."""
    assert [one for one in StopReason if not wording.has_sentence(one)] == []
    assert wording.sentence("drained") == wording.sentence("stop_drained")
    assert "could not write" in wording.sentence("NotStored: No space left on device")


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
    causes = {"not_schedulable": 1, "Insufficient nvidia.com/gpu": 7, "Exceeds fpga": 2}
    assert wording.sentence("nodes_unfit", {"nodes": 10, "role": "w", "histogram": causes}) == (
        "“w” fits no node (of 10): 1 not schedulable, 7 short of GPUs,"
        " 2 too small even when idle (fpga)."
    )
    assert wording.histogram_words({"of_a_plugin": 4}) == "4 refused by “of_a_plugin”"
    assert wording.sentence("no_such_code", {}) == "no_such_code"


@pytest.mark.parametrize(
    ("params", "english", "chinese"),
    [
        (
            {"tasks": 1, "jobs": ["a"]},
            "It would start as soon as 1 task of 1 running job has ended.",
            "1 个运行中的作业的 1 个任务一结束",
        ),
        (
            {"tasks": 3, "jobs": ["a"]},
            "It would start as soon as 3 tasks of 1 running job have ended.",
            "1 个运行中的作业的 3 个任务一结束",
        ),
        (
            {"tasks": 3, "jobs": [], "jobs_total": 2},
            "It would start as soon as 3 tasks of 2 running jobs have ended.",
            "2 个运行中的作业的 3 个任务一结束",
        ),
    ],
)
def test_what_would_start_a_job_counts_tasks_and_jobs(
    params: dict[str, object], english: str, chinese: str
) -> None:
    """Each number takes its own form; ids that the reader may not see are counted all the same."""
    assert wording.sentence("change_wait_for", params) == english
    with translation.override("zh-hans"):
        assert wording.sentence("change_wait_for", params).startswith(chinese)


@pytest.mark.parametrize(("count", "words"), [(1, "1 task instead"), (2, "2 tasks instead")])
def test_a_lower_minimum_is_counted(count: int, words: str) -> None:
    """One task is no tasks."""
    params = {"min_available": count, "was": 4}

    assert words in wording.sentence("change_lower_min", params)
