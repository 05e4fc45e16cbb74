"""The address of the HTTP fallback; the socket's is in routing.py."""

from django.urls import path

from controlplane.live import views

urlpatterns = [path("live/poll", views.poll, name="live_poll")]
