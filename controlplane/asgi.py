"""The web program: pages and API by Django, live updates by Channels, in one ASGI application."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django_application = get_asgi_application()

from controlplane.live.routing import websocket_urlpatterns  # noqa: E402 -- models first

application = ProtocolTypeRouter(
    {
        "http": django_application,
        # Browsers send cookies along with any page's socket; only our own pages may open one.
        "websocket": OriginValidator(URLRouter(websocket_urlpatterns), settings.WEBSOCKET_ORIGINS),
    },
)
