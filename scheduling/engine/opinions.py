"""What the plugins say: their callbacks tier by tier, and how their answers are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from scheduling.engine.callbacks import CALLBACKS, FLAG_OF, UNGATED, Vote, is_on
from scheduling.engine.types import PluginConfig, Reason
from scheduling.engine.views import JobView, QueueView, RoleView

Callback = Callable[..., Any]

CALLBACK_NAMES = frozenset(CALLBACKS)


_DEFINED: dict[type[object], tuple[str, ...]] = {}


def _defined(kind: type[object]) -> tuple[str, ...]:
    """Return the callbacks that a class of plugins defines; its instances may have others."""
    found = _DEFINED.get(kind)
    if found is None:
        found = _DEFINED[kind] = tuple(name for name in CALLBACKS if hasattr(kind, name))
    return found


class Named(Protocol):
    """What is asked of a plugin here besides its callbacks."""

    name: str
    votes_alike: bool


class Opinions:
    """The callbacks of a cycle's plugins, and the questions that they answer together."""

    def __init__(self) -> None:
        """Start without plugins; `cycle.open_session` adds them."""
        self.callbacks: dict[str, list[list[Callback]]] = {name: [] for name in CALLBACKS}
        self.callback_owners: dict[str, list[tuple[Named, Callback]]] = {
            name: [] for name in CALLBACKS
        }
        self._flat: dict[str, list[Callback]] = {name: [] for name in CALLBACKS}

    def add_tier(self, plugins: Sequence[tuple[Named, PluginConfig]]) -> None:
        """Register the callbacks of one tier of plugins, as far as their flags allow."""
        tier: dict[str, list[Callback]] = {name: [] for name in CALLBACKS}
        for plugin, config in plugins:
            own = CALLBACK_NAMES & vars(plugin).keys()
            for name in dict.fromkeys((*_defined(type(plugin)), *own)):
                callback = getattr(plugin, name)
                if callback is None:
                    continue
                if name not in UNGATED and not is_on(config, FLAG_OF.get(name, name)):
                    continue
                tier[name].append(callback)
                self.callback_owners[name].append((plugin, callback))
        for name, members in tier.items():
            self.callbacks[name].append(members)
            self._flat[name].extend(members)

    def each(self, name: str) -> list[Callback]:
        """Return all callbacks of one name, tier by tier, in order."""
        return self._flat[name]

    def has_moving_order(self, name: str) -> bool:
        """Return whether an order changes while tasks are placed."""
        return any(getattr(p, "order_moves", False) for p, _ in self.callback_owners[name])

    def vote(self, name: str, *arguments: object) -> bool:
        """Combine votes: a reject anywhere is no; a tier with a permit ends the vote with yes."""
        for tier in self.callbacks[name]:
            has_permit = False
            for callback in tier:
                answer = callback(*arguments)
                if answer is Vote.REJECT:
                    return False
                has_permit = has_permit or answer is Vote.PERMIT
            if has_permit:
                return True
        return True

    def is_job_ready(self, job: JobView) -> bool:
        """Return whether all plugins call the job's gang complete."""
        for callback in self._flat["job_ready"]:  # noqa: SIM110 - cheaper than a generator
            if not callback(job):
                return False
        return True

    def is_job_pipelined(self, job: JobView) -> bool:
        """Return the vote on whether promises complete the job's gang."""
        return self.vote("job_pipelined", job)

    def is_job_starving(self, job: JobView) -> bool:
        """Return what the first tier with an opinion says about the job's need."""
        for tier in self.callbacks["job_starving"]:
            if tier:
                return all(callback(job) for callback in tier)
        return False

    def refusal(self, job: JobView, role: RoleView) -> Reason | None:
        """Return why the queue may not take one more task of the role, None if it may."""
        for callback in self.each("allocatable"):
            reason: Reason | None = callback(job, role)
            if reason is not None:
                return reason
        return None

    def gang_refusal(self, job: JobView, need: list[int]) -> Reason | None:
        """Return why the queue may not take all that the gang lacks, None if it may."""
        for callback in self.each("gang_allocatable"):
            reason: Reason | None = callback(job, need)
            if reason is not None:
                return reason
        return None

    def is_overused(self, queue: QueueView) -> bool:
        """Return whether any plugin calls the queue overused."""
        return any(callback(queue) for callback in self.each("overused"))

    def queue_key(self, queue: QueueView) -> tuple[object, ...]:
        """Return the sort key of a queue: the plugins' opinions, then age, then name."""
        return (
            *[callback(queue) for callback in self._flat["queue_order"]],
            queue.queue.created_at,
            queue.name,
        )

    def job_key(self, job: JobView) -> tuple[object, ...]:
        """Return the sort key of a job in its queue: opinions, age, name."""
        return (
            *[callback(job) for callback in self._flat["job_order"]],
            job.job.created_at,
            job.key,
        )
