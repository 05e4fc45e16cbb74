"""Every way in which somebody is told what there is, and what the tree says they should be told.

A channel asks as a reader and returns the numbers of the units whose thing it was told of. Beside
it stands the rule, in words of parents and grants only: neither closure table nor policy.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.test import Client

from scheduling.domain import events
from tenants.models import GrantRole, OutboxRow
from tests.web.walls.organisations import NAMES, READING, Built

VIEWER, RESEARCHER, MANAGER, ADMIN, AUDITOR = READING
USERS_OF_SECRETS = (RESEARCHER, MANAGER, ADMIN)
SEARCHES = ("a", "a%", "a_", "a/", "\u00e1", "\uff41", "a\u200b", "<a>", "\\")
Told = set[int]
Ask = Callable[[Client, Built], Told]
Rule = Callable[[Built, int], Told]


@dataclass(frozen=True, slots=True)
class Channel:
    """A way of asking, and the units of which a reader should be told."""

    ask: Ask
    rule: Rule


def below(*roles: GrantRole) -> Rule:
    """Tell of everything at or below a grant of these roles."""
    return lambda built, reader: built.below(reader, roles)


def around(*roles: GrantRole) -> Rule:
    """Tell of that and of what lies above."""
    return lambda built, reader: built.around(reader, roles)


def shared_logs(built: Built, reader: int) -> Told:
    """Tell of logs: administrators of all, others of the queues that share them, no auditor."""
    shared = {number for number, queue in enumerate(built.queues) if queue.are_logs_shared}
    others = built.below(reader, (VIEWER, RESEARCHER, MANAGER))
    return built.below(reader, (ADMIN,)) | (others & shared)


def secrets(built: Built, reader: int) -> Told:
    """Tell of shared secrets: to who may use them from below, to who administers and audits."""
    return built.below(reader, (ADMIN, AUDITOR)) | built.around(reader, USERS_OF_SECRETS)


def reasons(built: Built, reader: int) -> Told:
    """Tell of a job in the reason of another: both have to be the reader's to read."""
    seen = built.below(reader)
    return {built.named_after(unit) for unit in seen if built.named_after(unit) in seen}


# --- asking ---------------------------------------------------------------------------------------


def listed(client: Client, address: str) -> list[Mapping[str, Any]]:
    """Read all pages of a list."""
    rows: list[Mapping[str, Any]] = []  # Any: what JSON holds
    joint = "&" if "?" in address else "?"
    cursor = ""
    while True:
        reply = client.get(f"{address}{joint}after={quote(cursor)}" if cursor else address)
        assert reply.status_code == 200, (address, reply.content[:300])
        rows += reply.json()["items"]
        cursor = reply.json().get("next") or ""
        if not cursor:
            return rows


def items(address: str, things: Callable[[Built], Iterable[object]], field: str = "id") -> Ask:
    """Ask a list of the API; `things` are the values of the field by unit."""

    def ask(client: Client, built: Built) -> Told:
        numbers = {str(one): number for number, one in enumerate(things(built))}
        rows = listed(client, address)
        return {numbers[str(row[field])] for row in rows if str(row[field]) in numbers}

    return ask


def page(address: str, things: Callable[[Built], Iterable[object]], form: str = "{}") -> Ask:
    """Ask a page; a thing is told of when `form`, filled with it, stands in the page."""

    def ask(client: Client, built: Built) -> Told:
        reply = client.get(address)
        assert reply.status_code == 200, address
        text = reply.getvalue().decode()
        return {number for number, one in enumerate(things(built)) if form.format(one) in text}

    return ask


def found(address: str, things: Callable[[Built], Iterable[object]]) -> Ask:
    """Ask for each thing by its own address."""

    def ask(client: Client, built: Built) -> Told:
        codes = {
            number: client.get(address.format(one)).status_code
            for number, one in enumerate(things(built))
        }
        assert set(codes.values()) <= {200, 403, 404}, (address, codes)
        return {number for number, code in codes.items() if code == 200}

    return ask


def ids(name: str) -> Callable[[Built], Iterable[object]]:
    """Return the ids of a kind of rows by unit."""
    return lambda built: [one.id for one in getattr(built, name)]


def _queues(client: Client, built: Built) -> Told:
    numbers = {str(queue.id): number for number, queue in enumerate(built.queues)}
    return {
        numbers[row["id"]]
        for row in listed(client, "/api/v1/queues")
        if row["id"] in numbers and not row["is_path_only"]  # above one's own: name and place
    }


def _regions(kind: str, form: str) -> Ask:
    """Ask for one live region of every job in a single poll; told of is what is not gone."""

    def ask(client: Client, built: Built) -> Told:
        keys = [
            f"job:{job.id}/{kind}/" + form.format(attempt=attempt)
            for job, attempt in zip(built.jobs, built.attempts, strict=True)
        ]
        query = urlencode([pair for key in keys for pair in (("region", key), ("has", ""))])
        updates = client.get(f"/live/poll?{query}").json()["updates"]
        return {keys.index(one["key"]) for one in updates if not one.get("gone")}

    return ask


def _queue_regions(client: Client, built: Built) -> Told:
    keys = [f"queue:{queue.id}/fragment/queue_facts/" for queue in built.queues]
    query = urlencode([pair for key in keys for pair in (("region", key), ("has", ""))])
    updates = client.get(f"/live/poll?{query}").json()["updates"]
    return {keys.index(one["key"]) for one in updates if not one.get("gone")}


def _exported(client: Client, built: Built) -> Told:
    rows = list(csv.reader(io.StringIO(client.get("/jobs/export.csv").getvalue().decode())))
    numbers = {str(job.id): number for number, job in enumerate(built.jobs)}
    return {numbers[cell] for row in rows[1:] for cell in row if cell in numbers}


def _counted(client: Client, built: Built) -> Told:
    """Count: as many as are listed; if not, no set of units fits and an impossible one is told."""
    reply = client.get("/jobs/")
    counts = {name: count for name, _label, count in reply.context["tabs"]}
    numbers = {job.id: number for number, job in enumerate(built.jobs)}
    told = {numbers[job.id] for job in reply.context["jobs"]}
    return told if counts["all"] == counts["waiting"] == len(told) else {-1}


def _by_queue(client: Client, built: Built) -> Told:
    """Ask for the jobs of every queue by its name; what comes is that queue's or one's below."""
    told: Told = set()
    numbers = {str(job.id): number for number, job in enumerate(built.jobs)}
    for number, queue in enumerate(built.queues):
        rows = listed(client, "/api/v1/jobs?" + urlencode({"queue": queue.name}))
        some = {numbers[row["id"]] for row in rows}
        told |= some if all(number in built.chain(one) for one in some) else {-1}
    return told


def _reasons(client: Client, built: Built) -> Told:
    numbers = {str(job.id): number for number, job in enumerate(built.jobs)}
    text = json.dumps([row["reason"] for row in listed(client, "/api/v1/jobs")])
    return {number for job, number in numbers.items() if job in text}


def _events(client: Client, built: Built) -> Told:
    numbers = {str(job.id): number for number, job in enumerate(built.jobs)}
    rows = client.get("/api/v1/events?after=0.0").json()["items"]
    return {numbers[row["job"]["id"]] for row in rows}


def _audited(text: str, built: Built) -> Told:
    return {number for number, queue in enumerate(built.queues) if str(queue.id) in text}


def _audit(client: Client, built: Built) -> Told:
    return _audited(json.dumps(listed(client, "/api/v1/audit?action=walls.&limit=3")), built)


def _audit_export(form: str) -> Ask:
    def ask(client: Client, built: Built) -> Told:
        reply = client.get(f"/api/v1/audit:export?form={form}&action=walls.")
        return _audited(reply.getvalue().decode(), built)

    return ask


def _image_rules(client: Client, built: Built) -> Told:
    cluster = built.queues[0].cluster_id
    rules = client.get(f"/api/v1/clusters/{cluster}/image-rules").json()
    text = json.dumps(rules)
    return {number for number in range(len(built.units)) if f'"image{number}"' in text}


def _attention(client: Client, built: Built) -> Told:
    numbers = {f"/jobs/{job.id}/": number for number, job in enumerate(built.jobs)}
    lines = client.get("/ops/").context["lines"]
    return {numbers[line["url"]] for line in lines if line["url"] in numbers}


ALL = below(*READING)
CHANNELS: dict[str, Channel] = {
    "api jobs": Channel(items("/api/v1/jobs?limit=3", ids("jobs")), ALL),
    "api jobs of a queue": Channel(_by_queue, ALL),
    "api job": Channel(found("/api/v1/jobs/{}", ids("jobs")), ALL),
    "api explain": Channel(found("/api/v1/jobs/{}/explain", ids("jobs")), ALL),
    "api logs": Channel(found("/api/v1/jobs/{}/logs", ids("jobs")), shared_logs),
    "api metrics": Channel(
        found("/api/v1/jobs/{}/metrics", ids("jobs")), below(VIEWER, RESEARCHER, MANAGER, ADMIN)
    ),
    "api reasons": Channel(_reasons, reasons),
    "api events": Channel(_events, ALL),
    "api queues": Channel(_queues, ALL),
    "api queue": Channel(found("/api/v1/queues/{}", ids("queues")), ALL),
    "api units": Channel(items("/api/v1/units", ids("units")), ALL),
    "api unit": Channel(found("/api/v1/units/{}", ids("units")), ALL),
    "api users": Channel(items("/api/v1/users", ids("people")), below(MANAGER, ADMIN, AUDITOR)),
    "api grants": Channel(
        items("/api/v1/grants", ids("people"), "user_id"), below(MANAGER, ADMIN, AUDITOR)
    ),
    "api tokens": Channel(items("/api/v1/tokens", ids("people"), "user_id"), below(ADMIN, AUDITOR)),
    "api webhooks": Channel(items("/api/v1/webhooks", ids("webhooks")), below(ADMIN, AUDITOR)),
    "api secrets": Channel(
        items("/api/v1/secrets", lambda built: [f"s{n}" for n in range(len(built.units))], "name"),
        secrets,
    ),
    "api quotas": Channel(items("/api/v1/quotas", ids("units"), "unit_id"), ALL),
    "api image rules": Channel(_image_rules, around(*READING)),
    "api change sets": Channel(items("/api/v1/change-sets", lambda built: built.plans), ALL),
    "api audit": Channel(_audit, below(MANAGER, ADMIN, AUDITOR)),
    "audit as CSV": Channel(_audit_export("csv"), below(MANAGER, ADMIN, AUDITOR)),
    "audit as lines": Channel(_audit_export("jsonl"), below(MANAGER, ADMIN, AUDITOR)),
    "jobs as CSV": Channel(_exported, ALL),
    "jobs page and its counts": Channel(_counted, ALL),
    "queues page": Channel(page("/queues/", ids("queues"), 'id="queue-row-{}"'), around(*READING)),
    "changes page": Channel(page("/changes/", lambda built: built.plans, "/changes/{}/"), ALL),
    "people page": Channel(
        page("/admin/people/", ids("people"), "/admin/people/{}/"), below(MANAGER, ADMIN, AUDITOR)
    ),
    "operations": Channel(_attention, ALL),
    "live rows": Channel(_regions("fragment", "job_row/"), ALL),
    "live metrics": Channel(
        _regions("feed", "metrics/"), below(VIEWER, RESEARCHER, MANAGER, ADMIN)
    ),
    "live logs": Channel(_regions("feed", "log/{attempt}:stdout"), shared_logs),
    "live queues": Channel(_queue_regions, ALL),
}


def _search(address: str, text: str) -> Channel:
    """Search for part of a name: the jobs of that name that may be read, and no pattern."""

    def ask(client: Client, built: Built) -> Told:
        reply = client.get(address + urlencode({"q": text, "text": text}))
        if reply.headers["Content-Type"] == "application/json":
            rows = [row["id"] for row in reply.json()["items"]]
        else:
            rows = [str(job.id) for job in reply.context["jobs"]]
        return {number for number, job in enumerate(built.jobs) if str(job.id) in rows}

    def rule(built: Built, reader: int) -> Told:
        return {unit for unit in built.below(reader) if text.upper() in built.names[unit].upper()}

    return Channel(ask, rule)


for _text in SEARCHES:
    CHANNELS[f"api search {_text!r}"] = _search("/api/v1/jobs?", _text)
CHANNELS["palette '%'"] = _search("/palette/?", "%")
CHANNELS["palette '_'"] = _search("/palette/?", "_")
CHANNELS["palette 'b'"] = _search("/palette/?", "b")
CHANNELS["page search '%'"] = _search("/jobs/?", "%")
assert set(SEARCHES) & set(NAMES)


def posted(built: Built) -> list[Told]:
    """Return by unit which units' jobs its webhook is told of."""
    events.queue_deliveries(built.jobs[0].created_at)
    numbers = {str(job.id): number for number, job in enumerate(built.jobs)}
    told: list[Told] = []
    for webhook in built.webhooks:
        row = OutboxRow.objects.get(topic="webhook", key=str(webhook.id))
        told.append({numbers[event["job"]["id"]] for event in row.payload["events"]})
    return told
