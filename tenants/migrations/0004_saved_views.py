"""Adds saved views of lists and what a person wants to be told."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_people_and_sessions"),
    ]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("page", models.CharField(max_length=20)),
                ("name", models.CharField(max_length=40)),
                ("query", models.CharField(max_length=500)),
                ("created_at", models.DateTimeField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "page", "name"), name="saved_view_name"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="NotificationChoice",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="notification_choice",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("wants_ended", models.BooleanField(default=True)),
                ("wants_failed", models.BooleanField(default=True)),
                ("wants_preempted", models.BooleanField(default=True)),
                ("read_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    ]
