"""Untrusted YAML, read with bounds: built from libyaml's events, never by a constructor.

Only maps, lists and the scalars of the core schema come out. Refused are duplicate keys, tags
beyond the core schema, self-references, and whatever is larger or deeper than the limits. As in
Kubernetes, `0644` is octal; unlike YAML 1.1, `yes`, `on` and dates stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from scheduling.spec.limits import DEFAULT_LIMITS, Limits
from scheduling.spec.problems import Problem

_CORE_TAGS = {
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq")
}
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAY_BE_TYPED = frozenset("+-.0123456789~nNtTfF")
"""How a value begins that is not simply text."""
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_OCTAL = re.compile(r"0o?([0-7]{1,21})")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]{1,16})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,3})?")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnreadableDocumentError(Exception):
    """A text that is not acceptable YAML; `problem` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


@dataclass(slots=True)
class _Open:
    """A collection that is being filled."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    nodes_before: int
    key: str | None = None
    has_key: bool = False
    merged: list[dict[str, Any]] = field(default_factory=list)


def load_documents(text: str | bytes, *, limits: Limits = DEFAULT_LIMITS) -> list[Any]:
    """Return the documents of a text, empty ones left out. Linear in the size of the text.

    Raises:
        UnreadableDocumentError: the text is not YAML, or goes beyond the limits.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > limits.document_bytes:
        raise _refused("document_too_large", size=len(raw), limit=limits.document_bytes)
    try:
        decoded = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused("not_utf8", position=error.start) from error
    builder = _Builder(limits)
    try:
        for event in yaml.parse(decoded, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _not_yaml(error) from error
    return [document for document in builder.documents if document is not None]


def _refused(code: str, **params: str | int) -> UnreadableDocumentError:
    return UnreadableDocumentError(Problem("$", code, params))


def _not_yaml(error: yaml.YAMLError) -> UnreadableDocumentError:
    mark = getattr(error, "problem_mark", None)
    return _refused(
        "not_yaml",
        line=mark.line + 1 if mark else 1,
        column=mark.column + 1 if mark else 1,
        detail=str(getattr(error, "problem", None) or error).splitlines()[0],
    )


class _Builder:
    """Turns events into plain values, with an explicit stack and counted nodes."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.documents: list[Any] = []
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.alias_nodes = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event of the stream."""
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self.anchors = {}
            if len(self.documents) >= self.limits.documents:
                raise _refused("too_many_documents", limit=self.limits.documents)
        elif isinstance(event, yaml.ScalarEvent):
            self._count()
            value, is_key_text = _scalar(event, line), event.value
            self._remember(event.anchor, value, 1)
            self._add(value, key_text=is_key_text, is_plain=not event.style, line=line)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(line)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, line)

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > self.limits.document_nodes:
            raise _refused("too_many_nodes", limit=self.limits.document_nodes)

    def _remember(self, anchor: str | None, value: Any, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        self._count()
        if event.tag not in (None, "!") and event.tag not in _CORE_TAGS:
            raise _refused("tag_not_allowed", tag=event.tag, line=line)
        if self._wants_key():
            raise _refused("key_not_text", line=line)
        if len(self.stack) >= self.limits.document_depth:
            raise _refused("too_deep", limit=self.limits.document_depth, line=line)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Open(value, event.anchor, self.nodes - 1))

    def _close(self, line: int) -> None:
        done = self.stack.pop()
        if isinstance(done.value, dict):
            for source in done.merged:
                for key, value in source.items():
                    done.value.setdefault(key, value)
        self._remember(done.anchor, done.value, self.nodes - done.nodes_before)
        self._add(done.value, key_text=None, is_plain=False, line=line)

    def _alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self.anchors:
            raise _refused("unknown_alias", alias=str(anchor), line=line)
        value, size = self.anchors[anchor]
        self.nodes += size
        self.alias_nodes += size
        if self.alias_nodes > self.limits.alias_nodes:
            raise _refused("too_many_alias_nodes", limit=self.limits.alias_nodes, line=line)
        key_text = value if isinstance(value, str) else None
        self._add(value, key_text=key_text, is_plain=False, line=line)

    def _wants_key(self) -> bool:
        top = self.stack[-1] if self.stack else None
        return top is not None and isinstance(top.value, dict) and not top.has_key

    def _add(self, value: Any, *, key_text: str | None, is_plain: bool, line: int) -> None:
        if not self.stack:
            self.documents.append(value)
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.has_key:
            self._take_key(top, key_text, is_merge=is_plain and key_text == "<<", line=line)
        elif top.key is None:
            self._merge(top, value, line)
            top.has_key = False
        else:
            top.value[top.key] = value
            top.has_key = False

    def _take_key(self, top: _Open, key: str | None, *, is_merge: bool, line: int) -> None:
        if key is None:
            raise _refused("key_not_text", line=line)
        if not is_merge and key in top.value:
            raise _refused("duplicate_key", key=key, line=line)
        top.key = None if is_merge else key
        top.has_key = True

    def _merge(self, top: _Open, value: Any, line: int) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise _refused("merge_not_map", line=line)
        top.merged.extend(sources)


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    tag = event.tag
    if tag is not None and tag != "!" and tag not in _CORE_TAGS:
        raise _refused("tag_not_allowed", tag=tag, line=line)
    text: str = event.value
    if tag == "tag:yaml.org,2002:str" or (tag in (None, "!") and not event.implicit[0]):
        return text
    value = _resolve(text)
    if isinstance(value, str) and tag is not None and tag != "!":
        raise _refused("tag_does_not_fit", tag=tag, line=line)
    return value


_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], int | float]], ...] = (
    (_DECIMAL, lambda match: int(match[0])),
    (_OCTAL, lambda match: int(match[1], 8)),
    (_HEXADECIMAL, lambda match: int(match[1], 16)),
    (_FLOAT, lambda match: float(match[0])),
)


def _resolve(text: str) -> Any:
    """Give a plain scalar its type by the core schema.

    Infinity and not-a-number are no amount of anything, and JSON cannot carry them: text.
    """
    if text and text[0] not in _MAY_BE_TYPED:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    for pattern, convert in _NUMBERS:
        if match := pattern.fullmatch(text):
            number = convert(match)
            return number if math.isfinite(number) else text
    return text
