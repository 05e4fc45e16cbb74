"""Serializer parts that several resources share."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scheduling.domain.wording import sentence
from scheduling.spec.reader import Findings, read_amount

LARGEST_AMOUNT = 2**53


class StrictSerializer(serializers.Serializer[Any]):
    """Reads a body; a field that it does not know is an error, not silently dropped."""

    def to_internal_value(self, data: Any) -> Any:
        """Read the known fields.

        Raises:
            ValidationError: the body is no object, or a field is unknown or wrong.
        """
        if isinstance(data, dict):
            known = [name for name, field in self.fields.items() if not field.read_only]
            unknown = {
                str(name): [
                    serializers.ErrorDetail(
                        f"There is no field {name!r}; there are {', '.join(known)}.",
                        code="unknown_field",
                    )
                ]
                for name in data
                if name not in known
            }
            if unknown:
                raise serializers.ValidationError(unknown)
        return super().to_internal_value(data)


class AmountsField(serializers.DictField):
    """Resource -> amount: milli-CPU, bytes, thousandths of anything else."""

    child = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT)


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": LARGEST_AMOUNT},
                {"type": "string", "example": "4Gi"},
            ]
        },
    }
)
class AmountsIn(AmountsField):
    """Resource -> amount: a number in the API's unit, or a text as forms and manifests take it."""

    def run_child_validation(self, data: Any) -> dict[str, Any]:
        """Read each amount.

        Raises:
            ValidationError: with what is wrong with each, by resource.
        """
        findings = Findings()
        found = {str(name): _amount(str(name), value, findings) for name, value in data.items()}
        if findings.problems:
            raise serializers.ValidationError(
                {
                    one.path: [
                        serializers.ErrorDetail(sentence(one.code, one.params), code=one.code)
                    ]
                    for one in findings.problems
                }
            )
        return found


def _amount(resource: str, value: object, findings: Findings) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    amount = 0
    if isinstance(value, str):
        amount = read_amount(resource, value, resource, findings)
    elif not isinstance(value, int) or isinstance(value, bool):
        findings.refuse(resource, "not_a_quantity", value=f"{value!s:.80}", resource=resource)
    elif value < 0:
        findings.refuse(resource, "negative_number", value=value)
    else:
        amount = value
    if amount > LARGEST_AMOUNT:
        findings.refuse(resource, "number_too_large", value=amount, limit=LARGEST_AMOUNT)
    return amount


class DocumentField(serializers.DictField):
    """An object that its own reader judges later: nothing in it is looked at here."""

    def run_child_validation(self, data: Any) -> Any:
        """Take it as it is."""
        return data


class ReasonField(serializers.CharField):
    """Why somebody changes something; it stands in the audit trail."""

    def __init__(self, **options: Any) -> None:
        """Be optional, and as long as the audit trail's column."""
        super().__init__(required=False, allow_blank=True, max_length=500, default="", **options)


class ActIn(StrictSerializer):
    """Why, for the audit trail."""

    reason = ReasonField()
