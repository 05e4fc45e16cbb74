"""Jobs: list, submit (JSON or YAML, native or a Volcano manifest), try dry, change, act on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar
from uuid import UUID

import yaml
from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import errors, etag
from controlplane.api.base import MIB, ApiView
from controlplane.api.choices import choice
from controlplane.api.fields import ActIn, DocumentField, ReasonField, StrictSerializer
from controlplane.api.pagination import limit_of
from controlplane.api.parsers import JsonParser, YamlParser
from controlplane.api.schema import DocumentOut, listing, problems
from controlplane.api.v1.job_output import JobDetailOut, JobOut, hidden_env, reason
from scheduling.domain import jobs
from scheduling.domain.jobs import JobAction
from scheduling.domain.queries import explain
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.submissions import role_rows
from scheduling.engine.explain import Fit, Ladder
from scheduling.engine.types import Reason
from scheduling.models import Job, Role
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, Parsed, read
from scheduling.spec.volcano import to_manifest
from tenants.domain.access import Verb, may, reads
from tenants.domain.errors import DomainError, Invalid, Problem

MOST_JOBS = 10_000
FORMS = ["volcano", "plain"]
"""Of a manifest; the first by default."""


class JobView(ApiView):
    """Base of the views of one job."""

    def load(self, job_id: UUID, verb: Verb = Verb.JOB_READ) -> Job:
        """Return a job that the actor may read by this verb.

        Raises:
            NotFound: there is none.
        """
        return job_queries.load_job(reads(self.actor, verb), job_id)

    def job_reply(self, job_id: UUID, status: int = 200) -> Response:
        """Answer with a job as it is now, with its entity tag."""
        job = self.load(job_id)
        return Response(self.detail(job), status=status, headers={"ETag": etag.tag(job.version)})

    def detail(self, job: Job) -> dict[str, Any]:
        """Write a job in full."""
        context = {
            "may_read_env": may(self.actor, Verb.JOB_READ_ENV, job.unit_id, owner_id=job.owner_id)
        }
        shown = _Shown(job, list(job.roles.order_by("position")))
        return dict(JobDetailOut(shown, context=context).data)

    def accepted(self, job: Job, spec: JobSpec) -> dict[str, Any]:
        """Write a job that this request submitted, without reading back what it has just sent."""
        job.owner = self.user
        shown = _Shown(job, role_rows(job, spec))
        return dict(_ACCEPTED.to_representation(shown))


_ACCEPTED = JobDetailOut(context={"may_read_env": True, "is_new": True})
"""Kept, since its 40 fields take longer to make than to write."""


class _Shown:
    """A job whose `roles` is the list in order, as the serializer wants it."""

    def __init__(self, job: Job, roles: list[Role]) -> None:
        self._job = job
        self.roles = roles

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)


class DryRunOut(serializers.Serializer[Any]):
    """Whether a job is valid, and whether it would start now."""

    valid = serializers.BooleanField()
    fits = serializers.BooleanField(allow_null=True)
    errors = serializers.ListField(child=serializers.DictField())  # type: ignore[assignment]  # DRF takes fields out of the class
    notes = serializers.ListField(child=serializers.DictField())
    fit = serializers.DictField(allow_null=True)


class JobsView(JobView):
    """The list of jobs."""

    parser_classes: Any = (JsonParser, YamlParser)

    @extend_schema(
        operation_id="jobs_list",
        parameters=[
            OpenApiParameter("tab", enum=list(job_queries.TABS)),
            OpenApiParameter("queue", description="A queue's name; those below it included."),
            OpenApiParameter("owner", description="A user name."),
            OpenApiParameter("text", description="Part of the name, or an id."),
            OpenApiParameter("kind"),
        ],
        responses=problems({200: listing(JobOut)}, 422),
    )
    def get(self, request: Request) -> Response:
        """List the jobs that you may see, the newest first."""
        given = request.query_params
        tab = choice(request, "tab", job_queries.TABS, "all")
        where = job_queries.JobFilter(
            tab=tab, **{name: given.get(name, "") for name in ("queue", "owner", "text", "kind")}
        )
        found = job_queries.list_jobs(
            reads(self.actor, Verb.JOB_READ),
            where,
            cursor=given.get("after", ""),
            limit=limit_of(request),
        )
        return self.listed(list(JobOut(found.jobs, many=True).data), found.next_cursor or None)

    @extend_schema(
        operation_id="jobs_create",
        request={"application/json": DocumentOut, "application/yaml": OpenApiTypes.STR},
        parameters=[
            OpenApiParameter(
                "dry_run", bool, description="Only say whether it is valid and whether it fits."
            ),
            OpenApiParameter("code_file_id", OpenApiTypes.UUID, description="Uploaded code."),
        ],
        responses=problems({201: JobDetailOut, 200: DryRunOut}, 403, 409, 413, 415, 422),
    )
    def post(self, request: Request) -> Response:
        """Submit a job: JSON or YAML, the plain representation or a Volcano manifest."""
        parsed = parse_job(request.data)
        if request.query_params.get("dry_run") in {"1", "true"}:
            return Response(self._dry_run(parsed))
        spec = required(parsed)
        code = _uuid(request.query_params.get("code_file_id"), "code_file_id")

        def submit() -> tuple[int, dict[str, Any]]:
            job = jobs.submit_job(
                actor=self.actor,
                spec=spec,
                now=self.now,
                code_file_id=code,
                request_id=self.request_id,
            )
            return 201, self.accepted(job, spec)

        reply = self.once(submit)
        reply["Location"] = f"/api/v1/jobs/{reply.data['id']}"
        return reply

    def _dry_run(self, parsed: Parsed) -> dict[str, Any]:
        problems_found: list[Any] = list(parsed.problems)
        fit = None
        if parsed.spec is not None:
            try:
                jobs.queue_named(actor=self.actor, name=parsed.spec.queue)
                fit = explain.fit(self.actor, parsed.spec, now=self.now)
            except Invalid as error:
                problems_found += error.problems
        return {
            "valid": not problems_found,
            "fits": None if fit is None else fit.fits_now,
            "errors": errors.field_errors(problems_found),
            "notes": errors.field_errors(parsed.notes),
            "fit": None if fit is None else fit_out(fit),
        }


def parse_job(data: Any) -> Parsed:
    """Read one job from a request's body: decoded JSON, or YAML text."""
    if isinstance(data, dict) and isinstance(data.get("yaml"), bytes):
        return read(data["yaml"], form=Format.YAML)
    return read(data, form=Format.JSON)


def required(parsed: Parsed) -> JobSpec:
    """Return the spec.

    Raises:
        Invalid: the document has problems.
    """
    if parsed.spec is None:
        raise Invalid([Problem(one.path, one.code, one.params) for one in parsed.problems])
    return parsed.spec


def _uuid(text: str | None, field: str) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise Invalid([Problem(field, "bad_uuid", {"value": text[:40]})]) from None


def plain(value: Any) -> Any:
    """Write frozen values of the domain as JSON can carry them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(one) for name, one in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return value


class JobPatchIn(StrictSerializer):
    """What of a job can be changed."""

    priority = serializers.IntegerField(min_value=-(2**31), max_value=2**31 - 1, required=False)
    replicas = serializers.DictField(
        child=serializers.IntegerField(min_value=0), required=False, help_text="Role -> number."
    )


class JobDetailView(JobView):
    """One job."""

    @extend_schema(operation_id="jobs_read", responses=problems({200: JobDetailOut}, 404))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show one job."""
        del request
        return self.job_reply(job_id)

    @extend_schema(
        operation_id="jobs_update",
        request=JobPatchIn,
        responses=problems({200: JobDetailOut}, 403, 404, 409, 412, 422),
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """Change replicas and priority, all or nothing; with If-Match only if nobody else did."""
        wanted = self.read(JobPatchIn)
        version = etag.expected_version(request)
        with transaction.atomic():
            changed = self.load(job_id)
            if version is None:
                version = changed.version
            given: dict[str, Any] = {"actor": self.actor, "job_id": job_id, "now": self.now}
            for role, replicas in wanted.get("replicas", {}).items():
                changed = jobs.scale_role(
                    **given, role=role, replicas=replicas, expected_version=version
                )
                version = changed.version
            if "priority" in wanted:
                jobs.change_priority(**given, priority=wanted["priority"], expected_version=version)
        return self.job_reply(job_id)


class JobActionView(JobView):
    """An action on one job."""

    action: JobAction = JobAction.CANCEL

    @extend_schema(request=ActIn, responses=problems({200: JobDetailOut}, 403, 404, 409, 412, 422))
    def post(self, request: Request, job_id: UUID) -> Response:
        """Do it; what runs ends with grace."""
        wanted = self.read(ActIn)

        def act() -> tuple[int, dict[str, Any]]:
            jobs.act(
                self.action,
                actor=self.actor,
                job_id=job_id,
                expected_version=etag.expected_version(request),
                reason=wanted["reason"],
                now=self.now,
            )
            return 200, self.detail(self.load(job_id))

        return self.once(act)


class BatchIn(StrictSerializer):
    """Several jobs, or an action on several."""

    jobs = serializers.ListField(child=DocumentField(), required=False, max_length=MOST_JOBS)
    action = serializers.ChoiceField([one.value for one in JobAction], required=False)
    ids = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=MOST_JOBS)
    whole = serializers.BooleanField(
        default=False, help_text="Submit all the jobs or, if one is refused, none."
    )
    reason = ReasonField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Want either jobs or an action with ids."""
        if ("jobs" in attrs) == ("action" in attrs and "ids" in attrs):
            raise serializers.ValidationError("Give either jobs, or action and ids.", "one_of")
        return attrs


class BatchResultOut(serializers.Serializer[Any]):
    """How one item of a batch ended."""

    index = serializers.IntegerField()
    id = serializers.UUIDField(allow_null=True)
    error = serializers.DictField(allow_null=True)


class BatchOut(serializers.Serializer[Any]):
    """How a batch ended, item by item."""

    done = serializers.IntegerField()
    refused = serializers.IntegerField()
    results = BatchResultOut(many=True)


class JobBatchView(JobView):
    """Many jobs at once."""

    largest_body: ClassVar[int] = 5 * MIB

    @extend_schema(
        operation_id="jobs_batch",
        request=BatchIn,
        responses=problems({200: BatchOut}, 403, 413, 422),
    )
    def post(self, request: Request) -> Response:
        """Submit many jobs, or act on many; each by itself, and the reply says how it ended."""
        del request
        wanted = self.read(BatchIn)

        def run() -> tuple[int, dict[str, Any]]:
            results = self._submit(wanted) if "jobs" in wanted else self._act(wanted)
            done = sum(one["error"] is None for one in results)
            return 200, {"done": done, "refused": len(results) - done, "results": results}

        return self.once(run)

    def _submit(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        submitted = jobs.submit_many(
            actor=self.actor,
            specs=[_spec_or_error(document) for document in wanted["jobs"]],
            now=self.now,
            request_id=self.request_id,
            is_whole=wanted["whole"],
        )
        return [
            {"index": index, "id": None, "error": errors.document_of(one)}
            if isinstance(one, DomainError)
            else {"index": index, "id": str(one.id), "error": None}
            for index, one in enumerate(submitted)
        ]

    def _act(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        results = jobs.bulk(
            actor=self.actor,
            action=JobAction(wanted["action"]),
            job_ids=wanted["ids"],
            now=self.now,
            reason=wanted["reason"],
        )
        return [
            {
                "index": index,
                "id": str(one.job_id),
                "error": errors.document_of(one.error) if one.error else None,
            }
            for index, one in enumerate(results)
        ]


def _spec_or_error(document: dict[str, Any]) -> JobSpec | DomainError:
    try:
        return required(read(document, form=Format.JSON))
    except DomainError as error:
        return error


class JobManifestView(JobView):
    """A job as a manifest."""

    @extend_schema(
        operation_id="jobs_manifest",
        parameters=[OpenApiParameter("form", enum=FORMS)],
        responses=problems({(200, "application/yaml"): OpenApiTypes.STR}, 404, 422),
    )
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """Write a job as YAML: a Volcano manifest, or the plain representation."""
        job = self.load(job_id)
        spec = job.spec
        if not may(self.actor, Verb.JOB_READ_ENV, job.unit_id, owner_id=job.owner_id):
            spec = hidden_env(spec)
        document: object = spec
        if choice(request, "form", FORMS, FORMS[0]) != "plain":
            document = to_manifest(JobSpec.model_validate(spec))
        # By JSON: YAML's safe writer does not take enumerations for the text that they are.
        text = yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, allow_unicode=True)
        return HttpResponse(text, content_type="application/yaml")


class JobExplainView(JobView):
    """Why a job waits."""

    @extend_schema(operation_id="jobs_explain", responses=problems({200: DocumentOut}, 404))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Walk the ladder of reasons on the live state; the first rung that fails is the answer."""
        del request
        job = self.load(job_id)
        why = explain.explain_job(self.actor, job, now=self.now)
        document: dict[str, Any] = {"phase": job.phase, "is_waiting": why.ladder is not None}
        if why.ladder is not None:
            changes = [reason(explain.code_of(one), plain(one.params)) for one in why.changes]
            document |= {**ladder_out(why.ladder), "changes": changes}
        return Response(document)


def ladder_out(ladder: Ladder) -> dict[str, Any]:
    """Write the ladder: its headline and each rung with numbers and words."""
    return {
        "headline": _reason_out(ladder.headline),
        "starts": ladder.starts,
        "rungs": [
            {
                "name": rung.name,
                "state": rung.state.value,
                "reason": _reason_out(rung.reason),
                "facts": plain(rung.facts),
            }
            for rung in ladder.rungs
        ],
    }


def fit_out(fit: Fit) -> dict[str, Any]:
    """Write whether a job would start now; of the places only how many tasks each node gets."""
    nodes = Counter(bind.node for bind in fit.binds)
    return {
        "fits_now": fit.fits_now,
        "waits_for_evictions": fit.waits_for_evictions,
        "tasks_by_node": dict(sorted(nodes.items())),
        **ladder_out(fit.ladder),
    }


def _reason_out(why: Reason | None) -> dict[str, Any] | None:
    return reason(str(why.code), plain(why.params)) if why else None
