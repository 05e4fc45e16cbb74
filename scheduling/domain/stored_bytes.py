"""Bytes behind the storage API that a row names, and the refusal where the store has lost them."""

from __future__ import annotations

from django.core.files.base import File
from django.core.files.storage import default_storage

from tenants.domain.errors import Gone


def open_stored(name: str, *, shown_as: str) -> File[bytes]:
    """Open what a row names; `shown_as` is how its reader knows it.

    Raises:
        Gone: the store has no such object, although the row is there.
    """
    try:
        return default_storage.open(name, "rb")
    except FileNotFoundError as error:
        raise Gone("stored_bytes_gone", {"path": shown_as}) from error


def require_stored(name: str, *, shown_as: str) -> None:
    """Return if the store has what a row names.

    Raises:
        Gone: it has not.
    """
    if not default_storage.exists(name):
        raise Gone("stored_bytes_gone", {"path": shown_as})
