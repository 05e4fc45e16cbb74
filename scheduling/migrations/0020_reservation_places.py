"""Keeps which node each task was promised, so that it is promised the same again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the places to reservations."""

    dependencies = [("scheduling", "0019_reservation_starts_at")]

    operations = [
        migrations.AddField(
            model_name="reservation",
            name="places",
            field=models.JSONField(default=dict),
        ),
    ]
