"""Untrusted YAML: what is read, and what is refused before it costs anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.spec.limits import Limits
from scheduling.spec.problem_texts import PROBLEM_TEXTS
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: 0644", {"a": 420}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1.5e3", {"a": 1500.0}),
        ("a: yes", {"a": "yes"}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: .inf", {"a": ".inf"}),
        ("a: 1e999", {"a": "1e999"}),
        ("a: ~", {"a": None}),
        ("a: '1'", {"a": "1"}),
        ("a: !!str 1", {"a": "1"}),
        ("1: x", {"1": "x"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
    ],
)
def test_what_values_mean(text: str, value: Any) -> None:
    """The core schema, octal as in Kubernetes, merges of anchored maps."""
    assert load_documents(text) == [value]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: 1\na: 2", "duplicate_key"),
        ("[" * 60, "too_deep"),
        ("!!python/object/apply:os.system [ls]", "tag_not_allowed"),
        ("!custom x", "tag_not_allowed"),
        ("a: *b", "unknown_alias"),
        ("&a [*a]", "unknown_alias"),
        ("{{a}}: 1", "key_not_text"),
        ("a: b: c", "not_yaml"),
        ("a: !!int x", "tag_does_not_fit"),
        ("a: \x00", "not_yaml"),
        ("<<: 1", "merge_not_map"),
        ("a: " + "x" * 2_000_000, "document_too_large"),
        ("[" + "0," * 150_000 + "0]", "too_many_nodes"),
        ("---\na: 1\n" * 300, "too_many_documents"),
        (b"\xff\xfe\xfa", "not_utf8"),
    ],
)
def test_what_is_refused(text: str | bytes, code: str) -> None:
    """Each with its reason, and a sentence for it."""
    with pytest.raises(UnreadableDocumentError) as refusal:
        load_documents(text)

    problem = refusal.value.problem
    assert problem.code == code
    assert PROBLEM_TEXTS[code].format(**problem.params)


def test_a_bomb_of_aliases_is_refused_by_count() -> None:
    """Nine levels of nine aliases each would be 400 million values."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]

    with pytest.raises(UnreadableDocumentError) as refusal:
        load_documents("\n".join(lines))

    assert refusal.value.problem.code == "too_many_alias_nodes"


def test_limits_can_be_tightened() -> None:
    """An installation may read less."""
    with pytest.raises(UnreadableDocumentError) as refusal:
        load_documents("a: [1, 2, 3]", limits=Limits(document_nodes=3))

    assert refusal.value.problem.code == "too_many_nodes"


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    """No text raises anything else."""
    code = ""
    try:
        load_documents(text)
    except UnreadableDocumentError as refusal:
        code = refusal.problem.code

    assert code == "" or code in PROBLEM_TEXTS
