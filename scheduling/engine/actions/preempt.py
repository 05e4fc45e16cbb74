"""The preempt action: a gang that lacks its minimum takes room from its own queue."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.evicting import Search, search_in_domains
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.reserve import obstacle_beyond_share
from scheduling.engine.actions.serving import is_head
from scheduling.engine.actions.victims import Victims, gather, starving_groups, victim_keys
from scheduling.engine.groups import Group
from scheduling.engine.rows import has_neighbour_rules
from scheduling.engine.session import Session
from scheduling.engine.views import JobView

NAME = "preempt"


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Serve starving jobs queue by queue; evict only if the whole gang then fits.

    Room changes hands inside the queue: one that is above its share may stay there, but does not
    rise further. What idle room can settle by lending is left to backfill, which runs later.
    """
    del arguments
    if not session.each("preemptable"):
        return
    by_queue: dict[str, list[Group]] = {}
    for group in starving_groups(session):
        by_queue.setdefault(group.first.job.queue, []).append(group)
    hopeful = [
        group
        for name, groups in by_queue.items()
        if victim_keys(
            session,
            NAME,
            session.queues[name],
            max(group.first.job.priority for group in groups),
        )
        for group in groups
    ]
    if hopeful:
        Preempt(session).serve(hopeful)


class Preempt:
    """One run of the action; the victims for a queue and priority are gathered once."""

    def __init__(self, session: Session) -> None:
        """Start with nothing gathered."""
        self.session = session
        self._victims: dict[tuple[str, int], Victims | None] = {}
        self._is_lent_to = any(action.name == "backfill" for action in session.config.actions)

    def serve(self, groups: list[Group]) -> None:
        """Make room job by job, in order."""
        lines = Lines(self.session, groups)
        misses: set[tuple[object, ...]] = set()
        while (queue := lines.next_queue()) is not None:
            while (found := lines.next_job(queue)) is not None:
                job, group = found
                ask = _ask(job)
                if ask in misses or not self._make_room(job):
                    misses.add(ask)
                    if is_head(job, group.reason):
                        lines.rest(queue)
                elif group.take(job) is not group:
                    lines.push(group)

    def _make_room(self, job: JobView) -> bool:
        """Evict tasks of the job's queue so that its gang fits; undo everything if it does not.

        Nobody goes for a job that idle room can be lent to: backfill does that.
        """
        session = self.session
        if self._is_lent_to and obstacle_beyond_share(session, job) is None:
            return False
        session.swap_base = {q.name: list(q.allocated) for q in job.queue.path}
        stands = self._search(job)
        session.swap_base = None
        return stands

    def _search(self, job: JobView) -> bool:
        session = self.session
        place = (job.queue.name, job.job.priority)
        if place not in self._victims:
            keys = victim_keys(session, NAME, job.queue, job.job.priority)
            self._victims[place] = gather(session, keys, claimant=job.queue) if keys else None
        victims = self._victims[place]
        if victims is None:
            return False
        own = session.give_up(job.key)
        with session.without_lack(own):
            stands = search_in_domains(
                session,
                job,
                lambda domain: Search(
                    session, job, action=NAME, veto="preemptable", victims=victims
                ).run(lambda _: True, domain=domain),
            )
        if not stands and own is not None:
            session.keep(own)
        return stands


def _ask(job: JobView) -> tuple[object, ...]:
    """Return what makes two jobs fail alike."""
    roles = tuple(
        (
            r.shape.index,
            id(r.role) if has_neighbour_rules(r.role) else 0,
            r.role.may_evict,
            r.needed,
            len(r.pending),
        )
        for r in job.roles
    )
    return job.queue.name, job.job.priority, job.missing(), roles
