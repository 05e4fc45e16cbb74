"""Administration: how the installation's own processes are."""

import redis
from django.conf import settings
from django.http import HttpResponse

from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain.queries import cluster as cluster_queries
from tenants.domain.access import Verb, require

REDIS_TIMEOUT_SECONDS = 1.0


@page
def health(request: PageRequest) -> HttpResponse:
    """Show leases, the last cycles, the outbox and the agents."""
    require(request.actor, Verb.SETTINGS_READ, None, what="page")
    context = {"health": cluster_queries.health(now=now()), "redis_ok": _redis_answers()}
    return render_page(request, "admin_area/health.html", context, section="pages:health")


def _redis_answers() -> bool:
    """Ask Redis, and wait for a second at most."""
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
        socket_timeout=REDIS_TIMEOUT_SECONDS,
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
