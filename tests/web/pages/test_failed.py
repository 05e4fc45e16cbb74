"""What somebody sees when something failed on our side."""

from django.test import RequestFactory

from controlplane.pages.failed import server_error


def test_failure_names_the_number_of_its_request(rf: RequestFactory) -> None:
    """The number is the one under which the log has the cause; without one none is asked for."""
    request = rf.get("/jobs/")
    plain = server_error(request).content.decode()
    request.request_id = "5f0c"  # type: ignore[attr-defined]  # set by the middleware

    reply = server_error(request)

    assert reply.status_code == 500
    assert '<p class="mono">5f0c</p>' in reply.content.decode()
    assert "this number" not in plain
