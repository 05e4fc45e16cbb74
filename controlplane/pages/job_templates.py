"""Jobs that the viewer keeps to submit them again."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from controlplane.pages.frame import PageRequest, page, render_page
from scheduling.domain import job_templates


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show the viewer's templates, each with the way into the form."""
    context = {"templates": job_templates.job_templates(request.actor)}
    return render_page(request, "jobs/templates.html", context, section="pages:job_new")


@page
@require_POST
def delete(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Forget a template; jobs made of it stay."""
    job_templates.delete_template(actor=request.actor, template_id=template_id)
    messages.success(request, _("The template is gone; jobs made of it stay."))
    return HttpResponseRedirect(reverse("pages:job_templates"))
