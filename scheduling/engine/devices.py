"""The accelerators of the nodes in one cycle: what is left of each, and the best set to take.

A task asks for whole devices, or for a part of one or several: of their memory and of their
compute, which are counted apart. Both are kept in thousandths of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

from scheduling.engine.types import GPU, Device, Node

WHOLE = 1000
"""Thousandths of one device."""

MIB = 2**20

PERCENT = WHOLE // 100

LINKS = {"NVLINK": 100, "PIX": 40, "PXB": 30, "PHB": 20, "NODE": 10, "SYS": 0}
"""How close two devices are by the kind of the link between them, as `nvidia-smi topo` names it."""

SAME_NUMA = 10
"""How close two devices of one NUMA node are where no link is known."""

MOST_SETS = 3000
"""Up to this many sets of devices are all compared; beyond it sets are grown from each device."""

VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_PERCENT = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
SHARING_NAMES = (VGPU_NUMBER, VGPU_MEMORY, VGPU_PERCENT, VGPU_CORES, GPU_MEMORY, GPU_NUMBER)
"""Requests that only single cards can answer; a node's sum of them says nothing."""

SLOTS = 10
"""Tasks that may share one device."""

USE_MODEL, AVOID_MODEL = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_ID, AVOID_ID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
ANNOTATIONS = frozenset({USE_MODEL, AVOID_MODEL, USE_ID, AVOID_ID})
"""Annotations of a role that choose among devices; lists joined by commas."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one task wants of devices; a part of 0 memory takes none, of 0 compute what is left."""

    count: int
    is_whole: bool
    share: int = 0
    """Thousandths of a device, of memory and compute alike."""
    memory_bytes: int = 0
    memory_percent: int = 0
    cores_percent: int = 0
    use_models: tuple[str, ...] = ()
    avoid_models: tuple[str, ...] = ()
    use_ids: tuple[str, ...] = ()
    avoid_ids: tuple[str, ...] = ()

    def accepts(self, device: Device) -> bool:
        """Return whether the task may run on a device at all."""
        model = device.model.lower()
        if self.use_models and not any(name in model for name in self.use_models):
            return False
        if any(name in model for name in self.avoid_models):
            return False
        names = {device.id, device.uuid}
        return (not self.use_ids or not names.isdisjoint(self.use_ids)) and names.isdisjoint(
            self.avoid_ids
        )

    def takes(self, device: Device) -> tuple[int, int]:
        """Return what it takes of one device: thousandths of memory and of compute."""
        if self.is_whole:
            return WHOLE, WHOLE
        if self.share:
            return self.share, self.share
        memory = self.memory_percent * PERCENT
        if self.memory_bytes and not memory:
            size = device.memory_bytes
            memory = -(-self.memory_bytes * WHOLE // size) if size else WHOLE + 1
        return memory, self.cores_percent * PERCENT


def ask_of(
    gpu_milli: int, request: Mapping[str, int], annotations: Mapping[str, str]
) -> Ask | None:
    """Return what a role's request asks of devices, None if nothing.

    Source of the names: Volcano's deviceshare plugin and HAMi.
    """
    ask = _amounts_of(gpu_milli, request)
    if ask is None or ANNOTATIONS.isdisjoint(annotations):
        return ask
    return replace(
        ask,
        use_models=_names(annotations, USE_MODEL, is_lower=True),
        avoid_models=_names(annotations, AVOID_MODEL, is_lower=True),
        use_ids=_names(annotations, USE_ID),
        avoid_ids=_names(annotations, AVOID_ID),
    )


def _amounts_of(gpu_milli: int, request: Mapping[str, int]) -> Ask | None:
    if gpu_milli >= WHOLE:
        return Ask(gpu_milli // WHOLE, is_whole=True)
    if gpu_milli:
        return Ask(1, is_whole=False, share=gpu_milli)
    if number := request.get(VGPU_NUMBER, 0) // 1000:
        return Ask(
            number,
            is_whole=False,
            memory_bytes=request.get(VGPU_MEMORY, 0) // 1000 * MIB,
            memory_percent=request.get(VGPU_PERCENT, 0) // 1000,
            cores_percent=request.get(VGPU_CORES, 0) // 1000,
        )
    if memory := request.get(GPU_MEMORY, 0) // 1000:
        return Ask(1, is_whole=False, memory_bytes=memory * MIB)
    if number := request.get(GPU_NUMBER, 0) // 1000:
        return Ask(number, is_whole=True)
    return None


def _names(annotations: Mapping[str, str], key: str, *, is_lower: bool = False) -> tuple[str, ...]:
    text = annotations.get(key, "")
    text = text.lower() if is_lower else text
    return tuple(part.strip() for part in text.split(",") if part.strip())


def offered(node: Node, name: str) -> int:
    """Return how much of a sharing resource a node's cards make together, in thousandths."""
    cards = [d for d in node.devices if d.is_healthy and d.resource == GPU]
    if name in (VGPU_MEMORY, GPU_MEMORY):
        return sum(d.memory_bytes for d in cards) // MIB * 1000
    each = {VGPU_NUMBER: SLOTS, GPU_NUMBER: 1}.get(name, 100)
    return len(cards) * each * 1000


@dataclass(slots=True)
class Card:
    """One healthy device and what is left of it."""

    device: Device
    memory: int = WHOLE
    compute: int = WHOLE
    tasks: int = 0

    @property
    def is_idle(self) -> bool:
        """Return whether nobody holds a part of it."""
        return not self.tasks

    def has_room(self, ask: Ask) -> bool:
        """Return whether one more task fits."""
        if not ask.accepts(self.device):
            return False
        memory, compute = ask.takes(self.device)
        if ask.is_whole or compute >= WHOLE:
            return self.is_idle and memory <= WHOLE
        if not ask.share and compute == 0 and self.compute <= 0:
            return False  # somebody has all of its compute for itself
        return self.tasks < SLOTS and memory <= self.memory and compute <= self.compute


Order = Callable[[Card], tuple[object, ...]]


def fullest_first(card: Card) -> tuple[object, ...]:
    """Order cards so that parts gather on few of them."""
    return (card.memory, card.compute, card.device.index, card.device.id)


def emptiest_first(card: Card) -> tuple[object, ...]:
    """Order cards so that each has as few tasks as possible."""
    return (card.tasks, -card.memory, card.device.index, card.device.id)


class Chooser:
    """Chooses the best set of whole devices; equal nodes in equal states are thought about once."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._known: dict[tuple[object, ...], tuple[int, ...]] = {}

    def best(self, cards: Sequence[Card], count: int) -> list[Card]:
        """Return the `count` cards that are closest to one another.

        Then those whose going costs the others least closeness, so that close groups stay
        together; then the lowest indices.
        """
        if count == len(cards):
            return list(cards)
        ordered = sorted(cards, key=lambda c: (c.device.index, c.device.id))
        near = [[0] * len(ordered) for _ in ordered]
        for i, card in enumerate(ordered):
            for j in range(i):
                near[i][j] = near[j][i] = closeness(card.device, ordered[j].device)
        key = (count, *(tuple(row) for row in near))
        if key not in self._known:
            self._known[key] = _best_set(near, count)
        return [ordered[i] for i in self._known[key]]


def closeness(left: Device, right: Device) -> int:
    """Return how close two devices are; more is closer."""
    kind = next((kind for peer, kind in left.links if peer == right.id), "")
    kind = kind or next((kind for peer, kind in right.links if peer == left.id), "")
    if kind:
        name = kind.upper()
        if name.startswith("NV"):
            lanes = name.removeprefix("NVLINK").removeprefix("NV")
            return LINKS["NVLINK"] + (int(lanes) if lanes.isdigit() else 0)
        return LINKS.get(name, 0)
    is_same = left.numa_node >= 0 and left.numa_node == right.numa_node
    return SAME_NUMA if is_same else 0


def _best_set(near: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    everything = range(len(near))
    sets: Iterable[tuple[int, ...]] = (
        combinations(everything, count)
        if comb(len(near), count) <= MOST_SETS
        else (_grown(near, count, seed) for seed in everything)
    )

    def worth(chosen: tuple[int, ...]) -> tuple[int, int]:
        inside = sum(near[i][j] for i, j in combinations(chosen, 2))
        outside = sum(near[i][j] for i in chosen for j in everything if j not in chosen)
        return -inside, outside

    return min(sets, key=lambda chosen: (*worth(chosen), chosen))


def _grown(near: Sequence[Sequence[int]], count: int, seed: int) -> tuple[int, ...]:
    chosen = [seed]
    while len(chosen) < count:
        left = [i for i in range(len(near)) if i not in chosen]
        chosen.append(max(left, key=lambda i: (sum(near[i][j] for j in chosen), -i)))
    return tuple(sorted(chosen))


def choose(
    cards: Sequence[Card], ask: Ask, chooser: Chooser, *, order: Order = fullest_first
) -> tuple[str, ...] | None:
    """Return the devices for one task, None if there are not enough."""
    roomy = [card for card in cards if card.has_room(ask)]
    if len(roomy) < ask.count:
        return None
    if ask.is_whole:
        chosen = chooser.best(roomy, ask.count)
    else:
        chosen = sorted(roomy, key=order)[: ask.count]
    return tuple(card.device.id for card in chosen)
