"""Finds the line of a YAML text that a problem's path speaks of, for marks in the editor."""

from __future__ import annotations

import re

import yaml

from scheduling.spec.problems import Problem

LARGEST_TEXT = 200_000
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def line_of(text: str, problem: Problem) -> int:
    """Return the line, counted from 1, or 0 where none can be named.

    A path that ends in something the text does not have (what is missing, what the reader has
    renamed) leads to the innermost part of it that is there.
    """
    given = problem.params.get("line")
    if isinstance(given, int):
        return given
    if not problem.path.strip("$") or len(text) > LARGEST_TEXT:
        return 0
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 0
    return _walk(node, problem.path)


def _walk(node: yaml.Node | None, path: str) -> int:
    line = 0
    for index, name in _STEP.findall(path.removeprefix("$").lstrip(".")):
        found = _child(node, index, name)
        if found is None:
            break
        node, line = found
    return line


def _child(node: yaml.Node | None, index: str, name: str) -> tuple[yaml.Node, int] | None:
    """Return a part of a node and the line where it begins."""
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        item = node.value[int(index)]
        return item, item.start_mark.line + 1
    if isinstance(node, yaml.MappingNode) and name:
        for key, value in node.value:
            if key.value == name:
                return value, key.start_mark.line + 1
    return None
