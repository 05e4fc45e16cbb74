"""The same updates by plain HTTP, for pages whose socket does not come through."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import get_language
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.live import feeds, frames
from controlplane.live.authority import Reader
from controlplane.live.hub import MAX_REGIONS, allowed_regions
from controlplane.live.regions import MalformedError, Region, RegionKind, Wanted, parse_wanted
from tenants.domain.access import load_actor
from tenants.models import User


@require_GET
@never_cache
@login_required
def poll(request: HttpRequest) -> HttpResponse:
    """Answer `?region=<key>&has=<digest or cursor>`, repeated, with one frame of what is new."""
    pairs = zip(request.GET.getlist("region"), request.GET.getlist("has"), strict=False)
    try:
        wanted = [parse_wanted({"key": key, "has": has}) for key, has in pairs]
    except MalformedError as error:
        return JsonResponse({"code": "bad_region", "detail": str(error)}, status=400)
    wanted = wanted[:MAX_REGIONS]
    reader = _reader(request)
    allowed = allowed_regions(reader, frozenset(one.region for one in wanted))
    updates = [_update(one, reader, allowed) for one in wanted]
    text = frames.frame(0, [text for text in updates if text])
    return HttpResponse(text, content_type="application/json")


def _reader(request: HttpRequest) -> Reader:
    assert isinstance(request.user, User)  # noqa: S101 - login_required saw to it
    return Reader(
        load_actor(request.user),
        get_language(),
        timezone.get_current_timezone_name(),
    )


def _update(wanted: Wanted, reader: Reader, allowed: frozenset[Region]) -> str | None:
    """Return what a region's page lacks, encoded; None when it has the newest."""
    region = wanted.region
    if region not in allowed:
        return frames.gone(region)
    if region.kind is RegionKind.FEED:
        update = feeds.read(region, wanted.has)
    else:
        update = frames.render_update(region, reader)
    return None if update is None or update.mark == wanted.has else update.text
