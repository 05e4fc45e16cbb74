"""Keeps what a job waited for, at one row a minute at most."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Make the table of past reasons."""

    dependencies = [("scheduling", "0017_search_in_index")]

    operations = [
        migrations.CreateModel(
            name="PastReason",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minute", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("code", models.CharField(max_length=60)),
                ("params", models.JSONField(default=dict)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="past_reasons",
                        to="scheduling.job",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("job", "minute"), name="past_reason_unique")
                ],
            },
        ),
    ]
