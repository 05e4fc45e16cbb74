"""Where the next page of a list begins: after a row, whatever came or went meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q


def beyond(order: Sequence[str], values: Sequence[object]) -> Q:
    """Return (a, b) > (x, y) in the order's directions, as a chain of comparisons.

    `order` names columns, `-` for descending, the last one unique; `values` are those of a row.
    """
    condition = Q()
    equal = Q()
    for name, value in zip(order, values, strict=True):
        field, operator = name.lstrip("-"), "lt" if name.startswith("-") else "gt"
        condition |= equal & Q(**{f"{field}__{operator}": value})
        equal &= Q(**{field: value})
    return condition
