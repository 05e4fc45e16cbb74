"""The numbers of the explain ladder's rungs, in words."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django import template
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.templatetags.terrace import duration, phase_label
from controlplane.units import amount, resource_name
from scheduling.domain.queries.idle_room import FACT
from scheduling.domain.wording import histogram_words

register = template.Library()

# What the engine notes at a rung; each rung has its own keys.
Facts = Mapping[str, Any]


@register.filter
def rung_facts(rung: Any) -> list[str]:
    """Return a rung's numbers as sentences; none where it noted nothing."""
    teller = _TELLERS.get(rung.name)
    return list(teller(rung.facts)) if teller and rung.facts else []


@register.filter
def lacks_runtime(rung: Any) -> bool:
    """Tell whether nodes were refused because they offer no runtime for an image."""
    return rung.name == "nodes" and any(
        numbers["histogram"].get("runtime") for numbers in (rung.facts or {}).values()
    )


@register.filter
def beyond_idle(ladder: Any) -> str:
    """Say that an idle cluster would be too small for a gang; empty where it would not."""
    told = (_beyond_idle(rung.facts) for rung in ladder.rungs if FACT in rung.facts)
    return next(told, "")


def _beyond_idle(facts: Facts) -> str:
    return _(
        "Waiting does not help: even if nothing else ran, the nodes that there are would hold"
        " %(room)d of %(least)d tasks. Let fewer start together, or let each ask for less."
    ) % {"room": facts[FACT], "least": facts["min_available"]}


@register.simple_tag
def rung_label(name: str) -> str:
    """Return what a rung asks."""
    return {
        "queue": _("The spec is valid, its queue exists and is open"),
        "dependencies": _("What it depends on is ready"),
        "quota": _("Quotas leave room"),
        "max": _("Max of the queue and of each queue above"),
        "gang": _("The gang can start together"),
        "order": _("Its turn in the order and share"),
        "nodes": _("Nodes fit"),
        "topology": _("Topology"),
        "room": _("Room is being made or kept"),
        "start": _("Bind, image, start"),
    }.get(name, name)


def _queue(facts: Facts) -> Iterator[str]:
    yield _("Queue “%(queue)s” is %(state)s.") % {
        "queue": facts["queue"],
        "state": phase_label(str(facts["state"])),
    }


def _max(facts: Facts) -> Iterator[str]:
    for queue, resources in facts.items():
        for resource, numbers in resources.items():
            yield _(
                "%(queue)s: %(used)s of max %(max)s %(resource)s in use, %(wanted)s wanted."
            ) % {
                "queue": queue,
                "used": amount(numbers["allocated"], resource),
                "max": amount(numbers["max"], resource),
                "resource": resource_name(resource),
                "wanted": amount(numbers["requested"], resource),
            }


def _gang(facts: Facts) -> Iterator[str]:
    if facts["min_available"] == 1:
        return  # a single task waits for no other; where it fits is told by the nodes
    yield _("%(ready)d of %(least)d tasks that must start together have a place.") % {
        "ready": facts["ready"],
        "least": facts["min_available"],
    }
    if FACT in facts:
        yield _beyond_idle(facts)
    roles = facts["roles"]
    if len(roles) > 1:
        for name, numbers in roles.items():
            yield _("%(role)s: %(ready)d of %(needed)d.") % {"role": name, **numbers}


def _order(facts: Facts) -> Iterator[str]:
    if facts["position"]:
        yield (
            _("Number %(position)d of %(waiting)d in queue “%(queue)s”, priority %(priority)d.")
            % facts
        )
    deserved = facts["deserved"]
    for resource in ("nvidia.com/gpu", "cpu", "memory"):
        if deserved.get(resource):
            yield _("The queue holds %(used)s of %(deserved)s %(resource)s that it deserves.") % {
                "used": amount(facts["allocated"].get(resource, 0), resource),
                "deserved": amount(deserved[resource], resource),
                "resource": resource_name(resource),
            }
    if facts.get("sla_waiting_seconds"):
        yield _("It shall start within %(time)s.") % {
            "time": duration(facts["sla_waiting_seconds"])
        }


def _nodes(facts: Facts) -> Iterator[str]:
    for role, numbers in facts.items():
        refused = histogram_words(numbers["histogram"])
        words = ngettext("%(n)d node", "%(n)d nodes", numbers["nodes"]) % {"n": numbers["nodes"]}
        yield f"{role}: {words}" + (f" ({refused})" if refused else "")


_TELLERS: dict[str, Callable[[Facts], Iterator[str]]] = {
    "queue": _queue,
    "max": _max,
    "gang": _gang,
    "order": _order,
    "nodes": _nodes,
}
