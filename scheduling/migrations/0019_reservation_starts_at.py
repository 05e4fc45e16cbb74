"""Keeps when a job can start for which room is kept, so that others may use it until then."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the time to reservations."""

    dependencies = [("scheduling", "0018_past_reasons")]

    operations = [
        migrations.AddField(
            model_name="reservation",
            name="starts_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
