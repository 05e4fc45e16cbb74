from django.db import migrations, models


class Migration(migrations.Migration):
    """Note when admission let a job in, so that one that is not used lapses."""

    dependencies = [("scheduling", "0013_job_templates")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="admitted_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
