"""Who would have to give way to one task, node by node, and what that costs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from scheduling.engine.actions.offers import Cost, Going, Offer
from scheduling.engine.actions.standing import is_welcome
from scheduling.engine.actions.victims import Victims
from scheduling.engine.journal import Claim, EntryKind, Removed, Statement, Unit, is_live
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Int64
from scheduling.engine.views import JobView, RoleView


class GivingWay:
    """What a job's victims offer: on each node the cheapest of them whose going makes room."""

    def __init__(
        self, session: Session, job: JobView, *, action: str, veto: str, victims: Victims
    ) -> None:
        """Take the callbacks that veto."""
        self.session = session
        self.job = job
        self.action = action
        self.victims = victims
        self.may_break_gangs = True
        self._vetoes = session.each(veto)
        self._are_votes_alike = all(
            plugin.votes_alike for plugin, _ in session.callback_owners[veto]
        )
        """Whether no veto tells victims of one kind from one another."""
        self._wholes: dict[str, Unit] = {}
        """Job -> all that it held when that was last asked, as one unit."""

    def offers(self, role: RoleView) -> list[Offer]:
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
                offer = self.offer(role, node)
                if offer is not None:
                    if kind >= 0:
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

    def offer(self, role: RoleView, node: int) -> Offer | None:
        """Return the cheapest units of a node whose eviction makes room there, None if none do.

        Elastic tasks first, in order of their jobs; then whole gangs; what the later ones make
        unnecessary is spared again.
        """
        short = self._shortage(role, node)
        removed = Removed(self.session.width)
        claim = Claim(self.action, self.job, role, removed)
        if is_welcome(self.session, self.job, role, node):
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

    def _try_without(self, claim: Claim, node: int, short: dict[int, int]) -> bool:
        """Set aside what keeps the task off a node; False if all that may go is not enough.

        Rules about neighbours are judged again after each eviction, which is undone in the end.
        """
        session, removed = self.session, claim.removed
        statement = Statement(session)

        def fits() -> bool:
            return not _is_short(short) and is_welcome(session, self.job, claim.role, node)

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
            if self.may_break_gangs and view.row.held_count == 1 and not view.row.is_elastic:
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
        if unit.is_whole and not self.may_break_gangs:
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
