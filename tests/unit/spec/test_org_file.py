"""Organisation files: what is read, and what is named when it cannot be."""

from pathlib import Path

import pytest

from scheduling.spec.org_file import PersonEntry, QueueEntry, UnitEntry, read_org_file

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "organisation.yaml"


def test_reads_a_tree() -> None:
    """Units, queues with their amounts, and people are read; a bare queue has no numbers."""
    text = """
    tenants:
      - name: lab
        queue: {weight: 3, max: {gpu: 16, memory: 2Gi, cpu: 500m}}
        people: [{username: alice, role: org_admin, email: a@lab.test}]
        units:
          - {name: vision, kind: department, queue: }
          - {name: "42"}
    """

    tenants, problems = read_org_file(text)

    assert problems == []
    assert tenants == (
        UnitEntry(
            "lab",
            "tenant",
            QueueEntry(
                "lab", max={"nvidia.com/gpu": 16_000, "memory": 2 * 1024**3, "cpu": 500}, weight=3
            ),
            (PersonEntry("alice", "org_admin", "a@lab.test"),),
            (UnitEntry("vision", "department", QueueEntry("vision")), UnitEntry("42", "team")),
        ),
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("$", "wrong_type")),
        ("[]", ("$", "wrong_type")),
        ("{", ("$", "not_yaml")),
        ("tenants: []", ("tenants", "required")),
        ("tenants: [{}]", ("tenants[0].name", "required")),
        ("tenants: [x]", ("tenants[0]", "wrong_type")),
        ("tenants: [{name: a, wieght: 1}]", ("tenants[0].wieght", "unknown_field")),
        ("tenants: [{name: a, queue: {weight: 1.5}}]", ("tenants[0].queue.weight", "wrong_type")),
        (
            "tenants: [{name: a, queue: {min: {gpu: lots}}}]",
            ("tenants[0].queue.min.gpu", "not_a_quantity"),
        ),
        (
            "tenants: [{name: a, units: [{name: b, kind: club}]}]",
            ("tenants[0].units[0].kind", "invalid_choice"),
        ),
        (
            "tenants: [{name: a, people: [{username: x}]}]",
            ("tenants[0].people[0].role", "required"),
        ),
    ],
)
def test_names_what_is_wrong(text: str, found: tuple[str, str]) -> None:
    """Each fault is named at its place."""
    _, problems = read_org_file(text)

    assert [(problem.path, problem.code) for problem in problems] == [found]


def test_example_is_sound() -> None:
    """The example of the documentation can be read."""
    assert read_org_file(EXAMPLE.read_text())[1] == []
