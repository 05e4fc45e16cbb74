"""Made-up requests from the description: the server never fails and answers as it is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
SCHEMA = schemathesis.openapi.from_path(
    Path(__file__).resolve().parents[3] / "docs" / "openapi.yaml"
)
OPERATIONS = {
    one.ok().label: one.ok()  # type: ignore[union-attr]  # the description is valid
    for one in SCHEMA.get_all_operations()
}
ALWAYS = {405, 406, 415, 428}
"""What the framework answers before an operation is reached."""


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_made_up_requests_are_answered(label: str, site: Site, as_user: As) -> None:
    """An administrator who sends what fits the description gets a listed status."""
    operation = OPERATIONS[label]
    client = as_user(site.people.root)
    client.raise_request_exception = False
    listed = {int(status) for status in operation.definition.raw["responses"]} | ALWAYS

    @settings(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://testserver")
        headers = {name: value for name, value in sent["headers"].items() if name.isascii()}
        content_type = headers.pop("Content-Type", "application/json")
        body = json.dumps(sent["json"]) if "json" in sent else sent.get("data") or ""
        reply = client.generic(
            sent["method"],
            sent["url"].removeprefix("http://testserver"),
            body if isinstance(body, str) else "",
            content_type=content_type,
            QUERY_STRING=_query(sent.get("params")),
            headers=headers,
        )
        assert reply.status_code in listed, (reply.status_code, sent)

    check()


def _query(params: Any) -> str:
    return urlencode(params or {}, doseq=True, errors="replace")
