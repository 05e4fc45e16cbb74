"""Jobs and their roles."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from scheduling.models.queue import Queue
from tenants.models import OrgUnit
from tenants.models.scoped import ScopedQuerySet


class JobPhase(models.TextChoices):
    """Volcano's ten phases; what waits is Pending with a reason."""

    PENDING = "Pending"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


FINISHED_PHASES = (JobPhase.COMPLETED, JobPhase.TERMINATED, JobPhase.FAILED)


class Job(models.Model):
    """What a user submitted: `spec` is the whole JobSpec, columns what is filtered or summed."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(OrgUnit, on_delete=models.PROTECT, related_name="+")
    unit = models.ForeignKey(OrgUnit, on_delete=models.PROTECT, related_name="jobs")
    """The queue's unit: what visibility goes by."""
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=20, default="training")
    spec = models.JSONField()
    phase = models.CharField(max_length=12, choices=JobPhase, default=JobPhase.PENDING)
    gang_phase = models.CharField(max_length=12, default="Pending")
    admitted_at = models.DateTimeField(null=True, blank=True)
    """When admission last let it in; an admission that is not used in time may lapse."""
    desired_state = models.CharField(max_length=12, default="run")
    """run, suspend or terminate: what its people want in the end, for pages and for admission."""
    wish = models.CharField(max_length=20, blank=True)
    """A lifecycle action that the phase could not take at once and that is done when it can."""
    quarantine_strikes = models.PositiveSmallIntegerField(default=0)
    """How often planning failed because of it; at the limit it is left out of the cycles."""
    reason_code = models.CharField(max_length=60, blank=True)
    reason_params = models.JSONField(default=dict)
    reason_at = models.DateTimeField(null=True, blank=True)
    message = models.CharField(max_length=500, blank=True)
    priority = models.IntegerField(default=0)
    min_available = models.PositiveIntegerField()
    min_success = models.PositiveIntegerField(null=True, blank=True)
    max_retry = models.PositiveIntegerField(default=3)
    retry_count = models.PositiveIntegerField(default=0)
    """Restarts by policy: what max_retry limits."""
    user_restarts = models.PositiveIntegerField(default=0)
    platform_restarts = models.PositiveIntegerField(default=0)
    generation = models.PositiveIntegerField(default=1)
    """+1 when a new run of the whole job begins; events of an older one change nothing."""
    tasks_total = models.PositiveIntegerField(default=0)
    tasks_pending = models.PositiveIntegerField(default=0)
    tasks_starting = models.PositiveIntegerField(default=0)
    """Bound or Starting."""
    tasks_running = models.PositiveIntegerField(default=0)
    tasks_stopping = models.PositiveIntegerField(default=0)
    tasks_succeeded = models.PositiveIntegerField(default=0)
    tasks_failed = models.PositiveIntegerField(default=0)
    """Failed with no attempt to follow; cancelled tasks are counted nowhere."""
    gpu_milli = models.BigIntegerField(default=0)
    """Requested by all replicas together; likewise the next two."""
    cpu_milli = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    delete_after = models.DateTimeField(null=True, blank=True)
    """When the time to live is over: what runs for it is cleaned up, the rows stay."""
    history_seq = models.PositiveBigIntegerField(default=0)
    version = models.PositiveBigIntegerField(default=1)
    changed_xid = models.BigIntegerField(default=0, editable=False)

    objects = ScopedQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["unit", "name"],
                name="job_name_unique_while_live",
                condition=~Q(phase__in=["Completed", "Terminated", "Failed"]),
            ),
        ]
        indexes = [
            # What lists narrow by goes with it: a text that is in no name is looked for in the
            # index alone, a tenth of the table.
            models.Index(
                fields=["-created_at", "-id"],
                name="job_newest_of",
                include=["name", "phase", "unit", "queue", "owner", "kind"],
            ),
            models.Index(fields=["unit", "-created_at", "-id"], name="job_unit_newest"),
            models.Index(fields=["queue", "-created_at", "-id"], name="job_queue_newest"),
            models.Index(fields=["owner", "-created_at", "-id"], name="job_owner_newest"),
            models.Index(fields=["phase", "-created_at", "-id"], name="job_phase_newest"),
            models.Index(
                fields=["owner", "-finished_at", "-id"],
                name="job_owner_ended",
                condition=Q(phase__in=["Completed", "Failed"]),
            ),
            models.Index(
                fields=["queue"],
                name="job_live",
                condition=~Q(phase__in=["Completed", "Terminated", "Failed", "Aborted"]),
            ),
            models.Index(fields=["changed_xid"], name="job_changed"),
            models.Index(
                fields=["-started_at"],
                name="job_started",
                condition=Q(started_at__isnull=False),
            ),
            models.Index(
                fields=["delete_after"],
                name="job_delete_after",
                condition=Q(delete_after__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.Model):
    """One template of a job and its replica count."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="roles")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=63)
    replicas = models.PositiveIntegerField()
    min_available = models.PositiveIntegerField()
    request = models.JSONField(default=dict)
    """Per task, in the units of a queue's min and max, `pods` included."""
    tasks_pending = models.PositiveIntegerField(default=0)
    """Of this role; likewise the others. The job's own counters are their sums."""
    tasks_starting = models.PositiveIntegerField(default=0)
    tasks_running = models.PositiveIntegerField(default=0)
    tasks_stopping = models.PositiveIntegerField(default=0)
    tasks_succeeded = models.PositiveIntegerField(default=0)
    tasks_failed = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "name"], name="role_name_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.name}"


class JobCount(models.Model):
    """Jobs by queue and phase as deltas to be summed; a trigger adds rows, the relay folds them."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="+")
    unit = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="+")
    phase = models.CharField(max_length=12)
    amount = models.BigIntegerField()

    objects = ScopedQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["queue", "phase"], name="job_count_queue")]

    def __str__(self) -> str:
        return f"{self.queue_id} {self.phase} {self.amount}"
