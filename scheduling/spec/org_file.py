"""Reads an organisation written as YAML: tenants, units, their queues and people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.spec.problems import Problem
from scheduling.spec.reader import Findings, MapReader, read_amount, suggestion
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents

SHORT_NAMES = {"gpu": "nvidia.com/gpu"}
"""What a file may write for a resource."""
KINDS = ("department", "team", "person")


@dataclass(frozen=True, slots=True)
class PersonEntry:
    """Somebody with a role on the unit that the entry stands in."""

    username: str
    role: str
    email: str = ""
    is_service: bool = False


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A unit's queue; None: not said."""

    name: str
    min: Mapping[str, int] | None = None
    max: Mapping[str, int] | None = None
    weight: int | None = None
    priority: int | None = None
    lend_min: bool | None = None
    reclaimable: bool | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A unit with what lies below it; `kind` of a top-level one is `tenant`."""

    name: str
    kind: str
    queue: QueueEntry | None = None
    people: tuple[PersonEntry, ...] = ()
    units: tuple[UnitEntry, ...] = field(default=())


def read_org_file(text: str | bytes) -> tuple[tuple[UnitEntry, ...], list[Problem]]:
    """Return the tenants of a file and what is wrong with it; with problems, use nothing of it.

    ```yaml
    tenants:
      - name: lab
        queue: {max: {gpu: 16}}
        people: [{username: alice, role: org_admin}]
        units:
          - {name: vision, queue: {weight: 3, min: {gpu: 4}}}
    ```

    A unit has a queue if `queue` is written; its name is the unit's if not given.
    """
    try:
        documents = load_documents(text)
    except UnreadableDocumentError as error:
        return (), [error.problem]
    findings = Findings()
    if len(documents) != 1 or not isinstance(documents[0], dict):
        findings.refuse("$", "wrong_type", expected="a map with `tenants`", value="something else")
        return (), findings.problems
    top = MapReader(documents[0], "", findings)
    tenants = tuple(_unit(reader, is_tenant=True) for reader in top.maps("tenants"))
    _refuse_unknown(top)
    if not tenants and not findings.problems:
        findings.refuse("tenants", "required")
    return tenants, findings.problems


def _unit(reader: MapReader, *, is_tenant: bool) -> UnitEntry:
    name = _required(reader, "name")
    kind = "tenant" if is_tenant else (reader.text("kind") or "team")
    if not is_tenant and kind not in KINDS:
        reader.findings.refuse(
            reader.at("kind"), "invalid_choice", value=kind, allowed=", ".join(KINDS)
        )
    queue = reader.sub("queue")
    if queue is None and "queue" in reader.value:
        queue = MapReader({}, reader.at("queue"), reader.findings)  # `queue:` alone: no numbers
    entry = UnitEntry(
        name=name,
        kind=kind,
        queue=None if queue is None else _queue(queue, name),
        people=tuple(_person(one) for one in reader.maps("people")),
        units=tuple(_unit(one, is_tenant=False) for one in reader.maps("units")),
    )
    _refuse_unknown(reader)
    return entry


def _queue(reader: MapReader, unit: str) -> QueueEntry:
    entry = QueueEntry(
        name=reader.text("name") or unit,
        min=_amounts(reader, "min"),
        max=_amounts(reader, "max"),
        weight=reader.whole("weight"),
        priority=reader.whole("priority"),
        lend_min=reader.flag("lend_min"),
        reclaimable=reader.flag("reclaimable"),
        policy=reader.text("policy"),
    )
    _refuse_unknown(reader)
    return entry


def _person(reader: MapReader) -> PersonEntry:
    entry = PersonEntry(
        username=_required(reader, "username"),
        role=_required(reader, "role"),
        email=reader.text("email") or "",
        is_service=reader.flag("is_service") or False,
    )
    _refuse_unknown(reader)
    return entry


def _amounts(reader: MapReader, key: str) -> dict[str, int] | None:
    amounts = reader.sub(key)
    if amounts is None:
        return None
    return {
        SHORT_NAMES.get(name, name): read_amount(
            SHORT_NAMES.get(name, name), value, amounts.at(name), reader.findings
        )
        for name, value in amounts.value.items()
    }


def _required(reader: MapReader, key: str) -> str:
    value = reader.text(key)
    if not value:
        reader.findings.refuse(reader.at(key), "required")
    return value or ""


def _refuse_unknown(reader: MapReader) -> None:
    known = sorted(reader.seen)
    for key in reader.unknown():
        params: dict[str, Any] = {"field": key, "hint": suggestion(key, known)}
        reader.findings.refuse(reader.at(key), "unknown_field", **params)
