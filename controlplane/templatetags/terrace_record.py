"""Filters for the record: a change as it was written down."""

import json
from typing import Any

from django import template
from django.core.serializers.json import DjangoJSONEncoder

register = template.Library()


@register.filter
def as_json(value: Any) -> str:
    """Write a value as JSON on one line."""
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False)
