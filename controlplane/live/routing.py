"""The one WebSocket address; the consumer itself sees to who opens it (`handshake.py`)."""

from django.urls import path

from controlplane.live.consumers import LiveConsumer

websocket_urlpatterns = [
    path("ws/live/", LiveConsumer.as_asgi()),
]
