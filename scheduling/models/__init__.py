"""Tables of jobs, queues, nodes and what the scheduler keeps about them."""

from scheduling.models.attempt import Attempt
from scheduling.models.attention import AttentionMark
from scheduling.models.change_set import ChangeItem, ChangeSet
from scheduling.models.cluster import Cluster, CycleRecord, SchedulerConfig
from scheduling.models.delayed_action import DelayedAction
from scheduling.models.files import JobFile, LogChunk
from scheduling.models.forecast import StartForecast
from scheduling.models.history import History
from scheduling.models.hold import DeviceHold, Hold
from scheduling.models.job import Job, JobCount, Role
from scheduling.models.job_template import JobTemplate
from scheduling.models.lease import Lease
from scheduling.models.metrics import MetricSample, Usage
from scheduling.models.node import Device, ImageRule, JoinToken, Node
from scheduling.models.past_reason import PastReason
from scheduling.models.queue import Queue, QueueClosure, QueueShare
from scheduling.models.quota import Quota, QuotaLimit, QuotaResource, QuotaScope
from scheduling.models.reservation import Reservation
from scheduling.models.samples import ClusterSample, QueueSample
from scheduling.models.task import Task

__all__ = [
    "Attempt",
    "AttentionMark",
    "ChangeItem",
    "ChangeSet",
    "Cluster",
    "ClusterSample",
    "CycleRecord",
    "DelayedAction",
    "Device",
    "DeviceHold",
    "History",
    "Hold",
    "ImageRule",
    "Job",
    "JobCount",
    "JobFile",
    "JobTemplate",
    "JoinToken",
    "Lease",
    "LogChunk",
    "MetricSample",
    "Node",
    "PastReason",
    "Queue",
    "QueueClosure",
    "QueueSample",
    "QueueShare",
    "Quota",
    "QuotaLimit",
    "QuotaResource",
    "QuotaScope",
    "Reservation",
    "Role",
    "SchedulerConfig",
    "StartForecast",
    "Task",
    "Usage",
]
