"""The reclaim action: a queue takes back what others hold above their share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduling.engine.actions.evicting import Search, search_in_domains
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.serving import is_head
from scheduling.engine.actions.victims import Victims, gather, starving_groups, victim_keys
from scheduling.engine.groups import Group
from scheduling.engine.rows import has_neighbour_rules
from scheduling.engine.session import Session
from scheduling.engine.views import JobView, RoleView

NAME = "reclaim"


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Serve starving jobs of queues below their share; evict only if the whole gang then fits."""
    del arguments
    groups = starving_groups(session)
    if groups:
        Reclaim(session).serve(groups, count=None)


class Reclaim:
    """One run of the action; the victims of a queue's jobs are gathered once."""

    def __init__(self, session: Session) -> None:
        """Start with nothing gathered."""
        self.session = session
        self._victims: dict[tuple[str, int], Victims | None] = {}
        self._gates: list[Callable[[JobView, RoleView], bool]] = session.each("preemptive")

    def serve(self, groups: list[Group], *, count: int | None) -> None:
        """Make room job by job, in order; `count` tasks at a time, or the gang's lack.

        Where no plugin says what a queue deserves a gang takes only what complete gangs can spare:
        else two jobs would take turns.
        """
        session = self.session
        if not self._gates and count is not None:
            return
        lines = Lines(session, groups)
        misses: set[tuple[object, ...]] = set()
        while (queue := lines.next_queue()) is not None:
            if session.is_overused(queue):
                lines.rest(queue)
                continue
            found = lines.next_job(queue)
            if found is None:
                continue
            job, group = found
            ask = _ask(job)
            if ask in misses or not self._make_room(job, count):
                misses.add(ask)
                if is_head(job, group.reason):
                    lines.rest(queue)
            elif group.take(job) is not group or count is not None:
                lines.push(group)

    def _make_room(self, job: JobView, count: int | None) -> bool:
        session = self.session
        roles = [r for r in job.roles if r.pending]
        if not roles or not self._may_take(job, roles[0]):
            return False
        victims = self._victims_for(job)
        if victims is None:
            return False
        own = session.give_up(job.key)
        with session.without_lack(own):
            stands = search_in_domains(
                session,
                job,
                lambda domain: Search(
                    session, job, action=NAME, veto="reclaimable", victims=victims
                ).run(
                    lambda role: self._may_take(job, role),
                    count=count,
                    may_break_gangs=bool(self._gates),
                    domain=domain,
                ),
            )
        if stands:
            return True
        if own is not None:
            session.keep(own)
        return False

    def _may_take(self, job: JobView, role: RoleView) -> bool:
        return all(gate(job, role) for gate in self._gates)

    def _victims_for(self, job: JobView) -> Victims | None:
        """Return the tasks that the job's queue might take back, None if there are none."""
        place = (job.queue.name, job.job.priority)
        if place not in self._victims:
            keys = victim_keys(self.session, NAME, job.queue, job.job.priority)
            self._victims[place] = gather(self.session, keys, claimant=job.queue) if keys else None
        return self._victims[place]


def _ask(job: JobView) -> tuple[object, ...]:
    """Return what makes two jobs fail alike."""
    roles = tuple(
        (
            r.shape.index,
            id(r.role) if has_neighbour_rules(r.role) else 0,
            r.role.may_evict,
            r.needed,
            bool(r.pending),
        )
        for r in job.roles
    )
    return job.queue.name, job.job.priority, job.missing(), roles
