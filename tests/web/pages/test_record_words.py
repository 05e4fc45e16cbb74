"""A change of the record, as the page of activity writes it."""

from controlplane.templatetags.terrace import changes
from controlplane.units import UNKNOWN
from tenants.models import AuditRow


def test_change_is_written_in_words_and_units() -> None:
    """Amounts have their units, what was not is a dash, and the version is left out."""
    row = AuditRow(
        before={"min": {}, "is_cordoned": False, "version": 2},
        after={"min": {"nvidia.com/gpu": 8000}, "is_cordoned": True, "version": 3},
    )

    assert changes(row) == f"min: {UNKNOWN} → 8 GPU, is_cordoned: no → yes"
