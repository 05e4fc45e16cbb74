"""Mark a node as changed only by what a snapshot or a page would read, not by its heartbeats.

Every node is heard of each few seconds. While that marked its row, each cycle read all nodes anew,
and every page of the cluster was rendered again. A write that changes nothing at all still marks:
it says that devices of the node changed (`reports._count_healthy`).
"""

from django.db import migrations

TRIGGERS = """
DROP TRIGGER terrace_mark ON scheduling_node;
CREATE TRIGGER terrace_mark_inserted BEFORE INSERT ON scheduling_node
    FOR EACH ROW EXECUTE FUNCTION terrace_mark_changed();
CREATE TRIGGER terrace_mark_updated BEFORE UPDATE ON scheduling_node
    FOR EACH ROW
    WHEN (
        (OLD.last_seen_at, OLD.report_seq) IS NOT DISTINCT FROM (NEW.last_seen_at, NEW.report_seq)
        OR to_jsonb(OLD) - '{last_seen_at,report_seq}'::text[]
           IS DISTINCT FROM to_jsonb(NEW) - '{last_seen_at,report_seq}'::text[]
    )
    EXECUTE FUNCTION terrace_mark_changed();
"""

BACK = """
DROP TRIGGER terrace_mark_inserted ON scheduling_node;
DROP TRIGGER terrace_mark_updated ON scheduling_node;
CREATE TRIGGER terrace_mark BEFORE INSERT OR UPDATE ON scheduling_node
    FOR EACH ROW EXECUTE FUNCTION terrace_mark_changed();
"""


class Migration(migrations.Migration):
    """Replace the trigger."""

    dependencies = [("scheduling", "0006_quotas")]

    operations = [migrations.RunSQL(TRIGGERS, BACK)]
