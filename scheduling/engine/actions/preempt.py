"""The preempt action: a gang that lacks its minimum takes room from its own queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scheduling.engine.actions.evicting import Search, search_in_domains
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.reserve import obstacle_beyond_share
from scheduling.engine.actions.serving import is_head, place_job, serve
from scheduling.engine.actions.victims import Victims, gather, starving_groups, victim_keys
from scheduling.engine.groups import Group
from scheduling.engine.journal import Claim, Entry, EntryKind, Removed, Unit
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
    served = {entry.job.queue.name for entry in session.journal}
    hopeful = [
        group
        for name, groups in by_queue.items()
        if name in served
        or victim_keys(
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
        self._misses: set[tuple[object, ...]] = set()

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
        stands = self._search(job) or self._start_instead(job)
        session.swap_base = None
        return stands

    def _start_instead(self, job: JobView) -> bool:
        """Start the job, with evictions if need be, in place of what would give way to it anyway.

        Without this a job of lower priority that starts in the gap would be evicted a cycle later.
        """
        latest = self._newcomers(job, is_latest=True)
        earliest = self._newcomers(job, is_latest=False) if latest else []
        is_same = {id(e) for e in latest} == {id(e) for e in earliest}
        return any(
            self._start_in_place_of(job, newcomers)
            for newcomers in ([latest] if is_same else [latest, earliest])
            if newcomers
        )

    def _start_in_place_of(self, job: JobView, newcomers: list[Entry]) -> bool:
        """Start a job where some starts are taken back, or leave all as it was."""
        session = self.session
        before = list(session.journal)
        session.withdraw(newcomers)
        if place_job(session, job) is None or self._search(job):
            own = session.give_up(job.key)
            if own is not None:
                session.keep_rest(own, job)
            self._serve_again(newcomers)
            session.has_made_room = True
            return True
        session.restore(newcomers)
        session.journal[:] = before  # rules about neighbours were judged in this order
        return False

    def _newcomers(self, job: JobView, *, is_latest: bool) -> list[Entry]:
        """Return the starts of this cycle that would be evicted for the job in the next one.

        Whole jobs that only started now, and what others can spare, the latest or the earliest
        first: first what the job lacks.
        """
        session = self.session
        placed: dict[str, list[Entry]] = {}
        for entry in session.journal:
            if entry.job.queue is job.queue and entry.job is not job:
                placed.setdefault(entry.job.key, []).append(entry)
        wanted = {
            d
            for role in job.roles
            for d, amount in role.shape.items
            if role.pending and int(session.free[d].max(initial=0)) < amount
        }
        removed = Removed(session.width)
        found: list[Entry] = []
        for entries in placed.values():
            in_order = entries if is_latest else entries[::-1]
            for chosen in _what_may_give_way(session, job, in_order, wanted):
                tasks = tuple((e.role, e.task, e.node) for e in chosen)
                unit = Unit(chosen[0].job, tasks, is_whole=chosen is in_order)
                claim = Claim(NAME, job, job.roles[0], removed)
                if all(callback(claim, unit) for callback in session.each("preemptable")):
                    removed.add(unit)
                    found.extend(chosen)
        return found

    def _serve_again(self, newcomers: list[Entry]) -> None:
        """Let the jobs that gave way start in what is left."""
        session = self.session
        groups = [session.served[key] for key in dict.fromkeys(e.job.key for e in newcomers)]
        for group in groups:
            group.position = 0
        serve(session, groups, may_grow=False)

    def while_lending(self, job: JobView) -> bool:
        """Complete with evictions what idle room alone cannot, once idle room is being lent.

        Without this a job further back in the queue would borrow the idle part, only to be evicted
        in the next cycle.
        """
        ask = _ask(job)
        if ask in self._misses or not self.session.is_job_starving(job):
            return False
        if self._search(job) or self._start_instead(job):
            return True
        self._misses.add(ask)
        return False

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
                lambda: Search(session, job, action=NAME, veto="preemptable", victims=victims).run(
                    lambda _: True
                ),
            )
        if not stands and own is not None:
            session.keep(own)
        return stands


def _what_may_give_way(
    session: Session, job: JobView, entries: list[Entry], wanted: Collection[int]
) -> list[list[Entry]]:
    """Return what of the starts of another job of the queue could go together for a job."""
    other = entries[0].job
    if any(e.kind is not EntryKind.PLACE for e in entries) or other.key in session.kept:
        return []
    if not other.row.held_count and other.job.priority < job.job.priority:
        return [entries]
    if other.ready <= other.min_available:
        return []
    last_first = entries[::-1]
    last_first.sort(key=lambda e: not any(e.role.shape.request[d] for d in wanted))
    return [[entry] for entry in last_first]


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
