"""Where a queue's jobs may run and what it is stated to deserve, from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping

from controlplane.client import output
from controlplane.client.commands import UsageError, queue_of, read_amount
from controlplane.client.rest import Json, RestClient

KINDS = {
    "required": "runs on",
    "preferred": "prefers",
    "avoided": "avoids",
    "forbidden": "keeps off",
}


def place(client: RestClient, arguments: argparse.Namespace) -> None:
    """Show where a queue's jobs run; with options change what they name, and keep the rest."""
    found = queue_of(client, arguments.queue)
    address = f"queues/{found['id']}/placement"
    told = client.get(address)
    changes = _changes(told, arguments)
    if changes:
        body = {**told, **changes, "reason": arguments.reason}
        told = client.put(address, body, if_match=f'"v{found["version"]}"')
    if arguments.output == "json":
        output.print_json(told)
    else:
        sys.stdout.write(f"queue {found['name']}: {'; '.join(_lines(told)) or 'nothing stated'}\n")


def _changes(seen: Json, arguments: argparse.Namespace) -> Json:
    """Return the parts of a placement that the options change."""
    given = {kind: getattr(arguments, kind) for kind in KINDS}
    groups: Json = {
        kind: [name.strip() for name in text.split(",") if name.strip()]
        for kind, text in given.items()
        if text is not None
    }
    if arguments.limit:
        groups["limits"] = _limits(seen["node_groups"]["limits"], arguments.limit)
    changes: Json = {"node_groups": {**seen["node_groups"], **groups}} if groups else {}
    if arguments.deserved:
        changes["stated_deserved"] = _merged(seen["stated_deserved"], arguments.deserved) or None
    return changes


def _limits(known: Mapping[str, Json], given: Iterable[str]) -> dict[str, Json]:
    limits = {group: dict(amounts) for group, amounts in known.items()}
    for text in given:
        group, colon, pair = text.partition(":")
        if not group or not colon:
            raise UsageError(f"{text} is not GROUP:RESOURCE=AMOUNT, such as a100:gpu=4.")
        limits[group] = _merged(limits.get(group), [pair])
    return {group: amounts for group, amounts in limits.items() if amounts}


def _merged(known: Mapping[str, object] | None, given: Iterable[str]) -> Json:
    """Return amounts with those given in their place; an empty one is taken away."""
    amounts = {**(known or {}), **dict(read_amount(text) for text in given)}
    return {resource: amount for resource, amount in amounts.items() if amount != ""}


def _lines(told: Json) -> Iterable[str]:
    groups = told["node_groups"]
    for kind, words in KINDS.items():
        if groups[kind]:
            yield f"{words} {', '.join(groups[kind])}"
    for group, amounts in sorted(groups["limits"].items()):
        yield f"at most {output.amounts(amounts)} on {group}"
    if told["stated_deserved"]:
        yield f"deserves {output.amounts(told['stated_deserved'])}"
