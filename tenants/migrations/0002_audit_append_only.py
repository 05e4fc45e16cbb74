"""Audit rows and seals are only ever added: the database itself refuses to change or delete one."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

REFUSE = """
CREATE FUNCTION terrace_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER terrace_append_only BEFORE UPDATE OR DELETE ON tenants_auditrow
    FOR EACH ROW EXECUTE FUNCTION terrace_refuse_change();
CREATE TRIGGER terrace_append_only BEFORE UPDATE OR DELETE ON tenants_auditseal
    FOR EACH ROW EXECUTE FUNCTION terrace_refuse_change();
"""

ALLOW = """
DROP TRIGGER terrace_append_only ON tenants_auditseal;
DROP TRIGGER terrace_append_only ON tenants_auditrow;
DROP FUNCTION terrace_refuse_change();
"""


class Migration(migrations.Migration):
    """Keep what audit rows refer to, and refuse changes."""

    dependencies = [("tenants", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="auditrow",
            name="actor",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="auditrow",
            name="unit",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.orgunit",
            ),
        ),
        migrations.RunSQL(REFUSE, ALLOW),
    ]
