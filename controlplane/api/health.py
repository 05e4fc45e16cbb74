"""What machines ask: does the process live, and can it serve."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@require_safe
@never_cache
def live(request: HttpRequest) -> HttpResponse:
    """Answer at all: the process lives. Nothing else is looked at, so that no fault restarts it."""
    del request
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def ready(request: HttpRequest) -> HttpResponse:
    """Say whether requests can be served: the database answers and has this version's tables.

    Redis is not asked for: without it pages are slower, and work.
    """
    del request
    try:
        executor = MigrationExecutor(connection)
        waiting = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        return JsonResponse(
            {"is_ready": False, "reason": "database_away", "detail": type(error).__name__},
            status=503,
        )
    if waiting:
        return JsonResponse(
            {"is_ready": False, "reason": "migrations_waiting", "migrations": waiting}, status=503
        )
    return JsonResponse({"is_ready": True})
