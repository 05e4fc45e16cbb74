"""The verifier's second half: rules about neighbours, domains, volumes, CPUs, budgets and hours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from scheduling.engine.types import (
    Config,
    DisruptionBudget,
    HyperNode,
    Job,
    Node,
    PluginConfig,
    PodTerm,
    Requirement,
    Role,
    SpreadRule,
    Task,
    TaskState,
    TopologyMode,
    TopologyRule,
)
from scheduling.engine.verify_facts import HOLDS, LIVE, Facts, Violation, unfit

DEFAULT_PLUGINS = frozenset(
    {"predicates", "network-topology-aware", "numa-aware", "pdb", "shares", "gang"}
)
"""Plugins whose rules bind where no configuration is given."""

ZONE = "volcano.sh/revocable-zone"

Spot = tuple[str, Role, str]
"""Task, its role, and its node once the plan is carried out."""


def check(facts: Facts, config: Config | None) -> Iterator[Violation]:
    """Yield what is wrong by the rules of the plugins that the configuration names."""
    if config is None:
        names = DEFAULT_PLUGINS
    else:
        names = frozenset(p.name for tier in config.tiers for p in tier if _is_on(p))
    yield from _owners(facts)
    if "predicates" in names:
        yield from _neighbours(facts)
        yield from _volumes(facts)
    if "network-topology-aware" in names:
        yield from _domains(facts)
    if "numa-aware" in names:
        yield from _cpus(facts)
    if "pdb" in names:
        yield from _budgets(facts)
    if "tdm" in names and config is not None:
        yield from _hours(facts, config)


FLAGS = {
    "predicates": "predicate",
    "network-topology-aware": "hyper_node_gradient",
    "numa-aware": "predicate",
    "tdm": "predicate",
    "pdb": "preemptable",
}
"""The flag without which a plugin's rule does not bind."""


def _is_on(plugin: PluginConfig) -> bool:
    flag = FLAGS.get(plugin.name, "")
    return flag not in plugin.disabled and (plugin.enabled is None or flag in plugin.enabled)


def _owners(facts: Facts) -> Iterator[Violation]:
    """Preempt is for the own queue, reclaim for another one."""
    for eviction in facts.plan.evictions:
        winner = facts.jobs.get(eviction.beneficiary or "")
        loser = facts.jobs.get(eviction.job)
        if winner is None or loser is None:
            continue
        is_same = winner.queue == loser.queue
        if eviction.action in ("preempt", "gangpreempt") and not is_same:
            yield Violation("wrong_queue", eviction.task, {"action": eviction.action})
        if eviction.action in ("reclaim", "gangreclaim") and is_same:
            yield Violation("wrong_queue", eviction.task, {"action": eviction.action})


# -- neighbours ------------------------------------------------------------------------------------


def _spots(facts: Facts) -> list[Spot]:
    """Return where every task is once the plan is carried out and nothing is ending any more."""
    found = []
    for task, role in _tasks(facts):
        binding = facts.bound.get(task.key)
        if binding is not None:
            found.append((task.key, role, binding.node))
        elif task.node is not None and task.state in HOLDS and not _is_ending(facts, task):
            found.append((task.key, role, task.node))
    return found


def _ending_spots(facts: Facts) -> list[Spot]:
    """Return where the tasks are that are ending, or are to end by the plan."""
    return [
        (task.key, role, task.node)
        for task, role in _tasks(facts)
        if task.node is not None and _is_ending(facts, task)
    ]


def _tasks(facts: Facts) -> Iterator[tuple[Task, Role]]:
    for job in facts.snapshot.jobs:
        roles = {role.name: role for role in job.roles}
        for task in job.tasks:
            yield task, roles[task.role]


def _is_ending(facts: Facts, task: Task) -> bool:
    return task.state is TaskState.RELEASING or task.key in facts.evicted


def _neighbours(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """No bound task has a neighbour that it, or the neighbour, must not have, or lacks one."""
    jobs = facts.snapshot.jobs
    if not any(
        r.pod_terms or r.spread or r.ports or r.device_claims for j in jobs for r in j.roles
    ):
        return
    spots = _spots(facts)
    ending_spots = _ending_spots(facts)
    crowds, ending = _crowds(spots), _crowds(ending_spots)
    evicted = _crowds([spot for spot in ending_spots if spot[0] in facts.evicted])
    for key, role, node in spots:
        if key not in facts.bound:
            continue
        others = [crowd for crowd in crowds if crowd.space == _space(key)]
        still = [crowd for crowd in ending if crowd.space == _space(key)]
        left = [crowd for crowd in evicted if crowd.space == _space(key)]
        yield from _affinities(facts, key, role, node, others, left)
        yield from _objections(facts, key, role, node, [*others, *still])
        for rule in role.spread:
            if rule.is_required and not facts.evicted:
                yield from _skew(facts, key, role, rule, others)
        for crowd in (*crowds, *ending) if role.ports else ():
            if set(crowd.role.ports) & set(role.ports):
                users = [k for k, n in crowd.spots if k != key and n == node]
                if users:
                    yield Violation("port_taken", key, {"by": users[0]})
        for claim in role.device_claims:
            if any(claim in c.role.device_claims and c.is_beyond(node) for c in others):
                yield Violation("claim_apart", key, {"claim": claim})


@dataclass(slots=True)
class Crowd:
    """Tasks that look alike to others, with the nodes they are on."""

    space: str
    role: Role
    spots: list[tuple[str, str]]

    def is_beyond(self, node: str) -> bool:
        """Return whether any of them is on another node."""
        return any(n != node for _, n in self.spots)


def _crowds(spots: Iterable[Spot]) -> list[Crowd]:
    found: dict[tuple[object, ...], Crowd] = {}
    for key, role, node in spots:
        look = (
            _space(key),
            tuple(sorted(role.labels.items())),
            role.pod_terms,
            role.ports,
            role.device_claims,
        )
        found.setdefault(look, Crowd(_space(key), role, [])).spots.append((key, node))
    return list(found.values())


def _affinities(
    facts: Facts, key: str, role: Role, node: str, others: list[Crowd], left: list[Crowd]
) -> Iterator[Violation]:
    """The task has the neighbours that it needs, be it only until the plan evicts them."""
    for term in role.pod_terms:
        if not term.is_required or term.is_anti:
            continue
        like = _like(term, key, others)
        is_first = _selects(term.selector, role.labels) and not any(
            facts.order.get(k, -1) < facts.order[key] for k, _ in like
        )
        like += _like(term, key, left)
        if not is_first and not any(_shares_zone(facts, term, node, n) for _, n in like):
            yield Violation("alone", key, {"key": term.topology_key})


def _objections(
    facts: Facts, key: str, role: Role, node: str, others: list[Crowd]
) -> Iterator[Violation]:
    """Neither the task nor a neighbour must not have the other one near."""
    for term in role.pod_terms:
        if term.is_required and term.is_anti:
            like = _like(term, key, others)
            near = [k for k, n in like if _shares_zone(facts, term, node, n)]
            if near:
                yield Violation("unwelcome", key, {"beside": near[0]})
    for crowd in others:
        for term in crowd.role.pod_terms:
            if term.is_required and term.is_anti and _selects(term.selector, role.labels):
                yield from (
                    Violation("unwelcome", key, {"beside": k})
                    for k, n in crowd.spots
                    if k != key and _shares_zone(facts, term, node, n)
                )


def _like(term: PodTerm, key: str, others: list[Crowd]) -> list[tuple[str, str]]:
    """Return the other tasks that a term speaks of, with their nodes."""
    return [
        (k, n)
        for crowd in others
        if _selects(term.selector, crowd.role.labels)
        for k, n in crowd.spots
        if k != key
    ]


def _shares_zone(facts: Facts, term: PodTerm, left: str, right: str) -> bool:
    zone = _label(facts, left, term.topology_key)
    return zone is not None and zone == _label(facts, right, term.topology_key)


def _label(facts: Facts, node: str, key: str) -> str | None:
    found = facts.nodes.get(node)
    return found.labels.get(key) if found is not None else None


def _skew(
    facts: Facts, key: str, role: Role, rule: SpreadRule, others: list[Crowd]
) -> Iterator[Violation]:
    """Zones are even as they stood when the task was placed, or once all have been.

    Who comes later need not mind; and who gave way and came back may stand where they were.
    """
    zone = _label(facts, facts.bound[key].node, rule.topology_key)
    if zone is None:
        yield Violation("uneven", key, {"key": rule.topology_key})
        return
    own = facts.order[key]
    like = [
        (facts.order.get(k, -1), _label(facts, n, rule.topology_key))
        for crowd in others
        if _selects(rule.selector, crowd.role.labels)
        for k, n in crowd.spots
        if k != key
    ]
    is_like = _selects(rule.selector, role.labels)
    zones = {
        n.labels[rule.topology_key]
        for n in facts.nodes.values()
        if rule.topology_key in n.labels and not unfit(role, n)
    }
    for latest in (own, len(facts.order)):
        counts = Counter(z for at, z in like if at < latest)
        counts[zone] += is_like
        if counts[zone] - min((counts[z] for z in zones), default=0) <= rule.max_skew:
            return
    yield Violation("uneven", key, {"key": rule.topology_key, "count": counts[zone]})


def _selects(selector: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    def is_met(requirement: Requirement) -> bool:
        value = labels.get(requirement.key)
        if requirement.operator == "In":
            return value in requirement.values
        if requirement.operator == "NotIn":
            return value not in requirement.values
        return (value is not None) is (requirement.operator == "Exists")

    return all(is_met(requirement) for requirement in selector)


def _space(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


# -- volumes ---------------------------------------------------------------------------------------


def _volumes(facts: Facts) -> Iterator[Violation]:
    """Bound tasks reach the volumes that they claim, and every claim has one or can get one."""
    claims = {c.key: c for c in facts.snapshot.volume_claims}
    volumes = {v.name: v for v in facts.snapshot.volumes}
    kinds = {k.name: k for k in facts.snapshot.storage_classes}
    for key, binding in facts.bound.items():
        place = facts.places.get(key)
        for name in place.role.volume_claims if place is not None else ():
            claim = claims.get(name)
            node = facts.nodes.get(binding.node)
            if claim is None or node is None:
                yield Violation("no_volume", key, {"claim": name})
                continue
            volume = volumes.get(claim.volume)
            if claim.volume and (volume is None or not _reaches(volume.nodes, node)):
                yield Violation("volume_out_of_reach", key, {"claim": name})
            kind = kinds.get(claim.storage_class)
            if not claim.volume and (kind is None or not kind.waits_for_consumer):
                yield Violation("no_volume", key, {"claim": name})


def _reaches(terms: tuple[tuple[Requirement, ...], ...], node: Node) -> bool:
    return not terms or any(_selects(term, node.labels) for term in terms)


# -- domains ---------------------------------------------------------------------------------------


def _domains(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """The tasks of a job, or sub-group, with a hard rule lie in one domain of an allowed tier."""
    places: dict[str, str] = {b.task: b.node for b in facts.plan.binds}
    places |= {p.task: p.node for p in facts.plan.pipelined}
    touched = {b.job for b in facts.plan.binds} | {p.job for p in facts.plan.pipelined}
    domains = _members(facts.snapshot.hypernodes)
    for key in sorted(touched):
        job = facts.jobs.get(key)
        if job is None or (job.topology is None and not job.sub_groups):
            continue
        for name, rule, roles in _groups(job):
            if rule is None or rule.mode is not TopologyMode.HARD:
                continue
            before, added = set(), set()
            for task in job.tasks:
                if task.role not in roles or task.key in facts.evicted:
                    continue
                if task.key in places:
                    added.add(places[task.key])
                elif task.node is not None and task.state in LIVE:
                    before.add(task.node)
            allowed = _allowed(facts.snapshot.hypernodes, domains, rule, set(facts.nodes))
            was_inside = not before or any(before <= nodes for nodes in allowed)
            if added and was_inside and not any(before | added <= nodes for nodes in allowed):
                yield Violation("outside_domain", key, {"group": name})


def _groups(job: Job) -> Iterator[tuple[str, TopologyRule | None, set[str]]]:
    """Yield the job and its sub-groups: name, rule, names of the roles."""
    yield "", job.topology, {role.name for role in job.roles}
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    rules: dict[tuple[str, ...], TopologyRule | None] = {}
    for role in job.roles:
        for policy in job.sub_groups:
            values = [role.labels.get(key, "") for key in policy.match_label_keys]
            if values and all(values):
                found[policy.name, *values].add(role.name)
                rules[policy.name, *values] = policy.topology
                break
    for place, roles in found.items():
        yield "-".join(place), rules[place], roles


def _members(hypernodes: Iterable[HyperNode]) -> dict[str, set[str]]:
    """Return domain -> all nodes below it."""
    by_name = {h.name: h for h in hypernodes}

    def below(name: str, seen: frozenset[str]) -> set[str]:
        domain = by_name.get(name)
        if domain is None or name in seen:
            return set()
        nodes = set(domain.nodes)
        for member in domain.members:
            nodes |= below(member, seen | {name})
        return nodes

    return {name: below(name, frozenset()) for name in by_name}


def _allowed(
    hypernodes: Iterable[HyperNode],
    members: Mapping[str, set[str]],
    rule: TopologyRule,
    everything: set[str],
) -> list[set[str]]:
    listed = list(hypernodes)
    top = max((h.tier for h in listed), default=0) + 1
    names = {h.tier_name: h.tier for h in listed if h.tier_name}
    if rule.highest_tier_name:
        highest = names.get(rule.highest_tier_name, top)
    else:
        highest = rule.highest_tier if rule.highest_tier is not None else 1
    found = [members[h.name] for h in listed if h.tier <= highest]
    return [*found, everything] if highest >= top else found


# -- CPUs ------------------------------------------------------------------------------------------


def _cpus(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """No CPU is given out twice, and a task's lie as close as its policy demands."""
    taken: dict[str, set[int]] = defaultdict(set)
    named = {b.node for b in facts.plan.binds if (n := facts.nodes.get(b.node)) and n.numa}
    for job in facts.snapshot.jobs if named else ():
        for task in job.tasks:
            if task.node in named and task.state in HOLDS:
                taken[str(task.node)].update(task.cpus)
    for binding in facts.plan.binds:
        place, node = facts.places.get(binding.task), facts.nodes.get(binding.node)
        if place is None or node is None:
            continue
        policy = place.role.annotations.get(
            "volcano.sh/numa-topology-policy", place.role.topology_policy
        )
        own = {cpu for numa in node.numa for cpu in numa.cpus}
        cpus = set(binding.cpus)
        milli = place.role.request.get("cpu", 0)
        if cpus and (not cpus <= own or taken[node.name] & cpus):
            yield Violation("cpu_taken", binding.task, {"cpus": binding.cpus})
        if cpus and (len(cpus) != len(binding.cpus) or len(cpus) * 1000 != milli):
            yield Violation("cpu_count", binding.task, {"cpus": binding.cpus})
        used = sum(bool(cpus & set(numa.cpus)) for numa in node.numa)
        is_bound = policy == "single-numa-node" and milli and not milli % 1000
        if is_bound and used != 1:
            yield Violation("numa_crossed", binding.task, {"numa_nodes": used})
        taken[node.name] |= cpus


# -- budgets and hours -----------------------------------------------------------------------------


def _budgets(facts: Facts) -> Iterator[Violation]:
    """No more tasks of a budget are evicted at once than it allows."""
    for budget in facts.snapshot.disruption_budgets:
        gone = [
            task
            for task in facts.evicted
            if (place := facts.places.get(task)) is not None
            and _is_counted(budget, task, place.role)
        ]
        if gone and len(gone) > budget.disruptions_allowed:
            yield Violation("over_budget", gone[-1], {"budget": budget.name, "evicted": len(gone)})


def _is_counted(budget: DisruptionBudget, task: str, role: Role) -> bool:
    is_inside = not budget.namespace or task.startswith(f"{budget.namespace}/")
    return is_inside and all(role.labels.get(k) == v for k, v in budget.match_labels.items())


def _hours(facts: Facts, config: Config) -> Iterator[Violation]:
    """Nothing is bound to a revocable node outside its hours, or that does not accept it."""
    stated = {
        key.removeprefix("tdm."): text
        for tier in config.tiers
        for plugin in tier
        if plugin.name == "tdm"
        for key, text in plugin.arguments.items()
    }
    clock = datetime.fromtimestamp(facts.snapshot.now, ZoneInfo(stated.get("time-zone", "UTC")))
    minute = clock.hour * 60 + clock.minute
    hours = {
        key.removeprefix("revocable-zone."): text
        for key, text in stated.items()
        if key.startswith("revocable-zone.")
    }
    for binding in facts.plan.binds:
        place = facts.places.get(binding.task)
        zone = _label(facts, binding.node, ZONE)
        if zone is None or place is None:
            continue
        accepts = place.role.annotations.get(ZONE, "")
        start, end = (_minutes(part) for part in hours.get(zone, "0:0-0:0").split("-"))
        inside = start <= minute < end if start < end else minute >= start or minute < end
        if zone not in hours or not inside or not accepts:
            yield Violation("zone_closed", binding.task, {"zone": zone})


def _minutes(text: str) -> int:
    hours, _, minutes = text.strip().partition(":")
    return int(hours) * 60 + int(minutes or 0)
