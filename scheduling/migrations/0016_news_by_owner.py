"""Lets the bell find by owner what ended and what was evicted."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

NOTE = """
CREATE FUNCTION terrace_note_evicted_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.evicted_owner_id := (SELECT owner_id FROM scheduling_job WHERE id = NEW.job_id);
    RETURN NEW;
END $$;
CREATE TRIGGER terrace_note_evicted_owner BEFORE INSERT OR UPDATE OF state ON scheduling_attempt
    FOR EACH ROW WHEN (NEW.state = 'Evicted') EXECUTE FUNCTION terrace_note_evicted_owner();
"""
FORGET = """
DROP TRIGGER terrace_note_evicted_owner ON scheduling_attempt;
DROP FUNCTION terrace_note_evicted_owner();
"""


class Migration(migrations.Migration):
    """Find what happened to somebody's jobs by its owner: each page with a bell asks for it."""

    dependencies = [
        ("scheduling", "0015_attention_marks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="evicted_owner",
            field=models.ForeignKey(
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("state", "Evicted")),
                fields=["evicted_owner", "-finished_at", "-id"],
                name="attempt_evicted_owner",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("phase__in", ["Completed", "Failed"])),
                fields=["owner", "-finished_at", "-id"],
                name="job_owner_ended",
            ),
        ),
        migrations.RunSQL(NOTE, FORGET),
        migrations.RunSQL(
            "UPDATE scheduling_attempt SET state = state WHERE state = 'Evicted'",
            migrations.RunSQL.noop,
        ),
    ]
