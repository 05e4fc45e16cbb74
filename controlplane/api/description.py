"""The OpenAPI document as it is served: worked out once, since it is the same for everybody."""

from __future__ import annotations

from functools import cache

from django.http import HttpResponse
from django.utils.encoding import force_bytes
from django.utils.translation import get_language
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


@cache
def _text(renderer: type[BaseRenderer], language: str | None) -> bytes:
    """Return the document, whose words are in the language in force: most of a second of work."""
    del language
    document = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]  # untyped there
    return force_bytes(renderer().render(document, renderer_context={}))


class DescriptionView(SpectacularAPIView):
    """The description of the API, as YAML or JSON."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Answer with what was kept."""
        renderer = request.accepted_renderer
        return HttpResponse(
            _text(type(renderer), get_language()),  # type: ignore[arg-type]  # a class has a hash
            content_type=f"{renderer.media_type}; charset=utf-8",
            headers={"Content-Disposition": f'inline; filename="Terrace.{renderer.format}"'},
        )
