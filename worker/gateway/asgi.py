"""The gateway as an ASGI application: `uvicorn worker.gateway.asgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from worker.gateway.application import Gateway  # noqa: E402 - models need a set-up Django

application = Gateway()
