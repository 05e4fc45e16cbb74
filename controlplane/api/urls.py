"""What programs talk to: the REST API, its description, and what machines ask about health."""

from django.urls import include, path, re_path

from controlplane.api import description, errors, health, metrics

urlpatterns = [
    path("healthz", health.live, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("api/v1/schema", description.DescriptionView.as_view(), name="api_schema"),
    path("api/v1/", include("controlplane.api.v1.urls")),
    re_path(r"^api(?:/|$)", errors.not_found),
]
