"""The description of the API is served as it was worked out, in each of its forms."""

from __future__ import annotations

import json

import pytest
import yaml
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

ADDRESS = "/api/v1/schema"

pytestmark = pytest.mark.django_db


def test_description_is_what_the_code_says_in_every_form(client: Client) -> None:
    """YAML and JSON hold the same document, each asked for by its type."""
    plain = client.get(ADDRESS)
    as_json = client.get(ADDRESS, headers={"Accept": "application/vnd.oai.openapi+json"})

    document = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]  # untyped there
    assert yaml.safe_load(plain.content) == json.loads(as_json.content)
    assert json.loads(as_json.content)["paths"].keys() == document["paths"].keys()
    assert plain.headers["Content-Type"] == "application/vnd.oai.openapi; charset=utf-8"
    assert plain.headers["Content-Disposition"] == 'inline; filename="Terrace.yaml"'


def test_description_is_not_worked_out_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again, and again, does not keep the process busy."""
    first = client.get(ADDRESS).content

    def worked_out(*args: object, **kwargs: object) -> None:
        raise AssertionError("worked out again")

    monkeypatch.setattr(SchemaGenerator, "get_schema", worked_out)

    assert client.get(ADDRESS).content == first
