"""How big a document and a job may be; each limit is named in the problem that it causes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is read and accepted; an installation may tighten them."""

    document_bytes: int = 1_048_576
    document_depth: int = 50
    document_nodes: int = 100_000
    alias_nodes: int = 10_000
    """How many nodes the aliases of a document may stand for altogether."""
    documents: int = 200

    name_length: int = 63
    roles: int = 100
    tasks: int = 100_000
    policies: int = 64
    env_variables: int = 1_000
    text_length: int = 65_536
    labels: int = 200
    volumes: int = 64
    ports: int = 100


DEFAULT_LIMITS = Limits()
