"""Make room for a whole gang by evicting the least: the search that preempt and reclaim share."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from scheduling.engine.actions.failures import Failure
from scheduling.engine.actions.giving_way import GivingWay
from scheduling.engine.actions.offers import Offer
from scheduling.engine.actions.promises import start_promised
from scheduling.engine.actions.serving import next_role, roles_in_order
from scheduling.engine.actions.standing import is_granted, is_relied_on, is_welcome, still_stands
from scheduling.engine.actions.topology import candidate_domains, place_parts
from scheduling.engine.actions.victims import Victims
from scheduling.engine.domains import Domain
from scheduling.engine.journal import Entry, EntryKind, Statement
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools
from scheduling.engine.views import JobView, RoleView


class Search:
    """Room for one job: places its missing tasks on room that is free, being freed or evicted."""

    def __init__(
        self, session: Session, job: JobView, *, action: str, veto: str, victims: Victims
    ) -> None:
        """Start with nothing placed."""
        self.session = session
        self.job = job
        self.action = action
        self.victims = victims
        self.giving_way = GivingWay(session, job, action=action, veto=veto, victims=victims)
        self._offers: dict[int, tuple[Bools | None, list[Offer]]] = {}
        """Role -> the nodes in focus, and the heap of its offers there."""

    def run(
        self,
        may_take: Callable[[RoleView], bool],
        *,
        count: int | None = None,
        may_break_gangs: bool = True,
        domain: Domain | None = None,
    ) -> bool:
        """Place the whole gang, evicting the least; True if it stands, else all is undone.

        With `count` that many elastic tasks are placed, for which no gang is broken; else as many
        as the gang lacks. The sub-groups of a job each in their own domains inside of `domain`;
        for their growth nobody goes.

        1. Task by task: a node that needs no eviction, else the cheapest offer of any node.
        2. If the gang is complete, spare every victim that turns out not to be needed, the most
        valuable first.
        """
        session, job = self.session, self.job
        statement = Statement(session)
        start = job.placed
        self.giving_way.may_break_gangs = may_break_gangs and count is None
        if domain is not None and job.parts:
            if count is None:
                self._place_sub_groups(domain, may_take)
        else:
            self._place_roles(may_take, count)
        is_whole = job.is_pipelined() and (count is not None or not job.counts_on_best_effort())
        if job.placed == start or not session.is_job_pipelined(job) or not is_whole:
            statement.rollback()
            return False
        has_evicted = any(e.kind is EntryKind.EVICT for e in statement.commit())
        self._spare(statement)
        if has_evicted and not self._is_exchange(statement):
            statement.rollback()
            return False
        start_promised(session, job)
        session.has_made_room = True
        return True

    def _place_sub_groups(self, domain: Domain, may_take: Callable[[RoleView], bool]) -> None:
        def place(session: Session, job: JobView, role: RoleView) -> Failure | None:
            del session, job
            return None if may_take(role) and self._place(role) else Failure(role, None)

        place_parts(self.session, self.job, domain, place)

    def _place_roles(self, may_take: Callable[[RoleView], bool], count: int | None) -> None:
        session, job = self.session, self.job
        roles, start = roles_in_order(session, job), job.placed
        failed: dict[str, Failure] = {}
        while session.is_job_starving(job) if count is None else job.placed < start + count:
            role = next_role(roles, failed, with_best_effort=True)
            if role is None or not may_take(role):
                break
            if not self._place(role):
                if role.role.may_evict:
                    break
                failed[role.name] = Failure(role, None)

    def _is_exchange(self, statement: Statement) -> bool:
        """Return whether what was placed may stand with the victims that were not spared."""
        entries = statement.commit()
        return any(e.kind is EntryKind.EVICT for e in entries) or is_granted(self.session, self.job)

    def _place(self, role: RoleView) -> bool:
        session = self.session
        if session.refusal(self.job, role) is None:
            node = _best_promise(session, self.job, role)
            if node >= 0:
                session.promise(self.job, role, node)
                return True
        offers = self._offers_for(role)
        while offers:
            offer = heapq.heappop(offers)
            current = self.giving_way.offer(role, offer.node)
            if current is None:
                continue
            if offers and current > offers[0]:
                heapq.heappush(offers, current)
                continue
            if self._take(role, current):
                if self._has_more(offer.node):
                    heapq.heappush(offers, offer)  # renewed when it comes up again
                return True
        return False

    def _has_more(self, node: int) -> bool:
        """Return whether anything is left on a node that could be evicted, or room for more."""
        gone = self.session.evicted
        return any(
            held[1].key not in gone
            for _, _, tasks in self.victims.by_node.get(node, ())
            for held in tasks
        )

    def _offers_for(self, role: RoleView) -> list[Offer]:
        """Return the heap of a role's offers; empty if nothing is evicted for it."""
        focus, offers = self._offers.get(role.row.position, (None, None))
        if offers is None or focus is not self.session.focus:
            offers = self.giving_way.offers(role) if role.role.may_evict else []
            self._offers[role.row.position] = (self.session.focus, offers)
        return offers

    def _take(self, role: RoleView, offer: Offer) -> bool:
        session = self.session
        statement = Statement(session)
        for unit in offer.units:
            session.evict(unit, action=self.action, beneficiary=self.job.key)
        has_company = not offer.units or is_welcome(session, self.job, role, offer.node)
        if not has_company or session.refusal(self.job, role) is not None:
            statement.rollback()
            return False
        session.promise(self.job, role, offer.node)
        return True

    def _spare(self, statement: Statement) -> None:
        """Take back evictions that the gang as a whole does not need."""
        session = self.session
        entries = [e for e in statement.commit() if e.kind is EntryKind.EVICT]
        groups: dict[str, list[int]] = {}
        broken = {e.job.key for e in entries if not e.is_elastic}
        for position, entry in enumerate(entries):
            name = f"{entry.job.key} whole" if entry.job.key in broken else entry.task.key
            groups.setdefault(name, []).append(position)
        kept_out: set[int] = set()
        for positions in reversed(list(groups.values())):
            chosen = [entries[p] for p in positions]
            if self._can_stay(chosen):
                kept_out.update(id(entry) for entry in chosen)
            elif len(chosen) > 1:
                kept_out.update(id(entry) for entry in self._spare_a_gang(chosen))
        if kept_out:
            session.journal[:] = [e for e in session.journal if id(e) not in kept_out]

    def _can_stay(self, evicted: Sequence[Entry]) -> bool:
        """Take evictions back if what was placed stands without them."""
        if is_relied_on(self.session, evicted):
            return False
        for entry in evicted:
            self.session.undo(entry)
        if still_stands(self.session, evicted, [self.job]):
            return True
        for entry in evicted:
            self.session.apply(entry)
        return False

    def _spare_a_gang(self, evicted: Sequence[Entry]) -> list[Entry]:
        """Take back so much of a gang's going that it stays complete, if so much can stay."""
        spared = [entry for entry in reversed(evicted) if self._can_stay([entry])]
        if spared and self.session.is_job_ready(evicted[0].job):
            for entry in evicted:
                entry.is_elastic = True
            return spared
        for entry in spared:
            self.session.apply(entry)
        return []


def search_in_domains(session: Session, job: JobView, run: Callable[[Domain | None], bool]) -> bool:
    """Search in the closest domain first where a topology rule binds the job."""
    if not job.is_shaped:
        return run(None)
    outer = session.focus
    stands = False
    for domain in candidate_domains(session, job):
        session.focus = domain.within(outer)
        stands = run(domain)
        if stands:
            break
    session.focus = outer
    return stands


def _best_promise(session: Session, job: JobView, role: RoleView) -> int:
    """Return the best node that has, or will have, room for a task without any eviction."""
    fits = session.future_fits(role.shape)
    if not fits.any():
        return -1
    scores = np.where(fits, 0.0, -np.inf)
    for callback in session.each("node_order"):
        scores += callback(role.shape, slice(None))
    extra = session.task_scores(job, role)
    return session.pick(scores if extra is None else scores + extra)
