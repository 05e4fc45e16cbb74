"""Names in the configuration to actions and plugins; a new one is registered by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from scheduling.engine.actions import (
    allocate,
    backfill,
    elastic,
    enqueue,
    gang_evicting,
    preempt,
    reclaim,
    reserve,
    shuffle,
)
from scheduling.engine.plugin import Plugin
from scheduling.engine.plugins.binpack import Binpack
from scheduling.engine.plugins.capacity import Capacity
from scheduling.engine.plugins.cdp import Cooldown
from scheduling.engine.plugins.conformance import Conformance
from scheduling.engine.plugins.data_locality import DataLocality
from scheduling.engine.plugins.deviceshare import DeviceShare
from scheduling.engine.plugins.drf import Drf
from scheduling.engine.plugins.fair_users import FairUsers
from scheduling.engine.plugins.fragmentation import Fragmentation
from scheduling.engine.plugins.gang import Gang
from scheduling.engine.plugins.network_topology import NetworkTopology
from scheduling.engine.plugins.nodegroup import NodeGroup
from scheduling.engine.plugins.nodeorder import NodeOrder
from scheduling.engine.plugins.numa_aware import NumaAware
from scheduling.engine.plugins.overcommit import Overcommit
from scheduling.engine.plugins.packing import Packing
from scheduling.engine.plugins.pdb import DisruptionBudgets
from scheduling.engine.plugins.predicates import Predicates
from scheduling.engine.plugins.priority import Priority
from scheduling.engine.plugins.proportion import Proportion
from scheduling.engine.plugins.queue_policy import QueuePolicies
from scheduling.engine.plugins.rescheduling import Rescheduling
from scheduling.engine.plugins.resource_strategy_fit import ResourceStrategyFit
from scheduling.engine.plugins.resourcequota import ResourceQuotas
from scheduling.engine.plugins.shares import Shares
from scheduling.engine.plugins.sla import Sla
from scheduling.engine.plugins.task_topology import TaskTopology
from scheduling.engine.plugins.tdm import RevocableNodes
from scheduling.engine.plugins.usage import Usage
from scheduling.engine.session import Session

Action = Callable[[Session, Mapping[str, str]], None]

ACTIONS: dict[str, Action] = {
    "enqueue": enqueue.run,
    "allocate": allocate.run,
    "reserve": reserve.run,
    "preempt": preempt.run,
    "reclaim": reclaim.run,
    "elastic": elastic.run,
    "backfill": backfill.run,
    "shuffle": shuffle.run,
    gang_evicting.PREEMPT: gang_evicting.run_preempt,
    gang_evicting.RECLAIM: gang_evicting.run_reclaim,
}

PLUGINS: dict[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Binpack,
        Capacity,
        NetworkTopology,
        NodeGroup,
        NodeOrder,
        NumaAware,
        Usage,
        Overcommit,
        Proportion,
        Conformance,
        Cooldown,
        DataLocality,
        DeviceShare,
        DisruptionBudgets,
        Drf,
        FairUsers,
        Fragmentation,
        Gang,
        Packing,
        Predicates,
        Priority,
        QueuePolicies,
        Rescheduling,
        ResourceQuotas,
        ResourceStrategyFit,
        RevocableNodes,
        Shares,
        Sla,
        TaskTopology,
    )
}


ENTRY_POINTS = "terrace.scheduler.plugins"
"""The group under which installed packages name plugins of their own."""

FAULTY: dict[str, str] = {}
"""Installed plugins that could not be loaded, and why; who names one is told so."""


def load_installed() -> None:
    """Register the plugins that installed packages offer under `ENTRY_POINTS`.

    One that cannot be loaded, is no plugin, or takes the name of another one is left out and
    noted in `FAULTY`: the others, and the clusters that do not name it, go on.
    """
    for found in sorted(entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        try:
            offered = found.load()
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
            FAULTY[found.name] = f"{type(error).__name__}: {error}"
            continue
        if not (isinstance(offered, type) and issubclass(offered, Plugin)):
            FAULTY[found.name] = f"{found.value} is no subclass of Plugin"
        elif PLUGINS.get(found.name, offered) is not offered:
            FAULTY[found.name] = "the name is taken by another plugin"
        else:
            offered.name = found.name
            PLUGINS[found.name] = offered


def action(name: str) -> Action:
    """Return the action of that name.

    Raises: ValueError naming the known ones.
    """
    if name not in ACTIONS:
        raise ValueError(f"unknown action {name!r}; known are {', '.join(sorted(ACTIONS))}")
    return ACTIONS[name]


def plugin(name: str, known: Mapping[str, type[Plugin]] = PLUGINS) -> type[Plugin]:
    """Return the plugin of that name.

    Raises: ValueError naming the known ones.
    """
    if name not in known:
        raise ValueError(f"unknown plugin {name!r}; known are {', '.join(sorted(known))}")
    return known[name]


load_installed()
