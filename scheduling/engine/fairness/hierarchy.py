"""Hierarchical dominant resource fairness: shares of a tree whose leaves are jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Branch:
    """A node of the tree: a part of the organisation, or one job."""

    __slots__ = ("allocated", "children", "is_saturated", "leaves", "requested", "share", "weight")

    def __init__(self, weight: float, allocated: Sequence[float], requested: Sequence[int]) -> None:
        """Start with nothing below."""
        self.weight = weight
        self.allocated = list(allocated)
        self.requested = requested
        self.children: dict[str, Branch] = {}
        self.leaves: list[Branch] = []
        self.share = 0.0
        self.is_saturated = False


class ShareTree:
    """Shares by level, rescaled so that a saturated part does not hold up the others.

    1. A job is saturated if it has all that it asks of some resource, or asks for one that is used
    up. 2. A branch counts what is below it: saturated children as they are, the others scaled down
    to the smallest share among them. 3. Its share is the dominant one; it is saturated if all its
    children are.
    Source: Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter Workloads (2013);
    Volcano docs/design/hdrf.
    """

    def __init__(self, total: Sequence[int], paths: Mapping[str, tuple[str, str]]) -> None:
        """Grow the branches of the queues' paths: queue -> (`root/a/b`, weights `1/2/3`)."""
        self.total = total
        self._none = [0] * len(total)
        self.root = Branch(1.0, self._none, self._none)
        self._paths: dict[str, list[Branch]] = {}
        self._used = [0] * len(total)
        for queue, (path, weights) in sorted(paths.items()):
            names = path.split("/")
            numbers = weights.split("/")
            branch, way = self.root, []
            for level, name in enumerate(names[1:], start=1):
                if name not in branch.children:
                    weight = _weight(numbers[level] if level < len(numbers) else "")
                    branch.children[name] = Branch(weight, self._none, self._none)
                branch = branch.children[name]
                way.append(branch)
            self._paths[queue] = way

    def add(self, queue: str, *, allocated: Sequence[int], requested: Sequence[int]) -> None:
        """Hang a job under its queue; one whose queue has no place in the tree is left out."""
        for d, amount in enumerate(allocated):
            self._used[d] += amount
        way = self._paths.get(queue)
        if way:
            way[-1].leaves.append(Branch(1.0, allocated, requested))

    def settle(self) -> None:
        """Compute shares and saturation from the leaves up."""
        is_wanted = [used < total for used, total in zip(self._used, self.total, strict=True)]
        self._settle(self.root, is_wanted)

    def _settle(self, branch: Branch, is_wanted: Sequence[bool]) -> None:
        children = [*branch.children.values(), *branch.leaves]
        if not children:
            branch.is_saturated = any(
                held and asked and (held >= asked or not wanted)
                for held, asked, wanted in zip(
                    branch.allocated, branch.requested, is_wanted, strict=True
                )
            )
            branch.share = self._share(branch.allocated)
            return
        for child in children:
            self._settle(child, is_wanted)
        active = [c for c in children if c.share]
        least = min([1.0, *[c.share for c in active if not c.is_saturated]])
        branch.allocated = [0.0] * len(self.total)
        for child in active:
            scale = 1.0 if child.is_saturated else least / child.share
            for d, amount in enumerate(child.allocated):
                branch.allocated[d] += amount * scale
        branch.share = self._share(branch.allocated)
        branch.is_saturated = all(c.is_saturated for c in children)

    def _share(self, amounts: Sequence[float]) -> float:
        return max((a / t for a, t in zip(amounts, self.total, strict=True) if t), default=0.0)

    def key(self, queue: str) -> tuple[tuple[bool, float], ...]:
        """Return a queue's sort key: at each level unsaturated first, then the smaller share."""
        return tuple(
            (branch.is_saturated, branch.share / branch.weight)
            for branch in self._paths.get(queue, ())
        )


def _weight(text: str) -> float:
    """Return a weight; what is no number, or below 1, counts as 1."""
    try:
        return max(1.0, float(text))
    except ValueError:
        return 1.0
