"""Two departments that compete for eight GPUs: what changes of queues are tried on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduling.domain import queues
from scheduling.domain.queue_changes import QueueEdit
from scheduling.domain.queue_preview import Preview
from scheduling.models import Job, Queue
from tenants.domain.access import Actor, load_actor
from tenants.models import GrantRole, OrgUnit
from tests.factories.cluster import Site, role
from tests.people import make_grant, make_queue, make_unit, make_user


@dataclass(slots=True)
class Rivals:
    """Two departments on 8 GPUs: `robots` of `vision` runs 4, `speech` runs 4, more wait."""

    site: Site
    vision: Queue
    robots: Queue
    speech: Queue

    def actor(self, unit: OrgUnit | None, given: GrantRole, name: str = "") -> Actor:
        """Return somebody with a role on a unit."""
        user = make_user(name or f"{given}-{unit}")
        make_grant(user, given, unit)
        return load_actor(user)

    def preview(self, actor: Actor, queue: Queue, version: int = 1, **numbers: Any) -> Preview:
        """Preview one edit."""
        edit = QueueEdit(queue_id=queue.id, expected_version=version, **numbers)
        return queues.preview_edits(actor=actor, edits=[edit], now=self.site.now)


def make_rivals(site: Site) -> Rivals:
    """Put the departments to work."""
    tenant = site.queue.unit
    assert tenant is not None
    units = {name: make_unit(name, tenant) for name in ("vision", "speech")}
    vision, speech = (
        make_queue(site.cluster, name, site.queue, unit) for name, unit in units.items()
    )
    robots = make_queue(site.cluster, "robots", vision, make_unit("robots", units["vision"]))
    site.node(gpus=8)
    for count in (4, 2):
        for queue in (robots, speech):
            for number in range(count):
                site.submit(
                    role(gpu_milli=1000), queue=queue, name=f"{queue.name}-{count}-{number}"
                )
        if count == 4:
            site.cycle()
            site.running(*(one for job in Job.objects.all() for one in site.live(job)))
    return Rivals(site, vision, robots, speech)
