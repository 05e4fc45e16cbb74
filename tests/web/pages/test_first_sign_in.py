"""Whoever signs in with a password made up by others chooses their own, and goes on to work."""

from datetime import UTC, datetime

from django.test import Client

from scheduling.domain.bootstrap import ensure_installation
from tests.people import PASSWORD

FIRST_PASSWORD = "made-up-for-the-first-time"


def test_first_password_is_changed_and_leads_to_work(db: None) -> None:
    """Every page leads to the form until it is used; then the form leads home."""
    ensure_installation(
        admin_username="admin", admin_password=FIRST_PASSWORD, now=datetime.now(UTC)
    )
    client = Client()
    client.post("/accounts/login/", {"login": "admin", "password": FIRST_PASSWORD})

    before = client.get("/jobs/")
    changed = client.post(
        "/accounts/password/change/",
        {"oldpassword": FIRST_PASSWORD, "password1": PASSWORD, "password2": PASSWORD},
    )

    assert before["Location"] == "/accounts/password/change/"
    assert changed["Location"] == "/"
    assert client.get("/jobs/").status_code == 200
