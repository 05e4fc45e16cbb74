"""The hub of a web process: hears hints once, renders once, lets each page have only the newest.

1. A hint names a topic. The hub marks the topic's regions and, at most four times a second for a
   topic, renders the marked fragments once for each visibility class that somebody reads them in.
2. Where the digest is new, the region is marked for the clients of that class. A client's buffer
   is that set of marks: what is sent is looked up when it is sent, so the newest wins, a slow
   reader costs no memory, and what it misses is the old, never the last.
3. Each client has a writer that sends at most four frames a second, all marked regions in one.

The hub lives on one event loop and is touched from nowhere else; the database is asked in threads.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import structlog
from django.db import DatabaseError

from controlplane.live import feeds, frames
from controlplane.live.authority import Reader, SignedIn, visible_topics
from controlplane.live.frames import Update
from controlplane.live.regions import Region, RegionKind, Wanted
from controlplane.live.threads import in_thread

log = structlog.get_logger(__name__)

PACE_SECONDS = 0.25
"""Least time between two frames of a client, and between two renderings of a topic."""
RETRY_SECONDS = 2.0
MAX_REGIONS = 100
FRAME_CHARACTERS = 256 * 1024
"""A frame is ended once it is this long; what is left comes in the next."""

Send = Callable[[str], Awaitable[None]]
Class = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Client:
    """One socket: who reads, what it follows, and what of it is news that was not sent yet."""

    reader: Reader
    signed_in: SignedIn
    send: Send
    close: Callable[[int], Awaitable[None]]
    has: dict[Region, str] = field(default_factory=dict)
    """What the page has of each region: a digest or a cursor."""
    news: dict[Region, None] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seq: int = 0
    rights: object = None
    writer: asyncio.Task[None] | None = None

    def mark(self, region: Region) -> None:
        """Note that there is news; an older mark of the region keeps its place in the order."""
        self.news[region] = None
        self.wake.set()

    def notice(self, text: str) -> None:
        """Queue a part of a frame that belongs to no rendering: a refusal, the mode."""
        self.notices.append(text)
        self.wake.set()


@dataclass(slots=True)
class _Topic:
    """Everybody who follows a topic, by region and class, and what is to be rendered for them."""

    readers: dict[Region, dict[Class, dict[Client, None]]] = field(default_factory=dict)
    stale: dict[tuple[Region, Class], None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Hub:
    """What all sockets of one web process share."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.clients: set[Client] = set()
        self.is_delayed = False
        self._topics: dict[str, _Topic] = {}
        self._rendered: dict[Region, dict[Class, Update]] = {}
        self._reads: dict[Region, dict[str, asyncio.Future[Update | None]]] = {}

    # --- who is here ------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        """Take a client in and start its writer."""
        self.clients.add(client)
        client.writer = asyncio.create_task(self._write(client))
        if self.is_delayed:
            client.notice(_mode(is_delayed=True))

    def leave(self, client: Client) -> None:
        """Forget a client and what only it followed."""
        self.clients.discard(client)
        self.unsubscribe(client, list(client.has))
        if client.writer is not None:
            client.writer.cancel()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that somebody follows."""
        return frozenset(self._topics)

    # --- following --------------------------------------------------------------------------------

    async def subscribe(self, client: Client, wanted: Iterable[Wanted]) -> None:
        """Follow regions, those that the client may see, up to its limit; refuse the others."""
        asked = {one.region: one.has for one in wanted}
        allowed = await in_thread(allowed_regions, client.reader, frozenset(asked))
        if client not in self.clients:
            return
        for region, has in asked.items():
            if region not in allowed:
                client.notice(frames.gone(region))
            elif region not in client.has and len(client.has) >= MAX_REGIONS:
                client.notice(
                    frames.encode({"key": region.key, "refused": "limit", "limit": MAX_REGIONS})
                )
            else:
                client.has[region] = has
                self._follow(client, region)

    def _follow(self, client: Client, region: Region) -> None:
        topic = self._topics.setdefault(region.topic, _Topic())
        class_key = _class_of(region, client.reader)
        topic.readers.setdefault(region, {}).setdefault(class_key, {})[client] = None
        if region.kind is RegionKind.FEED:
            client.mark(region)
        else:
            # Rendered again even if a rendering is at hand: the page may be newer than that.
            self._stale(region.topic, topic, [(region, class_key)])

    def unsubscribe(self, client: Client, regions: Iterable[Region]) -> None:
        """Stop following regions; what nobody follows any more is forgotten."""
        for region in regions:
            if client.has.pop(region, None) is None:
                continue
            client.news.pop(region, None)
            topic = self._topics[region.topic]
            classes = topic.readers[region]
            class_key = _class_of(region, client.reader)
            del classes[class_key][client]
            if not classes[class_key]:
                del classes[class_key]
                self._rendered.get(region, {}).pop(class_key, None)
            if not classes:
                del topic.readers[region]
                self._rendered.pop(region, None)
                self._reads.pop(region, None)
            if not topic.readers:
                del self._topics[region.topic]

    def resync(self, client: Client) -> None:
        """Send a client all its fragments in full, whatever it said it had."""
        for region in client.has:
            if region.kind is RegionKind.FRAGMENT:
                client.has[region] = ""
            self._refresh(region)

    # --- news -------------------------------------------------------------------------------------

    def hint(self, topic_name: str, kind: str = "state") -> None:
        """Take notice that something of a topic changed; cheap when nobody follows it."""
        topic = self._topics.get(topic_name)
        if topic is None:
            return
        for region in topic.readers:
            concerned = feeds if region.kind is RegionKind.FEED else frames
            if concerned.is_concerned(region, kind):
                self._refresh(region)

    def hint_all(self) -> None:
        """Look at everything that is followed anew, after a time in which hints may be lost."""
        for topic in self._topics.values():
            for region in topic.readers:
                self._refresh(region)

    def set_delayed(self, *, is_delayed: bool) -> None:
        """Tell the pages whether changes come at once or by looking every two seconds."""
        if is_delayed == self.is_delayed:
            return
        self.is_delayed = is_delayed
        log.info("live_mode", is_delayed=is_delayed, clients=len(self.clients))
        for client in self.clients:
            client.notice(_mode(is_delayed=is_delayed))

    def _refresh(self, region: Region) -> None:
        topic = self._topics[region.topic]
        if region.kind is RegionKind.FRAGMENT:
            self._stale(region.topic, topic, [(region, one) for one in topic.readers[region]])
            return
        self._reads.pop(region, None)
        for clients in topic.readers[region].values():
            for client in clients:
                client.mark(region)

    def _stale(self, name: str, topic: _Topic, what: Iterable[tuple[Region, Class]]) -> None:
        topic.stale.update(dict.fromkeys(what))
        if topic.task is None:
            topic.task = asyncio.create_task(self._render_topic(name, topic))

    async def _render_topic(self, name: str, topic: _Topic) -> None:
        """Render what is stale until nothing is, with a pause between two looks at the database."""
        try:
            while topic.stale and self._topics.get(name) is topic:
                readers = {
                    (region, class_key): next(iter(clients)).reader
                    for region, class_key in topic.stale
                    if (clients := topic.readers.get(region, {}).get(class_key))
                }
                topic.stale.clear()
                updates = await in_thread(_render_all, readers)
                for (region, class_key), update in updates.items():
                    self._take_rendered(topic, region, class_key, update)
                failed = dict.fromkeys(key for key in readers if key not in updates)
                await asyncio.sleep(RETRY_SECONDS if failed else PACE_SECONDS)
                topic.stale.update(failed)
        finally:
            topic.task = None

    def _take_rendered(
        self, topic: _Topic, region: Region, class_key: Class, update: Update
    ) -> None:
        clients = topic.readers.get(region, {}).get(class_key)
        if not clients:
            return
        self._rendered.setdefault(region, {})[class_key] = update
        for client in clients:
            if client.has[region] != update.mark:
                client.mark(region)

    # --- sending ----------------------------------------------------------------------------------

    async def _write(self, client: Client) -> None:
        """Send a client its news, at most four frames a second."""
        while True:
            await client.wake.wait()
            client.wake.clear()
            try:
                parts = await self._take_news(client)
            except DatabaseError as error:
                log.warning("live_read_failed", error=str(error))
                client.wake.set()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if parts:
                client.seq += 1
                try:
                    await client.send(frames.frame(client.seq, parts))
                except OSError:
                    return  # the page is gone; its disconnect takes it out of the hub
                await asyncio.sleep(PACE_SECONDS)

    async def _take_news(self, client: Client) -> list[str]:
        """Take the encoded news of a client out of its marks, up to the length of a frame."""
        parts: list[str] = []
        for region in list(client.news):
            if sum(map(len, parts)) > FRAME_CHARACTERS:
                client.wake.set()
                break
            update = await self._newest(client, region)
            client.news.pop(region, None)
            if update is None or client.has.get(region, update.mark) == update.mark:
                continue
            client.has[region] = update.mark
            parts.append(update.text)
            if region.kind is RegionKind.FEED:
                client.mark(region)  # there may be more behind it; an empty read ends this
        notices, client.notices = client.notices, []
        return notices + parts

    async def _newest(self, client: Client, region: Region) -> Update | None:
        if region not in client.has:
            return None
        if region.kind is RegionKind.FRAGMENT:
            return self._rendered.get(region, {}).get(_class_of(region, client.reader))
        reads = self._reads.setdefault(region, {})
        cursor = client.has[region]
        if cursor not in reads:
            # One read for all clients that have the same of the feed.
            reads[cursor] = asyncio.ensure_future(in_thread(feeds.read, region, cursor))
        try:
            return await asyncio.shield(reads[cursor])
        except DatabaseError:
            reads.pop(cursor, None)
            raise

    # --- rights -----------------------------------------------------------------------------------

    async def recheck(self, clients: Iterable[Client]) -> None:
        """Take away what clients may no longer see; some four queries for each user."""
        by_user: dict[Class, list[Client]] = defaultdict(list)
        for client in clients:
            by_user[(*client.reader.scope_key, client.reader.actor.user_id)].append(client)
        for group in by_user.values():
            regions = frozenset(region for client in group for region in client.has)
            allowed = await in_thread(allowed_regions, group[0].reader, regions)
            for client in group:
                self._drop(client, [one for one in client.has if one in regions - allowed])

    async def change_reader(self, client: Client, reader: Reader) -> None:
        """Give a client whose rights changed what it may see now, and take the rest away."""
        wanted = [Wanted(region, has) for region, has in client.has.items()]
        self.unsubscribe(client, list(client.has))
        client.reader = reader
        await self.subscribe(client, wanted)

    def _drop(self, client: Client, regions: list[Region]) -> None:
        self.unsubscribe(client, regions)
        for region in regions:
            client.notice(frames.gone(region))


def _mode(*, is_delayed: bool) -> str:
    return frames.encode({"mode": "delayed" if is_delayed else "live"})


def _class_of(region: Region, reader: Reader) -> Class:
    """Return the class of readers who get the same; a feed reads the same for all who may."""
    return frames.class_of(region, reader) if region.kind is RegionKind.FRAGMENT else ()


def allowed_regions(reader: Reader, regions: frozenset[Region]) -> frozenset[Region]:
    """Return the regions that exist and that the reader may follow."""
    topics = visible_topics(reader.actor, {region.topic for region in regions})
    return frozenset(
        region
        for region in regions
        if region.topic in topics
        and (
            frames.is_known(region)
            if region.kind is RegionKind.FRAGMENT
            else feeds.is_known(region) and feeds.may_read(region, reader)
        )
    )


def _render_all(readers: dict[tuple[Region, Class], Reader]) -> dict[tuple[Region, Class], Update]:
    """Render several fragments; one that fails is left out and does not keep the others back."""
    updates = {}
    for (region, class_key), reader in readers.items():
        try:
            updates[region, class_key] = frames.render_update(region, reader)
        except Exception:  # the top of a loop: the page keeps the last good state, we try again
            log.exception("live_fragment_failed", fragment=region.name, topic=region.topic)
    return updates
