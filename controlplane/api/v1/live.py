"""Tickets with which programs open the live socket that pages use."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.schema import problems
from tenants.domain import socket_tickets

SOCKET = "/ws/live/"


class TicketOut(serializers.Serializer[Any]):
    """A ticket and the address to use it at."""

    url = serializers.CharField(help_text="The socket's address with the ticket; good once.")
    expires_at = serializers.DateTimeField()


class LiveTicketsView(ApiView):
    """One-use tickets."""

    @extend_schema(
        operation_id="live_tickets_create",
        request=None,
        responses=problems({201: TicketOut}, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a ticket of the token that asks: it opens one socket within 30 s."""
        del request
        secret, until = socket_tickets.make(actor=self.actor, now=self.now)
        address = settings.PUBLIC_URL.replace("http", "ws", 1) + f"{SOCKET}?ticket={secret}"
        return Response(TicketOut({"url": address, "expires_at": until}).data, status=201)
