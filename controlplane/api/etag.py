"""Versions of things as entity tags: who changes one says which version was seen."""

from __future__ import annotations

import re

from rest_framework.exceptions import APIException
from rest_framework.request import Request

from tenants.domain.errors import Invalid, Problem

_TAG = re.compile(r'(?:W/)?"v(\d{1,18})"')


class PreconditionRequired(APIException):
    """428: the change needs If-Match, so that nobody overwrites what they did not see."""

    status_code = 428
    default_detail = 'Send If-Match with the ETag that you read, such as If-Match: "v7".'
    default_code = "if_match_required"


def tag(version: int) -> str:
    """Return the entity tag of a version."""
    return f'"v{version}"'


def expected_version(request: Request) -> int | None:
    """Return the version that If-Match names, None without one.

    Raises:
        Invalid: it is not a tag of ours.
    """
    text = request.headers.get("If-Match")
    if text is None:
        return None
    match = _TAG.fullmatch(text.strip())
    if match is None:
        raise Invalid([Problem("If-Match", "bad_etag", {"value": text[:40]})])
    return int(match[1])


def required_version(request: Request) -> int:
    """Return the version that If-Match names.

    Raises:
        PreconditionRequired: there is none.
        Invalid: it is not a tag of ours.
    """
    version = expected_version(request)
    if version is None:
        raise PreconditionRequired
    return version
