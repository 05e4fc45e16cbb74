"""Room for a plan as the rows say now: queues under their max, nodes and devices that are free.

Both lock what they read, queues from the root down and then nodes by id, so that what they say
holds until the transaction ends.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from scheduling.domain import holds
from scheduling.domain.transition_rows import NewHold
from scheduling.engine import types as engine
from scheduling.engine.devices import SHARING_NAMES, SLOTS, WHOLE, ask_of
from scheduling.models import Device, DeviceHold, Node, Queue
from scheduling.models.node import NodeState

Amounts = Mapping[str, int]


class QueueRoom:
    """The queues above the jobs, locked, with what they hold and may hold."""

    def __init__(self, cluster_id: UUID, job_ids: Collection[UUID]) -> None:
        """Lock the queues above these jobs."""
        self.above: defaultdict[UUID, list[UUID]] = defaultdict(list)
        self.max: dict[UUID, Amounts] = {}
        self.usage: dict[UUID, dict[str, int]] = {}
        if job_ids:
            self._read(cluster_id, job_ids)

    def _read(self, cluster_id: UUID, job_ids: Collection[UUID]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(QUEUES_ABOVE, [list(job_ids)])
            for ancestor, descendant in cursor.fetchall():
                self.above[descendant].append(ancestor)
        involved = {ancestor for group in self.above.values() for ancestor in group}
        self.max = _lock_queues(involved)
        limited = [queue_id for queue_id, limits in self.max.items() if limits]
        if limited:
            self.usage = {
                queue.id: dict(holds.usage_of_queue(queue))
                for queue in Queue.objects.filter(cluster_id=cluster_id, id__in=limited)
            }

    def has_room(self, queue_id: UUID, total: Amounts) -> bool:
        """Whether the queue and all above it stay within their max with so much more."""
        return all(
            self.usage[above].get(name, 0) + total.get(name, 0) <= limit
            for above in self.above[queue_id]
            for name, limit in self.max[above].items()
            if total.get(name, 0)
        )

    def take(self, queue_id: UUID, total: Amounts) -> None:
        """Count so much more as held by the queue and all above it."""
        for above in self.above[queue_id]:
            usage = self.usage.get(above)
            if usage is not None:
                for name, amount in total.items():
                    usage[name] = usage.get(name, 0) + amount


QUEUES_ABOVE = """
SELECT c.ancestor_id, c.descendant_id FROM scheduling_queueclosure AS c
WHERE c.descendant_id IN (SELECT queue_id FROM scheduling_job WHERE id = ANY(%s))
"""
LOCK_QUEUES = """
SELECT q.id, q.max FROM scheduling_queue AS q WHERE q.id = ANY(%s)
ORDER BY
    (SELECT count(*) FROM scheduling_queueclosure AS c WHERE c.descendant_id = q.id), q.id
FOR SHARE OF q
"""


def _lock_queues(queue_ids: Collection[UUID]) -> dict[UUID, Amounts]:
    """Lock queues FOR SHARE, the root first, and return their max as it is now.

    Of a row that it had to wait for, such a statement gives what is committed, not what it saw.
    """
    with connection.cursor() as cursor:
        cursor.execute(LOCK_QUEUES, [list(queue_ids)])
        return {queue_id: json.loads(limits) for queue_id, limits in cursor.fetchall()}


class NodeRoom:
    """The nodes of the binds, locked, with what is free on them."""

    def __init__(self, cluster_id: UUID, binds: Collection[engine.Binding]) -> None:
        """Lock the nodes that the binds name."""
        names = {bind.node for bind in binds}
        locked = Node.objects.select_for_update(no_key=True).order_by("id")
        self.rows = (
            {node.name: node for node in locked.filter(cluster_id=cluster_id, name__in=names)}
            if names
            else {}
        )
        self.free = {name: dict(node.allocatable) for name, node in self.rows.items()}
        ids = {node.id: node.name for node in self.rows.values()}
        for node_id, amounts in holds.usage_of_nodes(ids).items():
            _subtract(self.free[ids[node_id]], amounts)
        self.devices: dict[str, Device] = {}
        self.taken: defaultdict[str, Part] = defaultdict(Part)
        """Of each device, by all who hold some of it."""
        self._read_devices(ids, {device for bind in binds for device in bind.devices})

    def _read_devices(self, nodes: Collection[UUID], wanted: Collection[str]) -> None:
        """Read the devices that the binds take, and what of them is taken already."""
        if not wanted:
            return
        present = Device.objects.filter(id__in=wanted, node__in=nodes, is_present=True)
        self.devices = {str(device.id): device for device in present}
        held = DeviceHold.objects.filter(device__in=present, released_at__isnull=True)
        for device_id, milli, size in held.values_list("device_id", "gpu_milli", "memory_bytes"):
            self.taken[str(device_id)] += Part(milli, size, tasks=1)

    def take(self, pairs: list[tuple[engine.Binding, Amounts]]) -> bool:
        """Take the room of all binds of a job, or nothing."""
        wanted: defaultdict[str, dict[str, int]] = defaultdict(dict)
        parts: defaultdict[str, Part] = defaultdict(Part)
        for bind, request in pairs:
            _add(wanted[bind.node], request)
            for device in bind.devices:
                if device not in self.devices:
                    return False
                parts[device] += part_of(request, self.devices[device])
        if not all(self._has_room(name, amounts) for name, amounts in wanted.items()):
            return False
        if not all(self._is_free(device, part) for device, part in parts.items()):
            return False
        for name, amounts in wanted.items():
            _subtract(self.free[name], amounts)
        for device, part in parts.items():
            self.taken[device] += part
        return True

    def _has_room(self, name: str, amounts: Amounts) -> bool:
        node = self.rows.get(name)
        if node is None or node.state != NodeState.READY or node.is_cordoned or node.is_draining:
            return False
        free = self.free[name]
        return all(
            amount <= free.get(resource, 0)
            for resource, amount in amounts.items()
            if resource not in SHARING_NAMES  # judged card by card
        )

    def _is_free(self, device_id: str, part: Part) -> bool:
        device, after = self.devices[device_id], self.taken[device_id] + part
        return (
            device.is_healthy
            and after.gpu_milli <= WHOLE
            and after.memory_bytes <= device.memory_bytes
            and after.tasks <= SLOTS
        )

    def device_holds(
        self, hold: NewHold, bind: engine.Binding, request: Amounts
    ) -> list[DeviceHold]:
        """Return the rows of the devices that a bind takes."""
        devices = [self.devices[device_id] for device_id in bind.devices]
        parts = [part_of(request, device) for device in devices]
        return [
            DeviceHold(
                hold_id=hold.id,
                device=device,
                gpu_milli=part.gpu_milli,
                memory_bytes=part.memory_bytes,
                is_whole=part.is_whole,
            )
            for device, part in zip(devices, parts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Part:
    """What is taken of one device: thousandths of its compute, bytes of its memory."""

    gpu_milli: int = 0
    memory_bytes: int = 0
    tasks: int = 0
    is_whole: bool = False

    def __add__(self, other: Part) -> Part:
        """Return what both take together."""
        return Part(
            self.gpu_milli + other.gpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.tasks + other.tasks,
        )


def part_of(request: Amounts, device: Device) -> Part:
    """Return what a task takes of one of its devices: the whole, unless it asked for less."""
    ask = ask_of(request.get(engine.GPU, 0), request, {})
    if ask is None or ask.is_whole:
        return Part(WHOLE, device.memory_bytes, tasks=1, is_whole=True)
    size = device.memory_bytes
    memory, compute = ask.takes(engine.Device(device.uuid, device.index, memory_bytes=size))
    is_stated = ask.memory_bytes and not ask.memory_percent
    return Part(compute, ask.memory_bytes if is_stated else size * memory // WHOLE, tasks=1)


def total_of(requests: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of the requests, resource by resource."""
    total: dict[str, int] = {}
    for request in requests:
        _add(total, request)
    return total


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _subtract(total: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) - amount
