"""The one WebSocket address, with Django's session behind it."""

from channels.auth import AuthMiddlewareStack
from django.urls import path

from controlplane.live.consumers import LiveConsumer

websocket_urlpatterns = [
    path("ws/live/", AuthMiddlewareStack(LiveConsumer.as_asgi())),
]
