"""The Celery app: two queues, two kinds of tasks, and the beat that starts what is missing.

Queue `celery` has short tasks: taken one at a time, acknowledged when they are done, repeated when
their worker dies. Queue `loops` has the loops: acknowledged at their start (a message that came
back after the visibility timeout would start a second one for nothing), kept apart by leases.
Redis may lose or repeat any message: beat's tick looks at the leases every second.
"""

import logging
import os

import django
from celery import Celery, signals
from kombu import Queue
from kombu.transport.redis import Channel, QoS


class ForgivingQoS(QoS):
    """What of a broken connection to Redis must not end the worker (kombu 5.7).

    It gives unacknowledged messages back over that very connection, and acknowledges over it what
    was done meanwhile. The visibility timeout and beat's tick bring such messages back anyway.
    """

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message of a channel that is open; what was done is done again else."""
        if not self.channel.closed:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 -- kombu's
        """Give back a message of a channel that is open."""
        if not self.channel.closed:
            super().reject(delivery_tag, requeue=requeue)


Channel.QoS = ForgivingQoS

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from django.conf import settings  # noqa: E402 -- Django first

from worker.loops.base import forget_alone  # noqa: E402 -- Django first
from worker.loops.stopping import STOPPING  # noqa: E402 -- Django first

SHORT_QUEUE = "celery"
LOOPS_QUEUE = "loops"
TICK_SECONDS = 1.0
FORECAST_SECONDS = 30.0

app: Celery = Celery("terrace")
app.conf.update(
    broker_url=settings.REDIS_URL,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # Redis may be away for as long as it likes
    broker_transport_options={
        "visibility_timeout": 60,
        "socket_timeout": 10,
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    # What the queue lost is found again in the database: no result is ever waited for.
    task_ignore_result=True,
    result_backend=None,
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_queues=[Queue(SHORT_QUEUE), Queue(LOOPS_QUEUE)],
    task_default_queue=SHORT_QUEUE,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_max_memory_per_child=1_000_000,
    worker_soft_shutdown_timeout=5,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    task_publish_retry=False,
    enable_utc=True,
    timezone="UTC",
    imports=("worker.tasks", "worker.tasks.loops", "worker.tasks.webhooks"),
    beat_schedule={
        "tick": {
            "task": "worker.tasks.start_missing_loops",
            "schedule": TICK_SECONDS,
            "options": {"expires": 2 * TICK_SECONDS},
        },
        "forecast": {
            "task": "worker.tasks.foretell_starts",
            "schedule": FORECAST_SECONDS,
            "options": {"expires": FORECAST_SECONDS},
        },
        "hourly": {
            "task": "worker.tasks.thin_history",
            "schedule": 3600.0,
            "options": {"expires": 1800.0},
        },
    },
)


@signals.worker_shutting_down.connect
def _tell_loops(**_: object) -> None:
    """Ask the loops of this worker to give their leases back and end."""
    STOPPING.set()


@signals.worker_ready.connect
def _offer_standby(**_: object) -> None:
    """Let beat look for somebody to stand by: this worker may be the second one."""
    forget_alone()


@signals.setup_logging.connect
def _keep_logging(**_: object) -> None:
    """Leave logging as the settings made it; a tick every second is not worth three lines."""
    for name in ("celery.beat", "celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)


__all__ = ["LOOPS_QUEUE", "SHORT_QUEUE", "app"]
