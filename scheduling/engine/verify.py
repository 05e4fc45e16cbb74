"""Check a plan against its snapshot without trusting the engine: no code is shared with actions.

`check` counts everything again from the snapshot, in plain dictionaries. It says what is wrong
with a plan, never how to mend it; whoever applies plans refuses one with a violation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from scheduling.engine import verify_rules
from scheduling.engine.types import (
    GPU,
    JOBS,
    PODS,
    Amounts,
    Config,
    Device,
    Job,
    Node,
    Plan,
    QueueState,
    Quota,
    Reservation,
    Role,
    Snapshot,
    TaskState,
)
from scheduling.engine.verify_facts import (
    HOLDS,
    LIVE,
    ONE_JOB,
    WHOLE_DEVICE,
    Facts,
    Place,
    Violation,
    unfit,
)


def check(snapshot: Snapshot, plan: Plan, config: Config | None = None) -> list[Violation]:
    """Return what is wrong with a plan; an empty list if it may be carried out.

    Rules that bind only where a plugin is named (topology, NUMA, budgets, revocable nodes) are
    checked as the configuration has them; without one as the default has them. A plan that decides
    nothing costs only a look at the reasons.
    """
    if not (plan.binds or plan.evictions or plan.pipelined or plan.reservations):
        return list(_missing_reasons(snapshot, plan))
    facts = Facts(snapshot, plan)
    found = [
        *_binds(facts),
        *_rooms(facts),
        *_queues(facts),
        *_walls(facts),
        *_gangs(facts, config),
        *_devices(facts),
        *_evictions(facts),
        *_minimums(facts),
        *_promises(facts),
        *_reservations(facts),
        *verify_rules.check(facts, config),
        *_missing_reasons(snapshot, plan),
    ]
    return sorted(found, key=lambda v: (v.code, v.subject))


def _binds(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """Each bind is of a waiting task of a job that may run, to a node where it may run."""
    for task, count in Counter(b.task for b in facts.plan.binds).items():
        if count > 1:
            yield Violation("bound_twice", task, {"times": count})
    for binding in facts.plan.binds:
        place = facts.places.get(binding.task)
        if place is None or place.job.key != binding.job:
            yield Violation("unknown_task", binding.task, {"job": binding.job})
            continue
        if place.task.state is not TaskState.PENDING:
            yield Violation("not_pending", binding.task, {"state": str(place.task.state)})
        if not place.job.is_runnable:
            yield Violation("not_runnable", place.job.key)
        if place.task.not_before > facts.snapshot.now:
            yield Violation("back_off", binding.task, {"until": place.task.not_before})
        node = facts.nodes.get(binding.node)
        if node is None:
            yield Violation("unknown_node", binding.task, {"node": binding.node})
            continue
        cause = unfit(place.role, node)
        if cause:
            yield Violation("unfit_node", binding.task, {"node": node.name, "cause": cause})


def _rooms(facts: Facts) -> Iterator[Violation]:
    """No node is given more than it has left."""
    added: dict[str, Counter[str]] = defaultdict(Counter)
    for binding in facts.plan.binds:
        place = facts.places.get(binding.task)
        if place is not None:
            added[binding.node].update(place.request)
    for name, amounts in added.items():
        node = facts.nodes.get(name)
        if node is None:
            continue
        for resource, amount in amounts.items():
            most = facts.capacity(name, resource)
            held = facts.held_by_node[name][resource]
            if most is not None and amount and held + amount > most:
                yield Violation(
                    "node_overfull",
                    name,
                    {
                        "resource": resource,
                        "held": held,
                        "added": amount,
                        "allocatable": most,
                    },
                )


def _queues(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """No queue takes work while it is closed, or holds more than its max at any level."""
    added: dict[str, Counter[str]] = defaultdict(Counter)
    for binding in facts.plan.binds:
        place = facts.places.get(binding.task)
        if place is None:
            continue
        path = facts.path(place.job.queue)
        if not path:
            yield Violation("unknown_queue", place.job.key, {"queue": place.job.queue})
        for queue in path:
            added[queue.name].update(place.request)
    parents = {q.parent for q in facts.queues.values()}
    for name, amounts in added.items():
        queue = facts.queues[name]
        if queue.state is not QueueState.OPEN:
            yield Violation("queue_not_open", name, {"state": str(queue.state)})
        for resource, most in queue.max.items():
            held = facts.held_by_queue[name][resource]
            if amounts[resource] and held + amounts[resource] > most:
                yield Violation(
                    "queue_over_max",
                    name,
                    {"resource": resource, "held": held, "added": amounts[resource], "max": most},
                )
    for job in {p.job.key: p.job for b in facts.plan.binds if (p := facts.places.get(b.task))}:
        if facts.jobs[job].queue in parents:
            yield Violation("queue_not_leaf", job, {"queue": facts.jobs[job].queue})


def _walls(facts: Facts) -> Iterator[Violation]:
    """No unit or user is given more than a wall lets through; what is ending still counts."""
    starting: dict[str, Counter[str]] = defaultdict(Counter)
    for binding in facts.plan.binds:
        place = facts.places.get(binding.task)
        if place is not None:
            starting[place.job.key].update(place.request)
    for quota in facts.snapshot.quotas:
        if quota.queues is not None:
            yield from _beyond(facts, quota, starting)


def _beyond(
    facts: Facts, quota: Quota, starting: Mapping[str, Counter[str]]
) -> Iterator[Violation]:
    held: dict[str, Counter[str]] = defaultdict(Counter)
    added: dict[str, Counter[str]] = defaultdict(Counter)
    last: dict[str, str] = {}
    for job in facts.snapshot.jobs:
        if not _is_behind(job, quota):
            continue
        key = job.owner if quota.is_each else ""
        now = _held(job)
        held[key].update(now)
        if job.key in starting:
            added[key].update(starting[job.key])
            added[key][JOBS] += 0 if now else ONE_JOB
            last[key] = job.key
    for key, amounts in added.items():
        before = quota.used_by_owner.get(key, {}) if quota.is_each else quota.used
        for resource, most in quota.hard.items():
            total = before.get(resource, 0) + held[key][resource]
            if amounts[resource] and total + amounts[resource] > most:
                params = {"resource": resource, "held": total, "added": amounts[resource]}
                yield Violation("over_quota", last[key], {"quota": quota.name, **params})


def _is_behind(job: Job, quota: Quota) -> bool:
    """Return whether a wall is around a job."""
    is_meant = not quota.owner or quota.owner == job.owner
    return is_meant and job.queue in (quota.queues or ()) and job.owner not in quota.exempt


def _held(job: Job) -> Counter[str]:
    """Return what a job holds; its place among the running jobs too, if it holds anything."""
    requests = {role.name: role.request for role in job.roles}
    total: Counter[str] = Counter()
    for task in job.tasks:
        if task.state in HOLDS:
            total.update({PODS: 1000, **requests[task.role]})
            total[JOBS] = ONE_JOB
    return total


def _gangs(facts: Facts, config: Config | None) -> Iterator[Violation]:
    """A gang is started whole, and is never cut below its minimum unless it goes entirely.

    Tasks that ask for nothing may wait where no action starts any.
    """
    is_without = config is not None and all(a.name != "backfill" for a in config.actions)
    touched = {b.job for b in facts.plan.binds} | {e.job for e in facts.plan.evictions}
    for key in sorted(touched):
        job = facts.jobs.get(key)
        if job is None:
            continue
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        idle = {r.name for r in job.roles if is_without and not any(r.request.values())}
        for task in job.tasks:
            is_held = task.state in LIVE or task.state is TaskState.SUCCEEDED
            before[task.role] += is_held
            stays = is_held and task.key not in facts.evicted
            after[task.role] += stays or task.key in facts.bound or task.role in idle
        live = any(t.state in LIVE and t.key not in facts.evicted for t in job.tasks)
        has_binds = any(t.key in facts.bound for t in job.tasks)
        if not has_binds and (not live or _lacks(job, before)):
            continue
        lacking = _lacks(job, after)
        if lacking:
            code = "gang_incomplete" if has_binds else "gang_broken"
            yield Violation(code, key, {"lacking": lacking})


def _lacks(job: Job, counts: Mapping[str, int]) -> str:
    """Return what a gang lacks: a role's name, 'job', or '' if it is complete."""
    for role in job.roles:
        if counts[role.name] < role.min_available:
            return role.name
    return "job" if sum(counts.values()) < job.min_available else ""


def _devices(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - a list of independent checks
    """No device is given out beyond itself, and none that is not there, not healthy, not wanted."""
    taken: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for place in facts.places.values():
        task = place.task
        if task.state in HOLDS and task.node is not None:
            for name in task.devices:
                device = facts.device(task.node, name)
                taken[task.node, name].update(_parts(place.role, device))
    for binding in facts.plan.binds:
        place_or_none = facts.places.get(binding.task)
        node = facts.nodes.get(binding.node)
        if place_or_none is None or node is None or all(d.resource != GPU for d in node.devices):
            continue
        role = place_or_none.role
        wanted = _device_count(role)
        healthy = {d.id for d in node.devices if d.is_healthy and d.resource == GPU}
        if not set(binding.devices) <= healthy:
            yield Violation("bad_device", binding.task, {"devices": binding.devices})
        if len(set(binding.devices)) != wanted or len(binding.devices) != wanted:
            yield Violation("device_count", binding.task, {"devices": binding.devices})
        for name in binding.devices:
            device = facts.device(binding.node, name)
            if device is not None and not _is_wanted(role, device):
                yield Violation("unwanted_device", binding.task, {"device": name})
            sums = taken[binding.node, name]
            before = dict(sums)
            sums.update(_parts(role, device))
            is_alone = _parts(role, device)["compute"] >= WHOLE_DEVICE
            if max(sums["memory"], sums["compute"]) > WHOLE_DEVICE or (
                is_alone and before.get("tasks")
            ):
                yield Violation("device_taken", binding.task, {"device": name})


def _device_count(role: Role) -> int:
    """Return of how many devices a role's tasks hold something."""
    request = role.request
    if request.get(GPU, 0):
        return max(request[GPU] // WHOLE_DEVICE, 1)
    number = request.get("volcano.sh/vgpu-number", 0) or request.get("volcano.sh/gpu-number", 0)
    return number // 1000 or int(bool(request.get("volcano.sh/gpu-memory", 0)))


def _parts(role: Role, device: Device | None) -> dict[str, int]:
    """Return what a task takes of each of its devices: thousandths of memory and of compute."""
    request = role.request
    if request.get(GPU, 0) or request.get("volcano.sh/gpu-number", 0):
        share = min(request.get(GPU, 0) or WHOLE_DEVICE, WHOLE_DEVICE)
        return {"memory": share, "compute": share, "tasks": 1}
    percent = request.get("volcano.sh/vgpu-memory-percentage", 0) // 1000
    mib = request.get("volcano.sh/vgpu-memory", 0) or request.get("volcano.sh/gpu-memory", 0)
    size = device.memory_bytes if device is not None else 0
    memory = percent * 10
    if mib and not memory and size:
        memory = -(-mib // 1000 * 2**20 * WHOLE_DEVICE // size)
    compute = request.get("volcano.sh/vgpu-cores", 0) // 100
    return {"memory": memory, "compute": compute, "tasks": 1}


def _is_wanted(role: Role, device: Device) -> bool:
    """Return whether a role's annotations let it run on a device."""

    def listed(key: str) -> list[str]:
        text = role.annotations.get(f"nvidia.com/{key}", "")
        return [part.strip() for part in text.split(",") if part.strip()]

    model = device.model.lower()
    uses, avoids = listed("use-gputype"), listed("nouse-gputype")
    if uses and not any(one.lower() in model for one in uses):
        return False
    if any(one.lower() in model for one in avoids) or device.id in listed("nouse-gpuuuid"):
        return False
    return not listed("use-gpuuuid") or device.id in listed("use-gpuuuid")


def _evictions(facts: Facts) -> Iterator[Violation]:
    """Victims are live and may be evicted, each once, and somebody gets what they leave."""
    for task, count in Counter(e.task for e in facts.plan.evictions).items():
        if count > 1:
            yield Violation("evicted_twice", task, {"times": count})
    plan = facts.plan
    gains = {one.job for one in plan.binds} | {one.job for one in plan.pipelined}
    gains |= {one.job for one in plan.reservations}
    for eviction in facts.plan.evictions:
        place = facts.places.get(eviction.task)
        if place is None or place.job.key != eviction.job:
            yield Violation("unknown_task", eviction.task, {"job": eviction.job})
            continue
        if place.task.state not in LIVE or place.task.node != eviction.node:
            yield Violation("not_live", eviction.task, {"state": str(place.task.state)})
        if not place.role.preemptable or place.job.preemptable is False:
            yield Violation("not_preemptable", eviction.task)
        if eviction.action in ("preempt", "reclaim") and eviction.beneficiary not in gains:
            yield Violation("useless_eviction", eviction.task, {"for": eviction.beneficiary})


def _minimums(facts: Facts) -> Iterator[Violation]:  # noqa: C901 - sums and compares
    """Reclaiming leaves every queue its min, as far as it had it."""
    freed: dict[str, Counter[str]] = defaultdict(Counter)
    for eviction in facts.plan.evictions:
        place = facts.places.get(eviction.task)
        if place is not None and eviction.action == "reclaim":
            winner = facts.jobs.get(eviction.beneficiary or "")
            shared = {q.name for q in facts.path(winner.queue)} if winner is not None else ()
            for queue in facts.path(place.job.queue):
                if queue.name not in shared:  # there it changes hands
                    freed[queue.name].update(place.request)
    gained: dict[str, Counter[str]] = defaultdict(Counter)
    for task in [*(p.task for p in facts.plan.pipelined), *facts.bound]:
        place = facts.places.get(task)
        if place is not None:
            for queue in facts.path(place.job.queue):
                gained[queue.name].update(place.request)
    for name, amounts in freed.items():
        for resource, least in facts.queues[name].min.items():
            before = facts.held_by_queue[name][resource]
            after = before - amounts[resource] + gained[name][resource]
            if amounts[resource] and after < least <= before:
                yield Violation(
                    "queue_under_min", name, {"resource": resource, "min": least, "left": after}
                )


def _promises(facts: Facts) -> Iterator[Violation]:
    """Promised tasks wait, and there will be room once what is ending has ended."""
    promised: dict[str, Counter[str]] = defaultdict(Counter)
    for promise in facts.plan.pipelined:
        place = facts.places.get(promise.task)
        node = facts.nodes.get(promise.node)
        if place is None or node is None or place.job.key != promise.job:
            yield Violation("unknown_task", promise.task, {"job": promise.job})
            continue
        if place.task.state is not TaskState.PENDING or promise.task in facts.bound:
            yield Violation("not_pending", promise.task, {"state": str(place.task.state)})
        cause = unfit(place.role, node)
        if cause:
            yield Violation("unfit_node", promise.task, {"node": node.name, "cause": cause})
        promised[promise.node].update(place.request)
    if promised:
        yield from _too_large(facts, promised)
        yield from _beyond_max(facts)


def _beyond_max(facts: Facts) -> Iterator[Violation]:
    """No queue holds more than its max once its promises have come true."""
    plan = facts.plan
    promised: dict[str, Counter[str]] = defaultdict(Counter)
    other: dict[str, Counter[str]] = defaultdict(Counter)
    moves = [(promised, 1, one.task) for one in plan.pipelined]
    moves += [(other, 1, one.task) for one in plan.binds]
    moves += [(other, -1, one.task) for one in plan.evictions]
    for sums, sign, task in moves:
        place = facts.places.get(task)
        for queue in facts.path(place.job.queue) if place is not None else ():
            for resource, amount in place.request.items() if place is not None else ():
                sums[queue.name][resource] += sign * amount
    for name, amounts in promised.items():
        for resource, most in facts.queues[name].max.items():
            stays = facts.held_by_queue[name][resource] + other[name][resource]
            added = amounts[resource]
            if not added or stays + added <= most:
                continue
            stays -= _ending(facts, name, resource)
            if stays + added > most:
                params = {"resource": resource, "held": stays, "added": added, "max": most}
                yield Violation("promise_over_max", name, params)


def _ending(facts: Facts, queue: str, resource: str) -> int:
    """Return how much of a resource tasks hold below a queue that were ending before."""
    return sum(
        {PODS: 1000, **role.request}.get(resource, 0)
        for job in facts.snapshot.jobs
        if any(level.name == queue for level in facts.path(job.queue))
        for role in job.roles
        for task in job.tasks
        if task.role == role.name
        and task.state is TaskState.RELEASING
        and task.key not in facts.evicted
    )


def _too_large(facts: Facts, promised: Mapping[str, Counter[str]]) -> Iterator[Violation]:
    """Promises fit beside what stays and what is bound."""
    future: dict[str, Counter[str]] = defaultdict(Counter)
    for place in facts.places.values():
        task = place.task
        if task.state in LIVE and task.node is not None and task.key not in facts.evicted:
            future[task.node].update(place.request)
    for binding in facts.plan.binds:
        if binding.task in facts.places:
            future[binding.node].update(facts.places[binding.task].request)
    for name, amounts in promised.items():
        for resource, amount in amounts.items():
            most = facts.capacity(name, resource)
            if most is not None and amount and future[name][resource] + amount > most:
                yield Violation("promise_too_large", name, {"resource": resource})


def _reservations(facts: Facts) -> Iterator[Violation]:
    """Reserved room is for a job that waits, and others are not placed into it."""
    added: dict[str, list[Place]] = defaultdict(list)
    for binding in facts.plan.binds:
        if binding.task in facts.places:
            added[binding.node].append(facts.places[binding.task])
    for reservation in facts.plan.reservations:
        job = facts.jobs.get(reservation.job)
        if job is None or not any(
            t.state is TaskState.PENDING and t.key not in facts.bound for t in job.tasks
        ):
            yield Violation("useless_reservation", reservation.job)
        if reservation.expires_at <= facts.snapshot.now:
            yield Violation("expired_reservation", reservation.job)
        for name, amounts in reservation.amounts_by_node.items():
            node = facts.nodes.get(name)
            if node is None:
                yield Violation("unknown_node", reservation.job, {"node": name})
                continue
            yield from _intrusions(facts, reservation, node, amounts, added[name])


def _passed_on(facts: Facts, node: Node, places: list[Place]) -> Counter[str]:
    """Return what jobs whom evictions had made room on a node did not take of it themselves.

    It was not free before, and goes to whoever comes before them in their queue by now.
    """
    left: Counter[str] = Counter()
    for earlier in facts.snapshot.reservations:
        if earlier.reason == "evicted":
            left.update(earlier.amounts_by_node.get(node.name, {}))
            own = [p for p in places if p.job.key == earlier.job]
            left.subtract(_taken(facts, node, own))
    return +left


def _intrusions(
    facts: Facts, reservation: Reservation, node: Node, amounts: Amounts, places: list[Place]
) -> Iterator[Violation]:
    earlier = {r.job: r for r in facts.snapshot.reservations}
    own = earlier.get(reservation.job)
    if reservation.reason != "sla" or own is None or own.reason != "sla":
        return  # room that is being freed has been counted by `_promises`; new ones come last
    others = _taken(
        facts,
        node,
        [p for p in places if p.job.key not in earlier and not _ends_before(p, facts, reservation)],
    )
    others.subtract(_passed_on(facts, node, places))
    for resource, kept in amounts.items():
        if not kept or others[resource] <= 0 or resource not in node.allocatable:
            continue
        left = node.allocatable[resource] - facts.held_by_node[node.name][resource]
        if left - others[resource] < kept:
            yield Violation(
                "room_reserved", node.name, {"for": reservation.job, "resource": resource}
            )


def _taken(facts: Facts, node: Node, places: list[Place]) -> Counter[str]:
    """Return what some tasks take of a node, less what goes there for their jobs."""
    taken: Counter[str] = Counter()
    for place in places:
        taken.update(place.request)
    jobs = {place.job.key for place in places}
    for eviction in facts.plan.evictions:
        if eviction.node == node.name and eviction.beneficiary in jobs:
            taken.subtract(facts.places[eviction.task].request)
    return taken


def _ends_before(place: Place, facts: Facts, reservation: Reservation) -> bool:
    limit = place.job.time_limit_seconds
    starts_at = reservation.starts_at
    return limit is not None and starts_at is not None and facts.snapshot.now + limit <= starts_at


def _missing_reasons(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Every job that still waits says why."""
    placed = {b.task for b in plan.binds} | {p.task for p in plan.pipelined}
    for job in snapshot.jobs:
        if job.key in plan.job_reasons:
            continue
        if any(t.state is TaskState.PENDING and t.key not in placed for t in job.tasks):
            yield Violation("no_reason", job.key)


__all__ = ["Violation", "check"]
