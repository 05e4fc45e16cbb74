"""Triggers: which rows changed since a snapshot, and how many jobs a queue has in each phase.

`changed_xid` is the id of the transaction that last wrote the row. A reader that remembers
`pg_snapshot_xmin(pg_current_snapshot())` of its last read and asks for `changed_xid >=` it sees
every row committed since, however transactions overlapped; a sequence or a time could miss one that
committed late. `job_count` receives deltas, so that submissions never wait for one hot row.
"""

from django.db import migrations

MARKED = ("scheduling_job", "scheduling_node", "scheduling_queue", "scheduling_cluster")

MARK_FUNCTION = """
CREATE FUNCTION terrace_mark_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_xid := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$;
"""

COUNT_FUNCTION = """
CREATE FUNCTION terrace_count_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO scheduling_jobcount (queue_id, unit_id, phase, amount)
        VALUES (OLD.queue_id, OLD.unit_id, OLD.phase, -1);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO scheduling_jobcount (queue_id, unit_id, phase, amount)
        VALUES (NEW.queue_id, NEW.unit_id, NEW.phase, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER terrace_count_inserted AFTER INSERT OR DELETE ON scheduling_job
    FOR EACH ROW EXECUTE FUNCTION terrace_count_jobs();
CREATE TRIGGER terrace_count_updated AFTER UPDATE OF phase, queue_id, unit_id ON scheduling_job
    FOR EACH ROW
    WHEN (OLD.phase IS DISTINCT FROM NEW.phase OR OLD.queue_id IS DISTINCT FROM NEW.queue_id
          OR OLD.unit_id IS DISTINCT FROM NEW.unit_id)
    EXECUTE FUNCTION terrace_count_jobs();
"""

DROP_COUNT = """
DROP TRIGGER terrace_count_inserted ON scheduling_job;
DROP TRIGGER terrace_count_updated ON scheduling_job;
DROP FUNCTION terrace_count_jobs();
"""


class Migration(migrations.Migration):
    """Install the triggers."""

    dependencies = [("scheduling", "0002_initial")]

    operations = [
        migrations.RunSQL(MARK_FUNCTION, "DROP FUNCTION terrace_mark_changed();"),
        *(
            migrations.RunSQL(
                f"CREATE TRIGGER terrace_mark BEFORE INSERT OR UPDATE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION terrace_mark_changed();",
                f"DROP TRIGGER terrace_mark ON {table};",
            )
            for table in MARKED
        ),
        migrations.RunSQL(COUNT_FUNCTION, DROP_COUNT),
    ]
