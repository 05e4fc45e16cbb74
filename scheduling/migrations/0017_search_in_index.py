"""Lets a text be looked for in the names of all jobs without reading the jobs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Put what lists narrow by into the index in whose order they are read."""

    dependencies = [("scheduling", "0016_news_by_owner")]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["-created_at", "-id"],
                include=("name", "phase", "unit", "queue", "owner", "kind"),
                name="job_newest_of",
            ),
        ),
        migrations.RemoveIndex(model_name="job", name="job_newest"),
    ]
