"""What a page follows: regions, each a topic with a fragment of HTML or a feed of data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

TOPICS = frozenset({"job", "jobs", "queue", "cluster", "node", "user", "tenant"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ARGUMENT_LENGTH = 200


class MalformedError(ValueError):
    """A message of a client that is not in the protocol; the text says what was wrong."""


class RegionKind(StrEnum):
    """Whether the server renders HTML for a region or sends it rows and bytes."""

    FRAGMENT = "fragment"
    FEED = "feed"


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One followed part of a page; two elements that show the same thing are one region."""

    topic: str
    kind: RegionKind
    name: str
    argument: str = ""

    @property
    def key(self) -> str:
        """The name by which client and server speak of the region."""
        return f"{self.topic}/{self.kind}/{self.name}/{self.argument}"

    @property
    def object_id(self) -> str:
        """The id that the topic names."""
        return self.topic.partition(":")[2]

    @classmethod
    def parse(cls, key: object) -> Region:
        """Read a region's key.

        Raises:
            MalformedError: the key is not `<topic>/<fragment or feed>/<name>/<argument>`.
        """
        if not isinstance(key, str):
            raise MalformedError("a region's key is text")
        topic, kind, name, argument = (*key.split("/", 3), "", "", "", "")[:4]
        if kind not in set(RegionKind) or not _NAME.fullmatch(name):
            raise MalformedError(f"{key[:100]!r} is not <topic>/<fragment or feed>/<name>/<arg>")
        if len(argument) > _ARGUMENT_LENGTH:
            raise MalformedError(f"an argument has at most {_ARGUMENT_LENGTH} characters")
        return cls(parse_topic(topic), RegionKind(kind), name, argument)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A region that a client asks for, and what it has of it: a digest, or a feed's cursor."""

    region: Region
    has: str


def parse_topic(topic: str) -> str:
    """Return the topic in its one spelling: a known word, a colon and a UUID.

    Raises:
        MalformedError: it is not such a topic.
    """
    word, _, object_id = topic.partition(":")
    try:
        canonical = str(UUID(object_id))
    except ValueError:
        canonical = ""
    if word not in TOPICS or canonical != object_id:
        raise MalformedError(f"{topic[:100]!r} is not a topic, such as job:<id>")
    return topic


def parse_wanted(item: Any) -> Wanted:
    """Read one entry of a client's `subscribe`.

    Raises:
        MalformedError: it is not an object with `key` and `has`, both text.
    """
    if not isinstance(item, dict):
        raise MalformedError("an entry of regions is an object with key and has")
    has = item.get("has", "")
    if not isinstance(has, str) or len(has) > _ARGUMENT_LENGTH:
        raise MalformedError(f"has is text of at most {_ARGUMENT_LENGTH} characters")
    return Wanted(Region.parse(item.get("key")), has)
