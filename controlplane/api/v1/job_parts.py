"""What belongs to a job: tasks, attempts, history, logs, metrics, usage, files."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.core.files.base import File
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import pagination
from controlplane.api.base import ApiView
from controlplane.api.choices import choice
from controlplane.api.fields import StrictSerializer
from controlplane.api.schema import listing, problems
from controlplane.api.v1.job_output import AttemptOut, FileOut, HistoryOut, TaskOut, WaitOut
from controlplane.api.v1.jobs import JobView
from scheduling.domain import files, logs
from scheduling.domain.jobs import queue_named
from scheduling.domain.queries.redaction import redact_rows
from scheduling.domain.queries.waits import with_ends
from scheduling.models import Attempt, Job, MetricSample, Usage
from tenants.domain.access import Verb, reads
from tenants.domain.errors import Invalid, NotFound, Problem

LOG_BYTES = 65_536
PURPOSES = ["code", "output"]
UPLOAD_BYTES = files.LARGEST_UPLOAD + 64 * 1024


class TasksView(JobView):
    """The tasks of a job."""

    @extend_schema(
        operation_id="job_tasks",
        parameters=[OpenApiParameter("role"), OpenApiParameter("state")],
        responses=problems({200: listing(TaskOut)}, 404, 422),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List tasks by role and index."""
        job = self.load(job_id)
        tasks = job.tasks.select_related("role", "node")
        for name, lookup in (("role", "role__name"), ("state", "state")):
            if value := request.query_params.get(name):
                tasks = tasks.filter(**{lookup: value})
        items, after = pagination.page(tasks, ("role_id", "index"), request)
        redact_rows(reads(self.actor, Verb.JOB_READ), items, own_queues={job.queue.name})
        return self.listed(list(TaskOut(items, many=True).data), after)


class AttemptsView(JobView):
    """The attempts of a job."""

    @extend_schema(
        operation_id="job_attempts",
        parameters=[OpenApiParameter("role"), OpenApiParameter("index", int)],
        responses=problems({200: listing(AttemptOut)}, 404, 422),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List attempts, the newest first."""
        attempts = self.load(job_id).attempts.select_related("task__role", "node")
        if role := request.query_params.get("role"):
            attempts = attempts.filter(task__role__name=role)
        if index := request.query_params.get("index"):
            attempts = attempts.filter(task__index=pagination.number_of("index", index))
        items, after = pagination.page(attempts, ("-bound_at", "-id"), request)
        return self.listed(list(AttemptOut(items, many=True).data), after)


class HistoryView(JobView):
    """The history of a job."""

    @extend_schema(
        operation_id="job_history",
        parameters=[OpenApiParameter("after_seq", int, description="Only what came later.")],
        responses=problems({200: listing(HistoryOut)}, 404, 422),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List transitions in their order."""
        job = self.load(job_id, Verb.JOB_EVENTS)
        rows = job.history.select_related("task__role")
        if seq := request.query_params.get("after_seq"):
            rows = rows.filter(seq__gt=pagination.number_of("after_seq", seq))
        items, after = pagination.page(rows, ("seq",), request)
        redact_rows(reads(self.actor, Verb.JOB_READ), items, own_queues={job.queue.name})
        return self.listed(list(HistoryOut(items, many=True).data), after)


class WaitsView(JobView):
    """Why a job waited, at which time."""

    @extend_schema(operation_id="job_waits", responses=problems({200: listing(WaitOut)}, 404, 422))
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the reasons of the past, the newest first: at most one a minute is kept."""
        job = self.load(job_id)
        rows, after = pagination.page(job.past_reasons.all(), ("-minute",), request)
        waits = with_ends(reads(self.actor, Verb.JOB_READ), job, rows)
        return self.listed(list(WaitOut(waits, many=True).data), after)


class LogsView(JobView):
    """What a task wrote."""

    @extend_schema(
        operation_id="job_logs",
        parameters=[
            OpenApiParameter("role", description="By default the first role."),
            OpenApiParameter("index", int),
            OpenApiParameter("attempt", int, description="Its number; by default the newest."),
            OpenApiParameter("stream", enum=list(logs.STREAMS)),
            OpenApiParameter("offset", int, description="In bytes; negative: from the end."),
            OpenApiParameter("length", int, description="At most 1 MiB."),
            OpenApiParameter("download", bool, description="All of it, as a file."),
            OpenApiParameter("search", description="Only the lines with this text, as JSON."),
        ],
        responses=problems(
            {(200, "application/octet-stream"): OpenApiTypes.BINARY}, 403, 404, 410, 422
        ),
    )
    def get(
        self, request: Request, job_id: UUID
    ) -> Response | HttpResponse | StreamingHttpResponse:
        """Return bytes as they were written; headers say where they stand in the stream."""
        job = self.load(job_id)
        logs.require_logs(self.actor, job)
        given = request.query_params
        stream = choice(request, "stream", logs.STREAMS, logs.STREAMS[0])
        attempt = _attempt(job, request)
        if given.get("download") in {"1", "true"}:
            name = f"{job.name}-{attempt.task.role.name}-{attempt.task.index}.{stream}.log"
            return _attachment(logs.download(attempt=attempt, stream=stream), name)
        if text := given.get("search"):
            hits = logs.search(attempt=attempt, stream=stream, text=text)
            return Response(
                {"lines": [{"offset": h.offset, "number": h.number, "line": h.line} for h in hits]}
            )
        part = logs.read_log(
            attempt=attempt,
            stream=stream,
            offset=pagination.number_of("offset", given.get("offset") or "0", least=-(2**53)),
            length=pagination.number_of("length", given.get("length") or str(LOG_BYTES), least=1),
        )
        return HttpResponse(
            part.data,
            content_type="application/octet-stream",
            headers={
                "Log-Attempt": str(attempt.id),
                "Log-Offset": str(part.offset),
                "Log-Size": str(part.size),
                "Log-Final": "true" if part.is_final else "false",
            },
        )


def _attempt(job: Job, request: Request) -> Attempt:
    """Return the attempt that the query names: the newest of the first task by default.

    Raises:
        NotFound: there is none yet.
    """
    given = request.query_params
    attempts = job.attempts.select_related("task__role")
    if role := given.get("role"):
        attempts = attempts.filter(task__role__name=role)
    attempts = attempts.filter(task__index=pagination.number_of("index", given.get("index") or "0"))
    if number := given.get("attempt"):
        attempts = attempts.filter(number=pagination.number_of("attempt", number))
    found = attempts.order_by("task__role__position", "-number").first()
    if found is None:
        raise NotFound("attempt")
    return found


class MetricOut(serializers.Serializer[Any]):
    """One line of metrics that a task wrote."""

    id = serializers.IntegerField()
    attempt_id = serializers.UUIDField()
    line = serializers.IntegerField()
    at = serializers.DateTimeField()
    values = serializers.JSONField()


class MetricsView(JobView):
    """A job's own metrics."""

    @extend_schema(
        operation_id="job_metrics", responses=problems({200: listing(MetricOut)}, 404, 422)
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List what the tasks reported (loss, accuracy, step), in order."""
        samples = MetricSample.objects.filter(job=self.load(job_id, Verb.JOB_METRICS))
        items, after = pagination.page(samples, ("id",), request)
        return self.listed(list(MetricOut(items, many=True).data), after)


class UsageOut(serializers.Serializer[Any]):
    """One measurement of an attempt; null means not measured, never zero."""

    attempt_id = serializers.UUIDField()
    at = serializers.DateTimeField()
    device_uuid = serializers.CharField()
    cpu_milli = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    gpu_percent = serializers.FloatField(allow_null=True)
    gpu_memory_bytes = serializers.IntegerField(allow_null=True)


class UsageView(JobView):
    """What a job used."""

    @extend_schema(operation_id="job_usage", responses=problems({200: listing(UsageOut)}, 404, 422))
    def get(self, request: Request, job_id: UUID) -> Response:
        """List measurements of the job's attempts, in order."""
        job = self.load(job_id, Verb.JOB_METRICS)
        samples = Usage.objects.filter(attempt__in=job.attempts.values("id"))
        items, after = pagination.page(samples, ("at", "id"), request)
        return self.listed(list(UsageOut(items, many=True).data), after)


class JobFilesView(JobView):
    """The files of a job."""

    @extend_schema(
        operation_id="job_files",
        parameters=[OpenApiParameter("purpose", enum=PURPOSES)],
        responses=problems({200: listing(FileOut)}, 403, 404, 422),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List uploaded code and outputs, by path."""
        job = self.load(job_id)
        logs.require_logs(self.actor, job)
        found = job.files.all()
        if purpose := choice(request, "purpose", PURPOSES):
            found = found.filter(purpose=purpose)
        items, after = pagination.page(found, ("path", "id"), request)
        return self.listed(list(FileOut(items, many=True).data), after)


class JobFileView(JobView):
    """One file of a job."""

    @extend_schema(
        operation_id="job_file",
        responses=problems({(200, "application/octet-stream"): OpenApiTypes.BINARY}, 403, 404, 410),
    )
    def get(self, request: Request, job_id: UUID, file_id: UUID) -> StreamingHttpResponse:
        """Download a file."""
        del request
        job = self.load(job_id)
        logs.require_logs(self.actor, job)
        found = job.files.filter(id=file_id).first()
        if found is None:
            raise NotFound("file")
        reply = _attachment(files.read(found), found.path.rsplit("/", 1)[-1])
        reply["Content-Length"] = str(found.size_bytes)
        return reply


class UploadIn(StrictSerializer):
    """A file or archive of code."""

    queue = serializers.CharField(help_text="The queue of the job that will use it.")
    path = serializers.CharField(max_length=500)
    file = serializers.FileField(allow_empty_file=True)


class UploadsView(ApiView):
    """Code that is uploaded before its job is submitted."""

    parser_classes: Any = (MultiPartParser,)
    largest_body: ClassVar[int] = UPLOAD_BYTES

    @extend_schema(
        operation_id="files_upload",
        request={"multipart/form-data": UploadIn},
        responses=problems({201: FileOut}, 403, 404, 413, 415, 422),
    )
    def post(self, request: Request) -> Response:
        """Upload code; submit the job with `?code_file_id=` then."""
        del request
        wanted = self.read(UploadIn)
        queue = queue_named(actor=self.actor, name=wanted["queue"])
        content: File[bytes] = wanted["file"]
        if queue.unit_id is None:
            raise Invalid(
                [Problem("queue", "queue_not_leaf", {"queue": queue.name, "children": 1})]
            )
        unit_id = queue.unit_id

        def store() -> tuple[int, dict[str, Any]]:
            kept = files.store_upload(
                actor=self.actor,
                unit_id=unit_id,
                path=wanted["path"],
                content=content,
                now=self.now,
            )
            return 201, dict(FileOut(kept).data)

        return self.once(store)


def _attachment(parts: Any, name: str) -> StreamingHttpResponse:
    reply = StreamingHttpResponse(parts, content_type="application/octet-stream")
    disposition = content_disposition_header(as_attachment=True, filename=name)
    if disposition:
        reply["Content-Disposition"] = disposition
    return reply
