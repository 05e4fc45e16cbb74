"""Parameters of an address that are one of a few words."""

from __future__ import annotations

from collections.abc import Iterable

from rest_framework.request import Request

from tenants.domain.errors import Invalid, Problem


def choice(request: Request, name: str, allowed: Iterable[str], default: str = "") -> str:
    """Return what the address gives for a parameter, or the default.

    Raises:
        Invalid: it is none of those that are allowed.
    """
    given: str = request.query_params.get(name) or default
    words = [str(one) for one in allowed]
    if given and given not in words:
        params = {"value": given[:40], "allowed": ", ".join(words)}
        raise Invalid([Problem(name, "invalid_choice", params)])
    return given
