"""Make room for a whole gang by evicting the least: the search that preempt and reclaim share."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from scheduling.engine.actions.failures import Failure
from scheduling.engine.actions.offers import Cost, Going, Offer
from scheduling.engine.actions.promises import start_promised
from scheduling.engine.actions.serving import next_role, roles_in_order
from scheduling.engine.actions.standing import is_granted, is_relied_on, is_welcome, still_stands
from scheduling.engine.actions.topology import candidate_domains, place_parts
from scheduling.engine.actions.victims import Victims
from scheduling.engine.domains import Domain
from scheduling.engine.journal import Claim, Entry, EntryKind, Removed, Statement, Unit, is_live
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Int64
from scheduling.engine.views import JobView, RoleView


class Search:
    """Room for one job: places its missing tasks on room that is free, being freed or evicted."""

    def __init__(
        self, session: Session, job: JobView, *, action: str, veto: str, victims: Victims
    ) -> None:
        """Take the callbacks that veto."""
        self.session = session
        self.job = job
        self.action = action
        self.victims = victims
        self._vetoes = session.each(veto)
        self._are_votes_alike = all(
            plugin.votes_alike for plugin, _ in session.callback_owners[veto]
        )
        """Whether no veto tells victims of one kind from one another."""
        self._offers: dict[int, tuple[Bools | None, list[Offer]]] = {}
        """Role -> the nodes in focus, and the heap of its offers there."""
        self._wholes: dict[str, Unit] = {}
        """Job -> all that it held when that was last asked, as one unit."""
        self._may_break_gangs = True

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
        self._may_break_gangs = may_break_gangs and count is None
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
            current = self._offer(role, offer.node)
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
            offers = self._all_offers(role) if role.role.may_evict else []
            self._offers[role.row.position] = (self.session.focus, offers)
        return offers

    def _take(self, role: RoleView, offer: Offer) -> bool:
        session = self.session
        statement = Statement(session)
        for unit in offer.units:
            session.evict(unit, action=self.action, beneficiary=self.job.key)
        is_alone = bool(offer.units) and not self._is_welcome(role, offer.node)
        if is_alone or session.refusal(self.job, role) is not None:
            statement.rollback()
            return False
        session.promise(self.job, role, offer.node)
        return True

    def _all_offers(self, role: RoleView) -> list[Offer]:
        """Return a heap of the offers of all nodes that could have room after evictions."""
        session, shape = self.session, role.shape
        could = session.shape_nodes(shape).mask.copy()
        if session.focus is not None:
            could &= session.focus
        for d, amount in shape.items:
            future = session.free[d] + session.releasing[d] - session.promised[d]
            could &= future + self.victims.room[d] >= amount
        offers = list(self._offers_of(role, could[self.victims.nodes]))
        heapq.heapify(offers)
        return offers

    def _offers_of(self, role: RoleView, chosen: Bools) -> Iterator[Offer]:
        """Yield the offers of the victims' nodes that are chosen, bool[M].

        Of nodes that lack the same and have like victims one is judged. Only the places of the
        others among the offers rest on that: each is made anew when it comes up.
        """
        victims = self.victims
        kinds = self._kinds(role, chosen)
        judged: dict[int, Going | None] = {}
        for i, kind in zip(np.flatnonzero(chosen).tolist(), kinds.tolist(), strict=True):
            node = int(victims.nodes[i])
            going = judged.get(kind) if kind >= 0 else None
            if going is not None:
                yield self._like(node, going)
            elif kind < 0 or kind not in judged:
                offer = self._offer(role, node)
                if offer is not None:
                    judged[kind] = self._going(offer)
                    yield offer
                elif self._are_votes_alike and victims.is_plain[i]:
                    judged[kind] = None

    def _kinds(self, role: RoleView, chosen: Bools) -> Int64:
        """Return int64: equal for nodes that lack the same and have like victims left.

        Negative where a node must be judged for itself.
        """
        session, victims = self.session, self.victims
        nodes, kinds = victims.nodes[chosen], victims.kinds[chosen]
        if session.each("task_predicate"):
            return np.full(len(nodes), -1, dtype=np.int64)
        free = (session.free + session.releasing - session.promised)[:, nodes]
        lacks = [np.maximum(amount - free[d], 0) for d, amount in role.shape.items]
        _, found = np.unique(np.stack([kinds, *lacks]), axis=1, return_inverse=True)
        result: Int64 = np.where(kinds < 0, -1, found.reshape(-1))
        moved = (session.releasing - session.tables.releasing)[:, nodes].any(axis=0)
        newcomers = self._nodes_of_newcomers()
        result[np.isin(nodes, newcomers)] = -1
        patterns: dict[tuple[int, tuple[bool, ...]], int] = {}
        for i in np.flatnonzero(moved & (result >= 0)).tolist():
            pattern = (int(result[i]), victims.who_is_left(session, int(nodes[i])))
            result[i] = patterns.setdefault(pattern, len(nodes) + len(patterns))
        return result

    def _nodes_of_newcomers(self) -> list[int]:
        """Return the nodes of victims of which something was placed in this cycle."""
        views = {e.job.key: e.job for e in self.session.journal if e.kind is not EntryKind.EVICT}
        return [
            node
            for key, view in views.items()
            if key in self.victims.ranks
            for _, _, node in self.session.held_tasks(view)
        ]

    def _going(self, offer: Offer) -> Going:
        here = self.victims.by_node[offer.node]
        places = {view.key: place for place, (_, view, _) in enumerate(here)}
        return tuple((places[unit.job.key], unit.is_whole) for unit in offer.units)

    def _like(self, node: int, going: Going) -> Offer:
        """Return the offer of a node where the victims at some places go."""
        known = self.victims.offers.get((node, going))
        if known is None:
            here = self.victims.by_node[node]
            units = tuple(
                Unit(here[place][1], tuple(here[place][2]), is_whole=is_whole)
                for place, is_whole in going
            )
            known = Offer(self._is_outside(node), self._cost(units), node, units)
            self.victims.offers[node, going] = known
        return known

    def _offer(self, role: RoleView, node: int) -> Offer | None:
        """Return the cheapest units of a node whose eviction makes room there, None if none do.

        Elastic tasks first, in order of their jobs; then whole gangs; what the later ones make
        unnecessary is spared again.
        """
        short = self._shortage(role, node)
        removed = Removed(self.session.width)
        claim = Claim(self.action, self.job, role, removed)
        if self._is_welcome(role, node):
            refused = self._add_singles(claim, node, short)
            self._add_gangs(claim, refused, node, short)
            if _is_short(short):
                return None
            for unit in reversed(list(removed.units)):
                _reduce(short, unit, node, -1)
                if _is_short(short):
                    _reduce(short, unit, node, 1)
                else:
                    removed.drop(unit)
            alone = self._one_for_all(role, node) if _are_many(removed.units) else None
            if alone is not None and self._cost([alone]) < self._cost(removed.units):
                return Offer(self._is_outside(node), self._cost([alone]), node, (alone,))
        elif not self._try_without(claim, node, short):
            return None
        units = tuple(removed.units)
        return Offer(self._is_outside(node), self._cost(units), node, units)

    def _is_outside(self, node: int) -> bool:
        shard = self.session.shard
        return shard is not None and not shard[node]

    def _one_for_all(self, role: RoleView, node: int) -> Unit | None:
        """Return the cheapest single task whose going is enough, so that no gang need break."""
        short = self._shortage(role, node)
        for _, view, tasks in self.victims.by_node.get(node, ()):
            for held in tasks:
                request = held[0].shape.request
                if any(request[d] < amount for d, amount in short.items()):
                    continue
                unit, removed = Unit(view, (held,)), Removed(self.session.width)
                if held[1].key not in self.session.evicted and self._allows(
                    Claim(self.action, self.job, role, removed), unit
                ):
                    return unit
        return None

    def _is_welcome(self, role: RoleView, node: int) -> bool:
        return is_welcome(self.session, self.job, role, node)

    def _try_without(self, claim: Claim, node: int, short: dict[int, int]) -> bool:
        """Set aside what keeps the task off a node; False if all that may go is not enough.

        Rules about neighbours are judged again after each eviction, which is undone in the end.
        """
        session, removed = self.session, claim.removed
        statement = Statement(session)

        def fits() -> bool:
            return not _is_short(short) and self._is_welcome(claim.role, node)

        for unit in self._candidates(node):
            if fits():
                break
            if self._allows(claim, unit):
                removed.add(unit)
                _reduce(short, unit, node, 1)
                session.evict(unit, action=self.action, beneficiary=self.job.key)
        stands = fits()
        for unit in reversed(list(removed.units)) if stands else ():
            own = [e for e in session.journal if e.task.key in {t.key for _, t, _ in unit.tasks}]
            session.withdraw(own)
            _reduce(short, unit, node, -1)
            if fits():
                removed.drop(unit)
            else:
                _reduce(short, unit, node, 1)
                session.evict(unit, action=self.action, beneficiary=self.job.key)
        statement.rollback()
        return stands

    def _candidates(self, node: int) -> Iterator[Unit]:
        """Yield what could be evicted on a node: single tasks, then the gangs of all of them."""
        here = self.victims.by_node.get(node, ())
        for _, view, tasks in here:
            for held in tasks:
                if held[1].key not in self.session.evicted:
                    yield Unit(view, (held,))
        for _, view, _ in here:
            gang = self._whole_unit(view)
            if gang is not None:
                yield gang

    def _add_singles(self, claim: Claim, node: int, short: dict[int, int]) -> list[JobView]:
        """Set single tasks aside until nothing is missing; return the jobs that gave none more."""
        removed = claim.removed
        refused: list[JobView] = []
        for _, view, tasks in self.victims.by_node.get(node, ()):
            if self._may_break_gangs and view.row.held_count == 1 and not view.row.is_elastic:
                refused.append(view)  # its only task is its gang
                continue
            for held in tasks:
                if not _is_short(short):
                    break
                unit = Unit(view, (held,))
                if held[1].key in self.session.evicted or not _helps(unit, short):
                    continue
                if self._allows(claim, unit):
                    removed.add(unit)
                    _reduce(short, unit, node, 1)
                elif view not in refused:
                    refused.append(view)
        return refused

    def _add_gangs(
        self, claim: Claim, views: Sequence[JobView], node: int, short: dict[int, int]
    ) -> None:
        """Set whole gangs aside until nothing is missing."""
        removed = claim.removed
        for view in views:
            if not _is_short(short):
                break
            has_singles = bool(removed.by_job.get(view.key))
            singles = [unit for unit in removed.units if unit.job is view] if has_singles else []
            for unit in singles:  # they would go with their gang
                removed.drop(unit)
            gang = self._whole_unit(view)
            if gang is not None and self._allows(claim, gang):
                for unit in singles:
                    _reduce(short, unit, node, -1)
                removed.add(gang)
                _reduce(short, gang, node, 1)
            else:
                for unit in singles:
                    removed.add(unit)

    def _shortage(self, role: RoleView, node: int) -> dict[int, int]:
        """Return what is missing by resource: on the node, or under the limit that refuses."""
        session = self.session
        free = session.future_free(node)
        short = {d: amount - free[d] for d, amount in role.shape.items if amount > free[d]}
        refusal = session.refusal(self.job, role)
        if refusal is not None:
            resource = refusal.params.get("resource")
            d = session.tables.resources.index.get(str(resource), -1)
            limit = refusal.params.get("max", refusal.params.get("deserved"))
            held = refusal.params.get("allocated")
            if d >= 0 and isinstance(limit, int) and isinstance(held, int):
                short[d] = max(short.get(d, 0), held + role.shape.request[d] - limit)
        return short

    def _whole_unit(self, view: JobView) -> Unit | None:
        """Return all that a job still holds as one unit, None if part of it must not be evicted."""
        known = self._wholes.get(view.key)
        if known is not None and len(known.tasks) == 1:  # its only task
            return known if known.tasks[0][1].key not in self.session.evicted else None
        held = self.session.held_tasks(view)
        if not held or view is self.job:
            return None
        for role, task, _ in held:
            if not (is_live(task) and role.role.preemptable):
                return None
        unit = self._wholes[view.key] = Unit(view, tuple(held), is_whole=True)
        return unit

    def _allows(self, claim: Claim, unit: Unit) -> bool:
        if claim.role.shape.is_best_effort and not all(
            role.shape.is_best_effort for role, _, _ in unit.tasks
        ):
            return False
        if unit.is_whole and not self._may_break_gangs:
            return False
        if unit.is_whole and unit.job.placed and unit.job is not self.job:
            return False  # it was given room in this very cycle
        if unit.job is self.job and any(
            role.role.priority >= claim.role.role.priority for role, _, _ in unit.tasks
        ):
            return False
        for callback in self._vetoes:  # noqa: SIM110 - a generator costs more than the callbacks
            if not callback(claim, unit):
                return False
        return True

    def _cost(self, units: Sequence[Unit]) -> Cost:
        ranks = self.victims.ranks
        now = self.session.now
        gangs = tasks = places = 0
        highest, lost = -(2**31), 0.0
        for unit in units:
            gangs += unit.is_whole
            highest = max(highest, unit.job.job.priority)
            places += ranks[unit.job.key]
            tasks += len(unit.tasks)
            for _, task, _ in unit.tasks:
                if task.started_at is not None:
                    lost += now - task.started_at
        return (gangs, highest, tasks, places, lost)

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


def _are_many(units: Sequence[Unit]) -> bool:
    """Return whether more than one task would go."""
    return len(units) > 1 or any(len(unit.tasks) > 1 for unit in units)


def _is_short(short: dict[int, int]) -> bool:
    """Return whether anything is missing."""
    for amount in short.values():  # noqa: SIM110 - a generator costs more than the loop
        if amount > 0:
            return True
    return False


def _helps(unit: Unit, short: dict[int, int]) -> bool:
    request = unit.tasks[0][0].shape.request
    return any(amount > 0 and request[d] for d, amount in short.items())


def _reduce(short: dict[int, int], unit: Unit, node: int, sign: int) -> None:
    """Book what a unit frees on a node against what is missing there."""
    for role, _, at in unit.tasks:
        if at == node:
            for d in short:
                short[d] -= sign * role.shape.request[d]
