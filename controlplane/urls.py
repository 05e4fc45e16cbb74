"""All routes: pages, API, sign-in, and what machines ask about health."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("controlplane.live.urls")),
    path("", include("controlplane.api.urls")),
    path("accounts/", include("allauth.urls")),
    path("", include("controlplane.pages.urls")),
]

handler400 = "controlplane.pages.failed.bad_request"
handler500 = "controlplane.pages.failed.server_error"
