"""Secrets of org units, sealed."""

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0004_saved_views'),
    ]

    operations = [
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('kind', models.CharField(choices=[('variables', 'Variables'), ('files', 'Files'), ('registry', 'Registry')], max_length=12)),
                ('is_shared', models.BooleanField(default=True)),
                ('keys', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=253), default=list, size=None)),
                ('key_id', models.CharField(max_length=16)),
                ('wrapped_key', models.BinaryField()),
                ('ciphertext', models.BinaryField()),
                ('created_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('version', models.PositiveBigIntegerField(default=1)),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('unit', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='tenants.orgunit')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_shared', True), ('revoked_at__isnull', True)), fields=('unit', 'name'), name='secret_shared_name_unique'), models.UniqueConstraint(condition=models.Q(('is_shared', False), ('revoked_at__isnull', True)), fields=('unit', 'owner', 'name'), name='secret_own_name_unique')],
            },
        ),
    ]
