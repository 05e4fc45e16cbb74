"""Quotas of units and users, with one row for each limit."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0005_change_sets_and_samples'),
        ('tenants', '0002_audit_append_only'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Quota',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('unit', 'Unit'), ('each_user', 'Each User'), ('user', 'User')], max_length=12)),
                ('created_at', models.DateTimeField()),
                ('version', models.PositiveBigIntegerField(default=1)),
                ('unit', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='quotas', to='tenants.orgunit')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='QuotaLimit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('resource', models.CharField(choices=[('running_jobs', 'Running Jobs'), ('queued_jobs', 'Queued Jobs'), ('cpu', 'Cpu'), ('memory', 'Memory'), ('nvidia.com/gpu', 'Gpu'), ('storage', 'Storage')], max_length=40)),
                ('amount', models.BigIntegerField()),
                ('quota', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='limits', to='scheduling.quota')),
            ],
        ),
        migrations.AddConstraint(
            model_name='quota',
            constraint=models.UniqueConstraint(fields=('unit', 'scope', 'user'), name='quota_unique', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='quota',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('scope', 'user'), ('user__isnull', False)), models.Q(models.Q(('scope', 'user'), _negated=True), ('user__isnull', True)), _connector='OR'), name='quota_user_by_scope'),
        ),
        migrations.AddConstraint(
            model_name='quotalimit',
            constraint=models.UniqueConstraint(fields=('quota', 'resource'), name='quota_limit_unique'),
        ),
        migrations.AddConstraint(
            model_name='quotalimit',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gte', 0)), name='quota_limit_not_negative'),
        ),
    ]
