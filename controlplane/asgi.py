"""The web program: pages and API by Django, live updates by Channels, in one ASGI application."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter

from controlplane.handler import get_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django_application = get_application()

from controlplane.live.routing import websocket_urlpatterns  # noqa: E402 -- models first

application = ProtocolTypeRouter(
    {
        "http": django_application,
        "websocket": URLRouter(websocket_urlpatterns),
    },
)
