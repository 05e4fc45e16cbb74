"""The fragments of pages that are kept live: name -> how to load and which template to render."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tenants.domain.access import Actor


class Fragment(NamedTuple):
    """A part of a page that is rendered alike for the first page and for every live update."""

    load: Callable[[Actor, str, str], dict[str, object]]
    """(actor, the id in the topic, the region's argument) -> context, by scoped reads.

    Raises `tenants.domain.errors.NotFound` when there is nothing that the actor may see.
    """
    template: str
    kinds: frozenset[str] = frozenset()
    """Hints that make it worth rendering again; empty: all but log, metrics and usage."""
    is_personal: bool = True
    """False: the context depends on the reader's grants only, not on who reads."""


FRAGMENTS: dict[str, Fragment] = {}
