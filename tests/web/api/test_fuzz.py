"""Made-up requests from the description: the server never fails and answers as it is described.

Requests that fit the description and requests that do not; of each answer the status, the type, the
headers and the whole body are held against it, and the same request of nobody is refused.
TERRACE_FUZZ_EXAMPLES says how many of an operation: two in each run of the tests.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from rest_framework.test import APIClient
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks as openapi

from tests.patience import be_patient
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
SCHEMA = schemathesis.openapi.from_path(
    Path(__file__).resolve().parents[3] / "docs" / "openapi.yaml"
)
OPERATIONS = {
    one.ok().label: one.ok()  # type: ignore[union-attr]  # the description is valid
    for one in SCHEMA.get_all_operations()
}
FEWEST = 2
EXAMPLES = int(os.environ.get("TERRACE_FUZZ_EXAMPLES", FEWEST))
ALWAYS = {405, 406, 415, 428}
"""What the framework answers before an operation is reached."""
NOT_FOUND, TOO_LARGE = 404, 413
REFUSED = {401, 405}
FOR_ALL = {"GET /api/v1/schema"}
"""Operations that need nobody to be signed in."""
CHECKS = [
    not_a_server_error,
    openapi.content_type_conformance,
    openapi.response_headers_conformance,
    openapi.response_schema_conformance,
    openapi.negative_data_rejection,
    openapi.missing_required_header,
]
"""The last two take 413 for no refusal: what is too large is not read."""


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_made_up_requests_are_answered(label: str, site: Site, as_user: As) -> None:
    """An administrator gets what is described, whatever is sent; nobody gets 401."""
    be_patient()
    operation = OPERATIONS[label]
    root, nobody = as_user(site.people.root), APIClient()
    for client in (root, nobody):
        client.raise_request_exception = False
    listed = {int(status) for status in operation.definition.raw["responses"]} | ALWAYS

    def check(case: Any) -> None:
        reply = _send(root, case)
        assert reply.status_code in listed, (reply.status_code, case.as_curl_command())
        is_endless = getattr(reply, "is_async", False)  # a stream of events has tests of its own
        if reply.status_code not in ALWAYS and not is_endless:
            is_lenient = reply.status_code == TOO_LARGE or _is_answered_anyway(case)
            checks = CHECKS[:-2] if is_lenient else CHECKS
            case.validate_response(_as_response(case, reply), checks=checks)
        if label not in FOR_ALL and reply.status_code != NOT_FOUND:
            assert _send(nobody, case).status_code in REFUSED, case.as_curl_command()

    for mode in GenerationMode:
        made_up = settings(
            max_examples=EXAMPLES // FEWEST,
            deadline=None,
            derandomize=EXAMPLES == FEWEST,
            database=None,
            phases=(Phase.generate,),  # a step of shrinking takes seconds
            suppress_health_check=list(HealthCheck),
        )(given(case=operation.as_strategy(generation_mode=mode))(check))
        made_up()


def _is_answered_anyway(case: Any) -> bool:
    """Tell whether it is right to answer a request that breaks the description.

    An empty parameter is one that was not given, as forms send it; a trial of a submission answers
    what is wrong with it instead of refusing it.
    """
    given = dict(case.query or {})
    return "" in given.values() or (case.path == "/api/v1/jobs" and "dry_run" in given)


def _send(client: APIClient, case: Any) -> Any:
    """Send a case to the application, as far as such bytes can be sent at all."""
    sent = case.as_transport_kwargs(base_url="http://testserver")
    headers = {name: value for name, value in sent["headers"].items() if name.isascii()}
    content_type = headers.pop("Content-Type", "application/json")
    body: Any = json.dumps(sent["json"]) if "json" in sent else sent.get("data") or ""
    is_form = not isinstance(body, str | bytes)  # with files: sent as nothing
    return client.generic(
        sent["method"],
        sent["url"].removeprefix("http://testserver"),
        "" if is_form else body,
        content_type=content_type,
        QUERY_STRING=urlencode(sent.get("params") or {}, doseq=True, errors="replace"),
        headers=headers,
    )


def _as_response(case: Any, reply: Any) -> Response:
    return Response(
        status_code=reply.status_code,
        headers={name.lower(): [value] for name, value in reply.headers.items()},
        content=reply.getvalue(),
        request=requests.Request(case.method, "http://testserver/").prepare(),
        elapsed=0.0,
        verify=False,
    )
