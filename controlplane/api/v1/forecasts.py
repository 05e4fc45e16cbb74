"""How often forecasts of starts came true."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.schema import problems
from scheduling.domain.queries import forecasts
from scheduling.models import Cluster
from tenants.domain.access import Verb, require
from tenants.domain.errors import NotFound


class CalibrationOut(serializers.Serializer[Any]):
    """What came true of the newest forecasts of the jobs that you may see."""

    count = serializers.IntegerField(
        help_text=f"The newest forecasts whose second time has passed, {forecasts.LATELY} at most."
    )
    by_p50 = serializers.IntegerField(
        help_text="Jobs of these that had started by p50; half are meant to."
    )
    by_p90 = serializers.IntegerField(help_text="By p90; nine in ten are meant to.")


class CalibrationView(ApiView):
    """The forecasts of one cluster beside what came true."""

    @extend_schema(
        operation_id="forecasts_calibration", responses=problems({200: CalibrationOut}, 404)
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Count how many jobs had started by the times that were foretold."""
        del request
        require(self.actor, Verb.CLUSTER_READ, None, what="cluster")
        if not Cluster.objects.filter(id=cluster_id).exists():
            raise NotFound("cluster")
        found = forecasts.lately(self.actor, cluster_id=cluster_id, now=self.now)
        return Response(CalibrationOut(found).data)
