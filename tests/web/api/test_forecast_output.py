"""What the API says of a job's forecast."""

from controlplane.api.v1.job_output import ForecastOut
from scheduling.domain.forecasts import STRETCHED
from scheduling.models import StartForecast
from tests.people import NOW


def test_stretched_forecast_is_written_with_its_counts() -> None:
    """By how much it was stretched is in its times; its basis is counts."""
    row = StartForecast(
        made_at=NOW, p50_at=NOW, p90_at=None, basis={"plays": 11, "owner": 3, STRETCHED: [1.0, 2.5]}
    )

    assert ForecastOut(row).data["basis"] == {"plays": 11, "owner": 3}
