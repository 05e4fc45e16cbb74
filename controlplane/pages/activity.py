"""Who did what to what, and why."""

from django.http import HttpResponse

from controlplane.pages.frame import PageRequest, page, render_page
from scheduling.domain.queries.activity import list_activity


@page
def feed(request: PageRequest) -> HttpResponse:
    """Show the record as far as the viewer may read it."""
    before = request.GET.get("before", "")
    where = {
        "action": request.GET.get("action", "").strip()[:64],
        "person": request.GET.get("person", "").strip()[:150],
    }
    found = list_activity(
        request.actor,
        action=where["action"],
        person=where["person"],
        before=int(before) if before.isdecimal() else None,
    )
    context = {"rows": found.rows, "next_cursor": found.next_cursor, "where": where}
    return render_page(request, "activity/list.html", context, section="pages:activity")
