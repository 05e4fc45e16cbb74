"""Serializer parts that several resources share."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

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
