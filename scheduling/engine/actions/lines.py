"""Queues in the order of their shares, and in each queue its jobs in order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from scheduling.engine.groups import Group
from scheduling.engine.session import Session
from scheduling.engine.views import JobView, QueueView

Key = tuple[object, ...]


Place = tuple[Key, JobView, Group]


class Lines:
    """The jobs waiting in each queue, and the queues, both as heaps.

    A key is taken when an element is pushed and again when it comes first: shares only grow while
    jobs are served, so an element whose key has become worse goes back and the next one is tried.
    """

    def __init__(self, session: Session, groups: Iterable[Group]) -> None:
        """Sort the groups into the lines of their queues by their first jobs."""
        self.session = session
        self._lines: dict[str, list[Place]] = {}
        queues: dict[str, QueueView] = {}
        for group in groups:
            job = group.head
            if job is not None:
                queues[job.queue.name] = job.queue
                line = self._lines.setdefault(job.queue.name, [])
                line.append((session.job_key(job), job, group))
        for line in self._lines.values():
            line.sort(key=_key_of)
        self._queues = sorted(
            ((session.queue_key(q), q) for q in queues.values()), key=_queue_key_of
        )
        self._has_moving_order = session.has_moving_order("job_order")

    def next_queue(self) -> QueueView | None:
        """Return the queue that comes first of those in which jobs wait; it stays in line."""
        heap, lines = self._queues, self._lines
        while heap:
            key, queue = heap[0]
            if not lines[queue.name]:
                heapq.heappop(heap)
                continue
            now = self.session.queue_key(queue)
            if now != key:
                heapq.heapreplace(heap, (now, queue))
                if heap[0][1] is not queue:
                    continue
            return queue
        return None

    def next_job(self, queue: QueueView) -> tuple[JobView, Group] | None:
        """Take out the job that comes first in a queue, with its group."""
        heap = self._lines[queue.name]
        while heap:
            key, job, group = heapq.heappop(heap)
            if self._has_moving_order and heap:
                now = self.session.job_key(job)
                if now != key and now > heap[0][0]:
                    heapq.heappush(heap, (now, job, group))
                    continue
            return job, group
        return None

    def push(self, group: Group) -> None:
        """Put a group into line by its first job, if it has one left."""
        job = group.head
        if job is not None:
            key = self.session.job_key(job)
            heapq.heappush(self._lines[job.queue.name], (key, job, group))

    def rest(self, queue: QueueView) -> list[Group]:
        """Take out all groups that still wait in a queue."""
        heap = self._lines[queue.name]
        groups = [group for _, _, group in heap]
        heap.clear()
        return groups


def _key_of(element: Place) -> Key:
    return element[0]


def _queue_key_of(element: tuple[Key, QueueView]) -> Key:
    return element[0]
