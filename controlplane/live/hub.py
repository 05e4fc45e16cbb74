"""The hub of a web process: hears hints once, renders once, lets each page have only the newest.

1. A hint names a topic. The hub marks the topic's regions and, at most four times a second for a
   topic, renders the marked fragments once for each visibility class that somebody reads them in.
   A feed is read once for all clients that have the same of it.
2. Where the digest is new, the region is marked for the clients of that class. A client's buffer
   is that set of marks: what is sent is looked up when it is sent, so the newest wins, a slow
   reader costs no memory, and what it misses is the old, never the last.
3. A pump (`clients.py`) sends each client at most four frames a second, all marked regions in one.

The hub lives on one event loop and is touched from nowhere else; the database is asked in threads.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog
from django.db import DatabaseError

from controlplane.live import feeds, frames
from controlplane.live.authority import Reader, visible_topics
from controlplane.live.clients import Client, Pump
from controlplane.live.frames import Update
from controlplane.live.pace import Pace
from controlplane.live.regions import Region, RegionKind, Wanted
from controlplane.live.threads import in_thread

log = structlog.get_logger(__name__)

RETRY_SECONDS = 2.0
MAX_REGIONS = 100
FRAME_CHARACTERS = 256 * 1024
"""A frame is ended once it is this long; what is left comes in the next."""

Class = tuple[object, ...]


@dataclass(slots=True)
class _Topic:
    """Everybody who follows a topic, by region and class, and what is to be rendered for them."""

    readers: dict[Region, dict[Class, dict[Client, None]]] = field(default_factory=dict)
    stale: dict[tuple[Region, Class], None] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Read:
    """What follows a cursor of a feed, while it is being read and afterwards."""

    is_done: bool = False
    update: Update | None = None
    waiting: list[Client] = field(default_factory=list)


class Hub:
    """What all sockets of one web process share."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.clients: set[Client] = set()
        self.is_delayed = False
        self._topics: dict[str, _Topic] = {}
        self._rendered: dict[Region, dict[Class, Update]] = {}
        self._reads: dict[Region, dict[str, _Read]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._pump = Pump(self._take_news)

    async def stop(self) -> None:
        """End what the hub does by itself."""
        await self._pump.stop()

    # --- who is here ------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        """Take a client in."""
        self.clients.add(client)
        if self.is_delayed:
            self._notice(client, _mode(is_delayed=True))

    def leave(self, client: Client) -> None:
        """Forget a client and what only it followed."""
        self.clients.discard(client)
        self.unsubscribe(client, list(client.has))
        self._pump.forget(client)

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
                self._notice(client, frames.gone(region))
            elif region not in client.has and len(client.has) >= MAX_REGIONS:
                refused = {"key": region.key, "refused": "limit", "limit": MAX_REGIONS}
                self._notice(client, frames.encode(refused))
            else:
                client.has[region] = has
                self._follow(client, region)

    def _follow(self, client: Client, region: Region) -> None:
        topic = self._topics.setdefault(region.topic, _Topic())
        class_key = _class_of(region, client.reader)
        topic.readers.setdefault(region, {}).setdefault(class_key, {})[client] = None
        if region.kind is RegionKind.FEED:
            self._mark(client, region)
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
            self._notice(client, _mode(is_delayed=is_delayed))

    def _refresh(self, region: Region) -> None:
        topic = self._topics[region.topic]
        if region.kind is RegionKind.FRAGMENT:
            self._stale(region.topic, topic, [(region, one) for one in topic.readers[region]])
            return
        self._reads.pop(region, None)
        for clients in topic.readers[region].values():
            for client in clients:
                # Woken when it is read, since before that there is nothing to send.
                client.news[region] = None
                self._read(region, client.has[region]).waiting.append(client)

    def _stale(self, name: str, topic: _Topic, what: Iterable[tuple[Region, Class]]) -> None:
        topic.stale.update(dict.fromkeys(what))
        if topic.task is None:
            topic.task = asyncio.create_task(self._render_topic(name, topic))

    async def _render_topic(self, name: str, topic: _Topic) -> None:
        """Render what is stale until nothing is, as often as the topic's pace allows."""
        loop = asyncio.get_running_loop()
        try:
            while topic.stale and self._topics.get(name) is topic:
                if (wait := topic.pace.wait_seconds(loop.time())) > 0:
                    await asyncio.sleep(wait)
                    continue
                topic.pace.note(loop.time())
                readers = {
                    (region, class_key): next(iter(clients)).reader
                    for region, class_key in topic.stale
                    if (clients := topic.readers.get(region, {}).get(class_key))
                }
                topic.stale.clear()
                updates = await in_thread(_render_all, readers)
                for (region, class_key), update in updates.items():
                    self._take_rendered(topic, region, class_key, update)
                if failed := dict.fromkeys(key for key in readers if key not in updates):
                    await asyncio.sleep(RETRY_SECONDS)
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
                self._mark(client, region)

    # --- sending ----------------------------------------------------------------------------------

    def _mark(self, client: Client, region: Region) -> None:
        """Note that there is news; an older mark of the region keeps its place in the order."""
        client.news[region] = None
        self._pump.wake(client)

    def _notice(self, client: Client, text: str) -> None:
        client.notices.append(text)
        self._pump.wake(client)

    def _take_news(self, client: Client) -> list[str]:
        """Take the encoded news of a client out of its marks, up to the length of a frame.

        What is being read stays marked: the client is woken when it is there.
        """
        parts, client.notices = client.notices, []
        length = 0
        for region in list(client.news):
            if length > FRAME_CHARACTERS:
                break
            if region.kind is RegionKind.FEED:
                read = self._read(region, client.has[region])
                if not read.is_done:
                    read.waiting.append(client)
                    continue
                update = read.update
            else:
                update = self._rendered.get(region, {}).get(_class_of(region, client.reader))
            del client.news[region]
            if update is None or client.has[region] == update.mark:
                continue
            client.has[region] = update.mark
            parts.append(update.text)
            length += len(update.text)
            if update.has_more:
                client.news[region] = None
        return parts

    def _read(self, region: Region, cursor: str) -> _Read:
        """Return what follows the cursor: one read for all clients that have the same."""
        reads = self._reads.setdefault(region, {})
        read = reads.get(cursor)
        if read is None:
            read = reads[cursor] = _Read()
            task = asyncio.create_task(self._read_feed(region, cursor, read))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return read

    async def _read_feed(self, region: Region, cursor: str, read: _Read) -> None:
        try:
            read.update = await in_thread(feeds.read, region, cursor)
            read.is_done = True
        except Exception as error:  # the top of a loop: the page keeps what it has, we try again
            if isinstance(error, DatabaseError):
                log.warning("live_read_failed", error=str(error))
            else:
                log.exception("live_feed_failed", feed=region.name, topic=region.topic)
            await asyncio.sleep(RETRY_SECONDS)
            if self._reads.get(region, {}).get(cursor) is read:
                del self._reads[region][cursor]
        for client in read.waiting:
            self._pump.wake(client)

    # --- rights -----------------------------------------------------------------------------------

    async def recheck(self, clients: Iterable[Client]) -> None:
        """Take away what clients may no longer see; some four queries for each user."""
        by_user: dict[Class, list[Client]] = defaultdict(list)
        for client in clients:
            by_user[(*client.reader.scope_key, client.reader.actor.user_id)].append(client)
        for group in by_user.values():
            regions = frozenset(region for client in group for region in client.has)
            lost = regions - await in_thread(allowed_regions, group[0].reader, regions)
            for client in group if lost else ():
                self._drop(client, [one for one in client.has if one in lost])

    async def change_reader(self, client: Client, reader: Reader) -> None:
        """Give a client whose rights changed what it may see now, and take the rest away."""
        wanted = [Wanted(region, has) for region, has in client.has.items()]
        self.unsubscribe(client, list(client.has))
        client.reader = reader
        await self.subscribe(client, wanted)

    def _drop(self, client: Client, regions: list[Region]) -> None:
        self.unsubscribe(client, regions)
        for region in regions:
            self._notice(client, frames.gone(region))


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
