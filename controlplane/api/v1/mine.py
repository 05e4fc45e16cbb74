"""What people arrange for themselves: saved views, notifications, job templates."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

import yaml
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.fields import StrictSerializer
from controlplane.api.parsers import JsonParser, YamlParser
from controlplane.api.schema import DocumentOut, problems, whole_list
from controlplane.api.v1.jobs import parse_job, required
from controlplane.api.v1.me import require_person
from scheduling.domain import job_templates
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.queries.notifications import notifications
from tenants.domain import access, personal
from tenants.domain.access import Verb
from tenants.models import SavedView

JOBS = "jobs"
IN_THE_ADDRESS = {
    "tab": "state",
    "text": "q",
    "queue": "queue",
    "owner": "user",
    "kind": "kind",
    "group": "group",
}
"""Filter of `GET /jobs` -> its name in the address of the page."""


class MineView(ApiView):
    """Base of the views of one's own things; a token needs the verb of what they are about."""

    def require_verb(self, verb: Verb) -> None:
        """Return if the token that asks, if one does, has the verb.

        Raises:
            Denied: it has not.
        """
        if not self.actor.has_verb(verb):
            raise access.refusal(self.actor, verb, None)


# --- saved views of the list of jobs --------------------------------------------------------------


class FiltersField(serializers.Serializer[Any]):
    """What the list is narrowed to, as `GET /jobs` takes it, and how the page groups it."""

    tab = serializers.ChoiceField(choices=list(job_queries.TABS), required=False)
    text = serializers.CharField(max_length=100, required=False)
    queue = serializers.CharField(max_length=253, required=False)
    owner = serializers.CharField(max_length=150, required=False, help_text="`me`: you.")
    kind = serializers.CharField(max_length=40, required=False)
    group = serializers.CharField(max_length=20, required=False, help_text="Of the page alone.")


class FiltersIn(StrictSerializer, FiltersField):
    """The same, with what is not known refused."""


class SavedViewOut(serializers.Serializer[Any]):
    """A list's filters under a name: a tab that only you see."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    filters = FiltersField()
    created_at = serializers.DateTimeField()


class SavedViewIn(StrictSerializer):
    """Filters to keep under a name."""

    name = serializers.CharField(max_length=personal.LONGEST_NAME)
    filters = FiltersIn()


class SavedViewsView(MineView):
    """Your saved views of the list of jobs."""

    @extend_schema(
        operation_id="me_views_list", responses=problems({200: whole_list(SavedViewOut)}, 403)
    )
    def get(self, request: Request) -> Response:
        """List your saved views by name."""
        del request
        self.require_verb(Verb.JOB_READ)
        return Response({"items": [_view_out(v) for v in personal.saved_views(self.actor, JOBS)]})

    @extend_schema(
        operation_id="me_views_save",
        request=SavedViewIn,
        responses=problems({201: SavedViewOut}, 403, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Keep filters under a name; your view of the same name is replaced."""
        del request
        self.require_verb(Verb.JOB_READ)
        wanted = self.read(SavedViewIn)
        query = urlencode(
            {
                address: wanted["filters"][name]
                for name, address in IN_THE_ADDRESS.items()
                if wanted["filters"].get(name) and (name, wanted["filters"][name]) != ("tab", "all")
            }
        )

        def save() -> tuple[int, dict[str, Any]]:
            view = personal.save_view(
                actor=self.actor, page=JOBS, name=wanted["name"], query=query, now=self.now
            )
            return 201, _view_out(view)

        return self.once(save)


class SavedViewView(MineView):
    """One of your saved views."""

    @extend_schema(operation_id="me_views_delete", responses=problems({204: None}, 403, 404))
    def delete(self, request: Request, view_id: UUID) -> Response:
        """Forget a saved view."""
        del request
        self.require_verb(Verb.JOB_READ)
        personal.delete_view(actor=self.actor, view_id=view_id)
        return Response(status=204)


def _view_out(view: SavedView) -> dict[str, Any]:
    given = dict(parse_qsl(view.query))
    filters = {name: given[address] for name, address in IN_THE_ADDRESS.items() if address in given}
    row = {"id": view.id, "name": view.name, "filters": filters, "created_at": view.created_at}
    return dict(SavedViewOut(row).data)


# --- notifications --------------------------------------------------------------------------------


class NotificationOut(serializers.Serializer[Any]):
    """What happened to one of your jobs: it ended, or a task of it lost its place."""

    job_id = serializers.UUIDField(source="job.id")
    job_name = serializers.CharField(source="job.name")
    queue = serializers.CharField(source="job.queue.name")
    at = serializers.DateTimeField()
    state = serializers.CharField(help_text="The phase in which it ended, or Evicted.")
    role = serializers.CharField(help_text="Of the evicted task; empty: it is about the job.")
    index = serializers.IntegerField()
    is_unread = serializers.BooleanField()


class NotificationsView(MineView):
    """What happened to your jobs."""

    @extend_schema(
        operation_id="me_notifications", responses=problems({200: whole_list(NotificationOut)})
    )
    def get(self, request: Request) -> Response:
        """List what happened in the last 14 days and you want to be told, the newest 50 first."""
        del request
        choice = personal.notification_choice(self.actor)
        found = notifications(self.actor, choice, now=self.now)
        return Response({"items": NotificationOut(found, many=True).data})


class NotificationChoiceOut(serializers.Serializer[Any]):
    """Of which events you are told, and up to when you have read."""

    wants_ended = serializers.BooleanField()
    wants_failed = serializers.BooleanField()
    wants_preempted = serializers.BooleanField()
    read_at = serializers.DateTimeField(allow_null=True)


class NotificationChoiceIn(StrictSerializer):
    """Of which events you want to be told; what is not named stays."""

    wants_ended = serializers.BooleanField(required=False)
    wants_failed = serializers.BooleanField(required=False)
    wants_preempted = serializers.BooleanField(required=False)


class NotificationChoiceView(MineView):
    """Of which events you are told."""

    @extend_schema(
        operation_id="me_notification_choice", responses=problems({200: NotificationChoiceOut})
    )
    def get(self, request: Request) -> Response:
        """Show what you are told; all of it, as long as you chose nothing."""
        del request
        return self._reply()

    @extend_schema(
        operation_id="me_notification_choose",
        request=NotificationChoiceIn,
        responses=problems({200: NotificationChoiceOut}, 403, 422),
    )
    def patch(self, request: Request) -> Response:
        """Choose what you are told; not by token, as all your preferences."""
        del request
        require_person(self.actor)
        now = NotificationChoiceOut(personal.notification_choice(self.actor)).data
        wanted = {**now, **self.read(NotificationChoiceIn)}
        personal.choose_notifications(
            actor=self.actor,
            wants_ended=wanted["wants_ended"],
            wants_failed=wanted["wants_failed"],
            wants_preempted=wanted["wants_preempted"],
        )
        return self._reply()

    def _reply(self) -> Response:
        return Response(NotificationChoiceOut(personal.notification_choice(self.actor)).data)


class NotificationsReadIn(StrictSerializer):
    """Up to when you have read."""

    until = serializers.DateTimeField(required=False, help_text="Now, if it is not given.")


class NotificationsReadView(MineView):
    """What you have read."""

    @extend_schema(
        operation_id="me_notifications_read",
        request=NotificationsReadIn,
        responses=problems({204: None}, 403, 422),
    )
    def post(self, request: Request) -> Response:
        """Count all that happened up to a moment as read; it never goes back, nor beyond now."""
        del request
        require_person(self.actor)
        until = self.read(NotificationsReadIn).get("until", self.now)
        personal.mark_read(actor=self.actor, until=min(until, self.now))
        return Response(status=204)


# --- job templates --------------------------------------------------------------------------------


class TemplateOut(serializers.Serializer[Any]):
    """A job that you keep to submit it again; only you see it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()


class TemplateDetailOut(TemplateOut):
    """A template with its job."""

    text = serializers.CharField(help_text="YAML, which `POST /jobs` takes as it is.")


class TemplatesView(MineView):
    """Your job templates."""

    parser_classes: Any = (JsonParser, YamlParser)

    @extend_schema(
        operation_id="templates_list", responses=problems({200: whole_list(TemplateOut)}, 403)
    )
    def get(self, request: Request) -> Response:
        """List your templates by name."""
        del request
        self.require_verb(Verb.JOB_READ)
        found = job_templates.job_templates(self.actor)
        return Response({"items": TemplateOut(found, many=True).data})

    @extend_schema(
        operation_id="templates_save",
        request={"application/json": DocumentOut, "application/yaml": OpenApiTypes.STR},
        responses=problems({201: TemplateDetailOut}, 403, 409, 413, 415, 422),
    )
    def post(self, request: Request) -> Response:
        """Keep a job under its name, as `POST /jobs` takes it; one of the same name is replaced."""
        self.require_verb(Verb.JOB_CREATE)
        spec = required(parse_job(request.data))
        text = _text_of(request.data)

        def save() -> tuple[int, dict[str, Any]]:
            kept = job_templates.save_template(actor=self.actor, spec=spec, text=text, now=self.now)
            return 201, dict(TemplateDetailOut(kept).data)

        return self.once(save)


class TemplateView(MineView):
    """One of your job templates."""

    @extend_schema(
        operation_id="templates_read", responses=problems({200: TemplateDetailOut}, 403, 404)
    )
    def get(self, request: Request, template_id: UUID) -> Response:
        """Show a template with its job."""
        del request
        self.require_verb(Verb.JOB_READ)
        found = job_templates.load_template(self.actor, template_id)
        return Response(TemplateDetailOut(found).data)

    @extend_schema(operation_id="templates_delete", responses=problems({204: None}, 403, 404))
    def delete(self, request: Request, template_id: UUID) -> Response:
        """Forget a template; jobs made of it stay."""
        del request
        self.require_verb(Verb.JOB_CREATE)
        job_templates.delete_template(actor=self.actor, template_id=template_id)
        return Response(status=204)


def _text_of(data: Any) -> str:
    """Return the YAML of a job's document that was read without a problem."""
    if isinstance(data.get("yaml"), bytes):
        return str(data["yaml"].decode())
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
