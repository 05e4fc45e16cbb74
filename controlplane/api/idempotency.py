"""`Idempotency-Key`: a POST that is sent again is answered again, and not done again."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.domain.idempotency import run_once

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"

Effect = Callable[[], tuple[int, Mapping[str, Any]]]


def reply_once(request: Request, *, user_id: UUID, now: datetime, effect: Effect) -> Response:
    """Answer with what `effect` returns (status, reply), once for each key.

    Without the header the effect simply runs. The reply is kept as it is sent, so it must hold no
    secret.
    """
    key = request.headers.get(HEADER)
    if key is None:
        status, reply = effect()
        return Response(reply, status=status)

    def kept() -> tuple[int, Mapping[str, Any]]:
        status, reply = effect()
        return status, json.loads(JSONRenderer().render(reply))

    status, reply, was_repeated = run_once(
        user_id=user_id, key=key, request_hash=_hash(request), now=now, effect=kept
    )
    return Response(reply, status=status, headers={REPLAYED: "true"} if was_repeated else {})


def _hash(request: Request) -> str:
    """Return what tells this request from another: method, address with query, and content."""
    # Keyed, so that nobody who reads the table can guess a secret that somebody sent.
    told = f"{request.method} {request.get_full_path()}\n"
    digest = hmac.new(settings.SECRET_KEY.encode(), told.encode(), hashlib.sha256)
    for name, value in sorted(_content(request.data).items()):
        if isinstance(value, UploadedFile):
            digest.update(f"{name}:{value.name}:{value.size}\n".encode())
            for part in value.chunks():
                digest.update(part)
            value.seek(0)
        else:
            digest.update(f"{name}:{json.dumps(value, sort_keys=True, default=str)}\n".encode())
    return digest.hexdigest()


def _content(data: Any) -> dict[str, Any]:
    return dict(data.items()) if hasattr(data, "items") else {"": data}
