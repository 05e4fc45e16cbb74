"""People are invited, looked after by a unit and removed; sessions know whose they are."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('tenants', '0002_audit_append_only'),
    ]

    operations = [
        migrations.CreateModel(
            name='AccountLink',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('purpose', models.CharField(choices=[('invite', 'Invite'), ('reset', 'Reset')], max_length=16)),
                ('secret_hash', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='BrowserSession',
            fields=[
                ('session_key', models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name='session key')),
                ('session_data', models.TextField(verbose_name='session data')),
                ('expire_date', models.DateTimeField(db_index=True, verbose_name='expire date')),
                ('created_at', models.DateTimeField(null=True)),
                ('ip', models.CharField(blank=True, max_length=45)),
                ('user_agent', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'verbose_name': 'session',
                'verbose_name_plural': 'sessions',
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='user',
            name='home',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='accounts', to='tenants.orgunit'),
        ),
        migrations.AddField(
            model_name='user',
            name='removed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='user',
            name='version',
            field=models.PositiveBigIntegerField(default=1),
        ),
        # A service account belongs to the unit of its first grant from now on; the change of
        # columns below must not wait for checks that this update would leave to the end.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.RunSQL(
            """
            UPDATE tenants_user u SET home_id = coalesce(
                (SELECT g.unit_id FROM tenants_grant g
                 WHERE g.user_id = u.id AND g.unit_id IS NOT NULL
                 ORDER BY g.created_at, g.id LIMIT 1),
                (SELECT o.id FROM tenants_orgunit o WHERE o.parent_id IS NULL
                 ORDER BY o.created_at, o.id LIMIT 1))
            WHERE is_service
            """,
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('is_service', False), ('home__isnull', False), _connector='OR'), name='user_service_has_home'),
        ),
        migrations.AddField(
            model_name='accountlink',
            name='created_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='accountlink',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='account_links', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='browsersession',
            name='user',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='accountlink',
            index=models.Index(fields=['user', '-created_at'], name='account_link_user'),
        ),
        migrations.AddIndex(
            model_name='browsersession',
            index=models.Index(fields=['user'], name='browser_session_user'),
        ),
    ]
