"""Number each row of the history by the transaction that wrote it, for readers of events.

Rows are numbered before they are committed, so reading on from an id would miss what commits late.
In the order of (transaction, id) nothing appears before what was read, as long as only rows of
transactions are read before which all others have ended. The column is no field of the model: the
database alone fills it.
"""

from django.db import migrations

ADD = """
ALTER TABLE scheduling_history ADD COLUMN written_xid bigint NOT NULL DEFAULT 0;
ALTER TABLE scheduling_history
    ALTER COLUMN written_xid SET DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX history_events ON scheduling_history (written_xid, id);
"""

DROP = """
DROP INDEX history_events;
ALTER TABLE scheduling_history DROP COLUMN written_xid;
"""


class Migration(migrations.Migration):
    """Add the column and its index."""

    dependencies = [("scheduling", "0011_network_tiers")]

    operations = [migrations.RunSQL(ADD, DROP)]
