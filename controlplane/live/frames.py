"""Turns what changed into the text of frames: fragments rendered once, encoded once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from django.template.loader import render_to_string
from django.utils import timezone, translation

from controlplane.live.authority import Reader
from controlplane.live.regions import Region
from controlplane.pages.fragments import FRAGMENTS
from tenants.domain.errors import NotFound

_DATA_KINDS = frozenset({"log", "metrics", "usage"})
"""Hints of bytes and rows that grew; only feeds care unless a fragment names the kind."""


@dataclass(frozen=True, slots=True)
class Update:
    """One region's news, encoded: what goes into a frame as it is."""

    text: str
    mark: str
    """A fragment's digest, or a feed's cursor after this update."""
    has_more: bool = False
    """More of the feed lies behind it already."""


def encode(value: object) -> str:
    """Write compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def frame(seq: int, updates: Iterable[str]) -> str:
    """Write one frame from encoded updates; `seq` counts the frames of one socket."""
    return f'{{"seq":{seq},"updates":[{",".join(updates)}]}}'


def is_known(region: Region) -> bool:
    """Tell whether there is a fragment of the region's name."""
    return region.name in FRAGMENTS


def is_concerned(region: Region, kind: str) -> bool:
    """Tell whether a hint of this kind may change the fragment."""
    kinds = FRAGMENTS[region.name].kinds
    return kind in kinds if kinds else kind not in _DATA_KINDS


def class_of(region: Region, reader: Reader) -> tuple[object, ...]:
    """Return the visibility class: readers in one class get the same bytes."""
    return reader.class_key(is_personal=FRAGMENTS[region.name].is_personal)


def render(region: Region, reader: Reader) -> str:
    """Return the fragment's HTML as the reader may see it; empty when there is nothing to see."""
    fragment = FRAGMENTS[region.name]
    with translation.override(reader.language), timezone.override(ZoneInfo(reader.time_zone)):
        try:
            context = fragment.load(reader.actor, region.object_id, region.argument)
        except NotFound:
            return ""
        return render_to_string(fragment.template, {"actor": reader.actor, **context})


def render_update(region: Region, reader: Reader) -> Update:
    """Render and encode a fragment, with the digest by which an unchanged one is not sent again."""
    html = render(region, reader)
    digest = hashlib.blake2b(html.encode(), digest_size=9).hexdigest()
    return Update(encode({"key": region.key, "has": digest, "html": html}), digest)


def gone(region: Region) -> str:
    """Encode that a region may not be followed, or no longer: the page empties it."""
    return encode({"key": region.key, "gone": True})
