"""A new job: by form or by YAML, judged by one validation, with the fit panel beside it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any
from uuid import UUID

import yaml
from django.contrib import messages
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST

from controlplane.forms import job_labels
from controlplane.forms import jobs as forms
from controlplane.forms.jobs import JobForm
from controlplane.forms.policy_order import ordered_policies
from controlplane.forms.yaml_lines import line_of
from controlplane.pages.frame import PageRequest, id_of, now, page, render_page
from controlplane.pages.job_remedies import with_change
from scheduling.domain import files, job_templates, jobs
from scheduling.domain.queries import explain, forecasts
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queries.efficiency import GPU, efficiency
from scheduling.domain.queries.quotas import quotas_of_queue
from scheduling.domain.wording import sentence
from scheduling.models import ImageRule, Job, Node
from scheduling.spec import job_plugins
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, Parsed, read
from scheduling.spec.problems import Note
from scheduling.spec.problems import Problem as SpecProblem
from scheduling.spec.volcano import to_manifest
from tenants.domain.access import Verb, may
from tenants.domain.errors import Conflict, Denied, Invalid, Problem

MODES = ("form", "yaml")
SPOOL_BYTES = 8 * 1024 * 1024
UNFINISHED = frozenset({"required", "no_task", "nothing_to_run", "empty_document"})
"""Problems of a job that is not written yet, rather than written wrongly."""
EDITOR_PHRASES = (
    gettext_noop("Find"),
    gettext_noop("Replace"),
    gettext_noop("next"),
    gettext_noop("previous"),
    gettext_noop("all"),
    gettext_noop("match case"),
    gettext_noop("by word"),
    gettext_noop("regexp"),
    gettext_noop("replace"),
    gettext_noop("replace all"),
    gettext_noop("close"),
    gettext_noop("Go to line"),
    gettext_noop("Control character"),
    gettext_noop("Selection deleted"),
    gettext_noop("Fold line"),
    gettext_noop("Unfold line"),
    gettext_noop("folded code"),
)
"""Words that the editor itself shows, by its own English."""


@page
def new(request: PageRequest) -> HttpResponse:
    """Show the form; on POST switch between form and YAML, or submit."""
    if request.method != "POST":
        if template := request.GET.get("template"):
            return _from_template(request, template)
        queue = request.GET.get("queue", "")
        return _show(request, forms.empty_form(queue=queue), mode=_mode(request.GET.get("as")))
    if request.POST.get("mode") == "yaml":
        return _posted_yaml(request)
    return _posted_form(request)


def _from_template(request: PageRequest, template_id: str) -> HttpResponse:
    """Show the form as a kept job fills it; what the text no longer is goes to the editor."""
    template = job_templates.load_template(request.actor, id_of(template_id, "template"))
    parsed = read(template.text, form=Format.YAML)
    if parsed.spec is None or request.GET.get("as") == "yaml":
        problems = [_shown(one, line=line_of(template.text, one)) for one in parsed.problems]
        return _show(request, None, mode="yaml", text=template.text, problems=problems)
    return _show(request, forms.form_from_spec(parsed.spec, is_manifest=parsed.is_manifest))


@page
def clone(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show the form filled with the spec of a job; its name gets a new number."""
    job = job_queries.load_job(request.actor, job_id)
    spec = jobs.clone_spec(job)
    if not may(request.actor, Verb.JOB_READ_ENV, job.unit_id, owner_id=job.owner_id):
        roles = tuple(role.model_copy(update={"env": {}}) for role in spec.roles)
        spec = spec.model_copy(update={"roles": roles})
        messages.warning(
            request, _("The values of its variables are not yours to see; they are left out.")
        )
    if request.GET.get("suggested"):
        spec = _with_suggested(spec, job)
    if (changed := with_change(spec, request.GET.dict())) != spec:
        spec = changed
        text = _("One thing is changed in this copy. “%(name)s” goes on waiting; cancel it then.")
        messages.info(request, text % {"name": job.name})
    spec = spec.model_copy(update={"name": _next_name(spec.name)})
    if request.GET.get("as") == "yaml":
        return _show(request, None, mode="yaml", text=_yaml_of(spec, is_manifest=False))
    return _show(request, forms.form_from_spec(spec))


SPEC_FIELDS = {"cpu": "cpu_milli", "memory": "memory_bytes", GPU: "gpu_milli"}


def _with_suggested(spec: JobSpec, job: Job) -> JobSpec:
    """Ask for what the last run shows to be enough."""
    wanted: dict[str, dict[str, int]] = {}
    for one in efficiency(job):
        if one.suggested is not None:
            wanted.setdefault(one.role, {})[SPEC_FIELDS[one.resource]] = one.suggested
    roles = tuple(role.model_copy(update=wanted.get(role.name, {})) for role in spec.roles)
    return spec.model_copy(update={"roles": roles})


def _next_name(name: str) -> str:
    """Return the name with its number raised: train -> train-2 -> train-3."""
    base, _dash, number = name.rpartition("-")
    if base and number.isdecimal():
        return f"{base}-{int(number) + 1}"
    return f"{name[:60]}-2"


def _mode(text: str | None) -> str:
    return text if text in MODES else "form"


# --- the two ways in ------------------------------------------------------------------------------


def _posted_form(request: PageRequest) -> HttpResponse:
    form = forms.form_from_post(request.POST)
    _keep_upload(request, form)
    document = form.document()
    parsed = read(document, form=Format.FORM)
    if request.POST.get("to") == "yaml":
        text = (
            _yaml_of(parsed.spec, is_manifest=form.is_manifest)
            if parsed.spec
            else yaml.safe_dump(_without_empty(document), sort_keys=False, allow_unicode=True)
        )
        return _show(request, form, mode="yaml", text=text)
    if parsed.spec is None:
        form.take(parsed.problems)
        return _show(request, form, status=422)
    if request.POST.get("to") == "template":
        text = _yaml_of(parsed.spec, is_manifest=form.is_manifest)
        return _keep_template(request, parsed.spec, form, mode="form", text=text)
    return _submit(request, parsed.spec, form, mode="form", text="")


def _posted_yaml(request: PageRequest) -> HttpResponse:
    text = request.POST.get("yaml", "")
    parsed = read(text, form=Format.YAML)
    form = (
        forms.form_from_spec(parsed.spec, is_manifest=parsed.is_manifest)
        if parsed.spec
        else JobForm()
    )
    form.code_file_id = request.POST.get("code_file_id", "")
    _keep_upload(request, form)
    if parsed.spec is None:
        problems = [_shown(one, line=line_of(text, one)) for one in parsed.problems]
        return _show(request, form, mode="yaml", text=text, problems=problems, status=422)
    if request.POST.get("to") == "form":
        return _show(request, form)
    if request.POST.get("to") == "template":
        return _keep_template(request, parsed.spec, form, mode="yaml", text=text)
    return _submit(request, parsed.spec, form, mode="yaml", text=text)


def _keep_template(
    request: PageRequest, spec: JobSpec, form: JobForm, *, mode: str, text: str
) -> HttpResponse:
    """Keep the job to submit it again; uploaded code is no part of a template."""
    try:
        template = job_templates.save_template(actor=request.actor, spec=spec, text=text, now=now())
    except Invalid as error:
        form.take(error.problems)
        shown = [_shown(one) for one in error.problems]
        return _show(request, form, mode=mode, text=text, problems=shown, status=422)
    messages.success(
        request,
        _("“%(name)s” is a template now; uploaded files are no part of it.")
        % {"name": template.name},
    )
    return HttpResponseRedirect(reverse("pages:job_templates"))


def _keep_upload(request: PageRequest, form: JobForm) -> None:
    """Store uploaded code at once, so that a mistake elsewhere does not lose it."""
    uploads = request.FILES.getlist("code_files")
    if not uploads:
        return
    content = uploads[0] if len(uploads) == 1 else _archive(uploads)
    stored = files.store_upload(
        actor=request.actor,
        unit_id=_unit_of(request, form.values.get("queue", "")),
        path=content.name or "code",
        content=content,
        now=now(),
    )
    form.code_file_id = str(stored.id)


def _archive(uploads: list[UploadedFile[bytes]]) -> File[bytes]:
    """Pack several files into one archive, as the agent takes it."""
    packed = SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 -- closed with the request
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for upload in uploads:
            entry = tarfile.TarInfo(files.safe_path(upload.name or "code"))
            entry.size = upload.size or 0
            archive.addfile(entry, upload.file)
    size = packed.tell()
    packed.seek(0)
    content = File(packed, name="code.tar.gz")
    content.size = size
    return content


def _submit(
    request: PageRequest, spec: JobSpec, form: JobForm, *, mode: str, text: str
) -> HttpResponse:
    problems: list[Any]
    try:
        job = jobs.submit_job(
            actor=request.actor,
            spec=spec,
            now=now(),
            code_file_id=UUID(form.code_file_id) if form.code_file_id else None,
        )
    except Invalid as error:
        problems = list(error.problems)
    except Conflict as error:
        problems = [Problem("name", error.code, error.params)]
    except Denied as error:
        problems = [Problem("queue", error.code, error.params)]
    else:
        messages.success(request, _("Submitted."))
        return HttpResponseRedirect(reverse("pages:job", args=[job.id]))
    form.take(problems)
    shown = [_shown(one) for one in problems]
    return _show(request, form, mode=mode, text=text, problems=shown, status=422)


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """A problem in words, and where on the page it is: at a field, on a line of the text.

    `path` is the field's label on the form, and the path in the document where there is no field.
    """

    path: str
    text: str
    field: str = ""
    line: int = 0


def _shown(problem: SpecProblem | Problem | Note, *, line: int = 0) -> ShownProblem:
    path = problem.path if problem.path != "$" else ""
    return ShownProblem(path, sentence(problem.code, problem.params), line=line)


def _at_field(problem: SpecProblem | Problem | Note, form: JobForm) -> ShownProblem:
    """Name the field as the form does, for what has one."""
    field = form.field_of(problem.path)
    if field is None:
        return _shown(problem)
    words = sentence(problem.code, problem.params)
    return ShownProblem(job_labels.place(form, field), words, field)


# --- showing --------------------------------------------------------------------------------------


def _show(
    request: PageRequest,
    form: JobForm | None,
    *,
    mode: str = "form",
    text: str = "",
    problems: list[ShownProblem] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "form": form or JobForm(),
        "mode": mode,
        "yaml": text or _EXAMPLE,
        "problems": problems or [],
        "choices": forms.CHOICES,
        "events": forms.EVENTS,
        "plugins": sorted(job_plugins.PLUGINS),
        "queues": queue_queries.to_submit_to(request.actor),
        "runtimes": _runtimes(),
        "editor_phrases": json.dumps({words: _(words) for words in EDITOR_PHRASES}),
        "blank_role": forms.empty_form().roles[0],
    }
    return render_page(request, "jobs/form.html", context, section="pages:job_new", status=status)


def _unit_of(request: PageRequest, queue_name: str) -> UUID:
    """Return whose files an upload becomes: the wanted queue's unit, else the first possible."""
    queues = queue_queries.to_submit_to(request.actor)
    wanted = [queue for queue in queues if queue.name == queue_name] or queues
    if not wanted or wanted[0].unit_id is None:
        raise Invalid([Problem("queue", "queue_missing", {"queue": queue_name})])
    return wanted[0].unit_id


def _runtimes() -> list[str]:
    """Return what nodes offer and what the image table knows, for the menu of suggestions."""
    offered = Node.objects.exclude(runtimes=[]).values_list("runtimes", flat=True)[:200]
    names = {str(runtime.get("name", "")) for runtimes in offered for runtime in runtimes}
    return sorted((names | set(ImageRule.objects.values_list("runtime", flat=True)[:200])) - {""})


@page
@require_POST
def fit(request: PageRequest) -> HttpResponse:
    """Say whether what stands in the form is valid, and whether it would start now."""
    parsed, form = _parsed(request)
    text = "" if form else request.POST.get("yaml", "")
    clock, spec = now(), parsed.spec
    found = explain.fit(request.actor, spec, now=clock) if spec else None
    would_wait = found is not None and not found.fits_now
    context = {
        "problems": [
            _at_field(one, form) if form else _shown(one, line=line_of(text, one) if text else 0)
            for one in parsed.problems
        ],
        "is_unfinished": all(one.code in UNFINISHED for one in parsed.problems),
        "now": clock,
        "notes": [_at_field(one, form) if form else _shown(one) for one in parsed.notes],
        "spec": spec,
        "policy_order": ordered_policies(spec) if spec else [],
        "fit": found,
        "ahead": forecasts.last_in_line(request.actor, spec.queue, now=clock)
        if spec and would_wait
        else None,
        "own": quotas_of_queue(request.actor, spec.queue) if spec else [],
    }
    return render(request, "jobs/_fit.html", context)


def _parsed(request: PageRequest) -> tuple[Parsed, JobForm | None]:
    if request.POST.get("mode") == "yaml":
        return read(request.POST.get("yaml", ""), form=Format.YAML), None
    form = forms.form_from_post(request.POST)
    return read(form.document(), form=Format.FORM), form


def _yaml_of(spec: JobSpec, *, is_manifest: bool) -> str:
    document = (
        to_manifest(spec) if is_manifest else spec.model_dump(mode="json", exclude_defaults=True)
    )
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _without_empty(value: Any) -> Any:
    """Leave out what was left empty, for a readable text."""
    if isinstance(value, dict):
        cleaned = {key: _without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in cleaned.items() if inner not in ("", None, {}, [])}
    if isinstance(value, list):
        return [_without_empty(inner) for inner in value]
    return value


_EXAMPLE = """\
name: my-training
queue: default
roles:
  - name: worker
    replicas: 2
    cpu: 1
    memory: 1Gi
    command: |
      echo "rank $RANK of $WORLD_SIZE"
      sleep 30
plugins: [env, svc]
"""
