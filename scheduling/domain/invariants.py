"""The rules that do not bend, checked on rows and history; each violation is named with its rows.

Used by `manage.py check_invariants` and by every fault test. All statements run in one consistent
view of the database, so a running system does not look broken. What needs more than rows (no
process without an attempt, a page equals the database) is checked by the tests of those parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from scheduling.domain import holds
from scheduling.lifecycle.states import (
    FINAL_ATTEMPT_STATES,
    FINISHED_PHASES,
    LIVE_ATTEMPT_STATES,
)
from scheduling.lifecycle.table import ATTEMPT_TABLE
from scheduling.models import Queue
from tenants.domain import audit

MOST_ROWS = 20
"""So many violations of one rule are listed; the first are enough to look."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, the row, and what is wrong with it."""

    rule: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One invariant: its name, what must hold, and the query or function that finds exceptions."""

    name: str
    must_hold: str
    find: Callable[[], Iterator[tuple[str, str]]]


def check() -> list[Violation]:
    """Return every violation that is found, rule by rule."""
    is_outermost = not connection.in_atomic_block
    found: list[Violation] = []
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for rule in RULES:
            for count, (subject, detail) in enumerate(rule.find()):
                if count >= MOST_ROWS:
                    break
                found.append(Violation(rule.name, subject, detail))
    return found


def _query(statement: str, **params: Any) -> Callable[[], Iterator[tuple[str, str]]]:  # SQL values
    def find() -> Iterator[tuple[str, str]]:
        with connection.cursor() as cursor:
            cursor.execute(statement, params)
            for subject, detail in cursor.fetchall():
                yield str(subject), str(detail)

    return find


def _texts(states: object) -> list[str]:
    return sorted(str(state) for state in states)  # type: ignore[attr-defined]  # any set of states


LIVE = _texts(LIVE_ATTEMPT_STATES)
FINAL = _texts(FINAL_ATTEMPT_STATES)
FINISHED = _texts(FINISHED_PHASES)

ONE_LIVE_ATTEMPT = """
    SELECT task_id, 'live attempts: ' || count(*) FROM scheduling_attempt
    WHERE state = ANY(%(live)s) GROUP BY task_id HAVING count(*) > 1
"""
ATTEMPT_WITHOUT_HOLD = """
    SELECT a.id, a.state || ' without a live hold' FROM scheduling_attempt a
    LEFT JOIN scheduling_hold h ON h.attempt_id = a.id AND h.released_at IS NULL
    WHERE a.state = ANY(%(live)s) AND h.id IS NULL
"""
HOLD_OF_ENDED_ATTEMPT = """
    SELECT h.id, 'held for attempt ' || a.id || ', which is ' || a.state
    FROM scheduling_hold h JOIN scheduling_attempt a ON a.id = h.attempt_id
    WHERE h.released_at IS NULL AND a.state = ANY(%(final)s)
"""
DEVICE_BEYOND_ITSELF = """
    SELECT d.device_id, 'holds of ' || sum(d.gpu_milli) || ' thousandths, '
        || sum(d.memory_bytes) || ' bytes'
    FROM scheduling_devicehold d JOIN scheduling_device v ON v.id = d.device_id
    WHERE d.released_at IS NULL GROUP BY d.device_id, v.memory_bytes
    HAVING sum(d.gpu_milli) > 1000 OR count(*) FILTER (WHERE d.is_whole) > 1
        OR sum(d.memory_bytes) > v.memory_bytes
"""
DEVICE_HOLD_OUTLIVES = """
    SELECT d.id, 'still kept, its hold was released' FROM scheduling_devicehold d
    JOIN scheduling_hold h ON h.id = d.hold_id
    WHERE d.released_at IS NULL AND h.released_at IS NOT NULL
"""
NODE_BEYOND_CAPACITY = """
    SELECT n.name, 'holds ' || sum(h.cpu_milli) || ' cpu, ' || sum(h.memory_bytes) || ' memory, '
        || sum(h.gpu_milli) || ' gpu'
    FROM scheduling_hold h JOIN scheduling_node n ON n.id = h.node_id
    WHERE h.released_at IS NULL GROUP BY n.id
    HAVING sum(h.cpu_milli) > coalesce((n.capacity ->> 'cpu')::bigint, 0)
        OR sum(h.memory_bytes) > coalesce((n.capacity ->> 'memory')::bigint, 0)
        OR sum(h.gpu_milli) > coalesce((n.capacity ->> 'nvidia.com/gpu')::bigint, 0)
"""
PARTIAL_GANG = """
    SELECT j.id, j.name || ': ' || (j.tasks_starting + j.tasks_running + j.tasks_stopping
        + j.tasks_succeeded + j.tasks_failed) || ' of ' || j.min_available || ' were bound'
    FROM scheduling_job j
    WHERE j.phase = 'Pending' AND j.generation = 1 AND j.started_at IS NULL
        AND j.user_restarts + j.platform_restarts + j.retry_count = 0
        AND j.tasks_starting + j.tasks_running > 0
        AND NOT EXISTS (SELECT 1 FROM scheduling_attempt a
            WHERE a.job_id = j.id AND a.state = ANY(%(final)s))
        AND j.tasks_starting + j.tasks_running + j.tasks_stopping
            + j.tasks_succeeded + j.tasks_failed < j.min_available
        AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements(j.spec -> 'roles') r
            WHERE coalesce(r -> 'depends_on', 'null') <> 'null')
"""
OLD_EPOCH = """
    SELECT a.id, 'bound under epoch ' || a.epoch || ' after one under ' || m.epoch
    FROM scheduling_attempt a
    JOIN scheduling_node n ON n.id = a.node_id
    JOIN LATERAL (
        SELECT max(b.epoch) AS epoch FROM scheduling_attempt b
        JOIN scheduling_node k ON k.id = b.node_id AND k.cluster_id = n.cluster_id
        WHERE b.bound_at < a.bound_at
    ) m ON m.epoch > a.epoch
    WHERE a.bound_at > now() - interval '1 hour'
"""
EPOCH_OF_THE_FUTURE = """
    SELECT a.id, 'bound under epoch ' || a.epoch || ', the lease has had ' || l.epoch
    FROM scheduling_attempt a JOIN scheduling_node n ON n.id = a.node_id
    JOIN scheduling_lease l ON l.scope = 'scheduler:' || n.cluster_id
    WHERE a.epoch > l.epoch
"""
HISTORY_GAP = """
    SELECT j.id, j.name || ': ' || count(h.id) || ' rows, numbered up to '
        || coalesce(max(h.seq), 0) || ', counted ' || j.history_seq
    FROM scheduling_job j LEFT JOIN scheduling_history h ON h.job_id = j.id
    GROUP BY j.id HAVING count(h.id) <> j.history_seq OR coalesce(max(h.seq), 0) <> j.history_seq
"""
HISTORY_JUMP = """
    SELECT attempt_id, '#' || seq || ' goes from ' || from_state || ', was ' || before
    FROM (
        SELECT attempt_id, seq, from_state, lag(to_state) OVER w AS before
        FROM scheduling_history WHERE subject = 'attempt' WINDOW w AS
        (PARTITION BY attempt_id ORDER BY seq)
    ) steps WHERE before IS NOT NULL AND before <> from_state
"""
JOB_HISTORY_JUMP = """
    SELECT job_id, '#' || seq || ' goes from ' || from_state || ', was ' || before
    FROM (
        SELECT job_id, seq, from_state, lag(to_state) OVER w AS before
        FROM scheduling_history WHERE subject = 'job' WINDOW w AS
        (PARTITION BY job_id ORDER BY seq)
    ) steps WHERE before IS NOT NULL AND before <> from_state
"""
STATE_IS_NOT_HISTORY = """
    SELECT a.id, 'is ' || a.state || ', its history ends with ' || h.to_state
    FROM scheduling_attempt a JOIN LATERAL (
        SELECT to_state FROM scheduling_history
        WHERE attempt_id = a.id ORDER BY seq DESC LIMIT 1
    ) h ON h.to_state <> a.state
"""
TERMINAL_MOVED = """
    SELECT job_id, '#' || seq || ' leaves ' || from_state || ' for ' || to_state
    FROM scheduling_history
    WHERE from_state <> to_state AND (
        (subject = 'attempt' AND from_state = ANY(%(final)s))
        OR (subject = 'job' AND from_state = ANY(%(finished)s)))
"""
TASK_IS_NOT_ITS_ATTEMPT = """
    SELECT t.id, 'is ' || t.state || ', its live attempt is ' || coalesce(a.state, 'missing')
    FROM scheduling_task t
    LEFT JOIN scheduling_attempt a ON a.task_id = t.id AND a.state = ANY(%(live)s)
    WHERE (a.id IS NOT NULL AND a.state <> t.state)
        OR (a.id IS NULL AND t.state = ANY(%(live)s))
"""
COUNTERS_OF_ROLE = """
    SELECT r.id, r.name || ': counters differ from its tasks'
    FROM scheduling_role r JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state = 'Pending') AS pending,
            count(*) FILTER (WHERE state IN ('Bound', 'Starting')) AS starting,
            count(*) FILTER (WHERE state = 'Running') AS running,
            count(*) FILTER (WHERE state = 'Stopping') AS stopping,
            count(*) FILTER (WHERE state = 'Succeeded') AS succeeded,
            count(*) FILTER (WHERE state = 'Failed') AS failed
        FROM scheduling_task WHERE role_id = r.id
    ) t ON (t.pending, t.starting, t.running, t.stopping, t.succeeded, t.failed)
        <> (r.tasks_pending, r.tasks_starting, r.tasks_running, r.tasks_stopping,
            r.tasks_succeeded, r.tasks_failed)
"""
COUNTERS_OF_JOB = """
    SELECT j.id, j.name || ': counters differ from its roles'
    FROM scheduling_job j JOIN (
        SELECT job_id, sum(tasks_pending) AS p, sum(tasks_starting) AS s, sum(tasks_running) AS r,
            sum(tasks_stopping) AS t, sum(tasks_succeeded) AS o, sum(tasks_failed) AS f
        FROM scheduling_role GROUP BY job_id
    ) c ON c.job_id = j.id
        AND (c.p, c.s, c.r, c.t, c.o, c.f) <> (j.tasks_pending, j.tasks_starting,
            j.tasks_running, j.tasks_stopping, j.tasks_succeeded, j.tasks_failed)
"""
JOB_COUNTS = """
    SELECT coalesce(c.queue_id, j.queue_id), coalesce(c.phase, j.phase) || ': counted '
        || coalesce(c.amount, 0) || ', there are ' || coalesce(j.amount, 0)
    FROM (SELECT queue_id, phase, sum(amount) AS amount FROM scheduling_jobcount
          GROUP BY queue_id, phase HAVING sum(amount) <> 0) c
    FULL JOIN (SELECT queue_id, phase, count(*) AS amount FROM scheduling_job
          GROUP BY queue_id, phase) j ON j.queue_id = c.queue_id AND j.phase = c.phase
    WHERE coalesce(c.amount, 0) <> coalesce(j.amount, 0)
"""
FINISHED_WITH_WORK = """
    SELECT j.id, j.name || ' is ' || j.phase || ' and has a task still ' || t.state
    FROM scheduling_job j JOIN scheduling_task t ON t.job_id = j.id
    WHERE j.phase = ANY(%(finished)s) AND t.state = 'Pending'
"""
ORPHAN_COMMAND = """
    SELECT o.id, 'Bound attempt ' || a.id || ' has no launch under way'
    FROM scheduling_attempt a
    LEFT JOIN tenants_outboxrow o ON o.key = a.id::text AND o.topic = 'attempt.launch'
    JOIN scheduling_node n ON n.id = a.node_id
    WHERE a.state = 'Bound' AND o.id IS NULL AND n.state = 'Ready'
        AND a.bound_at < now() - interval '2 minutes'
"""
STUCK_OUTBOX = """
    SELECT id, topic || ' of ' || created_at || ' is not delivered'
    FROM tenants_outboxrow
    WHERE node IS NULL AND NOT is_dead AND created_at < now() - interval '10 minutes'
"""
ACCEPTED_WITHOUT_AUDIT = """
    SELECT j.id, j.name || ' was accepted without an audit row' FROM scheduling_job j
    WHERE NOT EXISTS (SELECT 1 FROM tenants_auditrow a
        WHERE a.action = 'job.create' AND a.subject_id = j.id::text)
"""
TWO_EFFECTS_OF_A_KEY = """
    SELECT user_id, 'key ' || key || ' is kept ' || count(*) || ' times'
    FROM tenants_idempotencykey GROUP BY user_id, key HAVING count(*) > 1
"""
RETRIES_BEYOND_MAX = """
    SELECT id, name || ' was restarted ' || retry_count || ' times, max_retry is ' || max_retry
    FROM scheduling_job WHERE retry_count > greatest(max_retry, 1)
"""
OTHER_TENANT = """
    SELECT j.id, j.name || ' lies in a queue of another tenant' FROM scheduling_job j
    JOIN scheduling_queue q ON q.id = j.queue_id JOIN tenants_orgunit u ON u.id = q.unit_id
    WHERE u.tenant_id <> j.tenant_id OR j.unit_id <> q.unit_id
"""


def _queues_beyond_max() -> Iterator[tuple[str, str]]:
    """Compare the sum of live holds of each subtree with the queue's max."""
    for queue in Queue.objects.exclude(max={}):
        usage = holds.usage_of_queue(queue)
        for resource, most in queue.max.items():
            if usage.get(resource, 0) > most:
                yield str(queue.name), f"holds {usage[resource]} {resource}, max is {most}"


def _illegal_steps() -> Iterator[tuple[str, str]]:
    """Compare each transition of an attempt with the table."""
    allowed = {(str(before), str(event)) for before, event in ATTEMPT_TABLE}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (from_state, event, to_state) attempt_id, from_state, event,"
            " to_state FROM scheduling_history WHERE subject = 'attempt' AND from_state <> ''"
            " AND reason_code <> 'late_report'"
        )
        for attempt_id, before, event, after in cursor.fetchall():
            row = ATTEMPT_TABLE.get((before, event)) if (before, event) in allowed else None
            if row is None or (row.to is not None and row.to != after):
                yield str(attempt_id), f"{before} --{event}--> {after} is not in the table"


def _broken_seals() -> Iterator[tuple[str, str]]:
    """Ask the audit trail whether its chains hold."""
    for finding in audit.verify().findings:
        yield finding.chain, f"#{finding.position} {finding.kind}: {finding.subject}"


_STATES: Mapping[str, list[str]] = {"live": LIVE, "final": FINAL, "finished": FINISHED}


def _rule(name: str, must_hold: str, statement: str) -> Rule:
    return Rule(name, must_hold, _query(statement, **_STATES))


RULES: tuple[Rule, ...] = (
    _rule("I1.accepted", "every accepted job has its audit row", ACCEPTED_WITHOUT_AUDIT),
    _rule("I2.one_live_attempt", "at most one live attempt a task", ONE_LIVE_ATTEMPT),
    _rule("I2.task_is_its_attempt", "a task's state is its attempt's", TASK_IS_NOT_ITS_ATTEMPT),
    _rule("I3.device", "no device is held beyond itself", DEVICE_BEYOND_ITSELF),
    _rule("I3.device_released", "a device is free with its hold", DEVICE_HOLD_OUTLIVES),
    _rule("I4.attempt_holds", "a live attempt holds its place", ATTEMPT_WITHOUT_HOLD),
    _rule("I4.ended_holds_nothing", "an ended attempt holds nothing", HOLD_OF_ENDED_ATTEMPT),
    _rule("I4.node", "no node is held beyond its capacity", NODE_BEYOND_CAPACITY),
    Rule("I4.queue_max", "no queue holds more than its max at any level", _queues_beyond_max),
    _rule("I5.gang", "a gang is bound wholly or not at all", PARTIAL_GANG),
    _rule("I6.epoch_order", "no bind under a superseded epoch", OLD_EPOCH),
    _rule("I6.epoch_known", "no bind under an epoch nobody had", EPOCH_OF_THE_FUTURE),
    Rule("I8.table", "attempts move only along the table", _illegal_steps),
    _rule("I8.attempt_path", "an attempt goes on from where it was", HISTORY_JUMP),
    _rule("I8.job_path", "a job goes on from where it was", JOB_HISTORY_JUMP),
    _rule("I8.terminal", "terminal states are final", TERMINAL_MOVED),
    _rule("I8.finished", "a finished job has no waiting task", FINISHED_WITH_WORK),
    _rule("I9.history", "one history row a transition, without a gap", HISTORY_GAP),
    _rule("I9.state_is_history", "a state is what its history ends with", STATE_IS_NOT_HISTORY),
    Rule("I9.seals", "the chains of audit rows hold", _broken_seals),
    _rule("I10.keys", "one effect a key", TWO_EFFECTS_OF_A_KEY),
    _rule("I11.retries", "no more restarts than max_retry", RETRIES_BEYOND_MAX),
    _rule("I13.tenant", "a job lies in a queue of its own tenant", OTHER_TENANT),
    _rule("I14.role_counters", "a role's counters are its tasks", COUNTERS_OF_ROLE),
    _rule("I14.job_counters", "a job's counters are its roles'", COUNTERS_OF_JOB),
    _rule("I14.job_counts", "counts by queue and phase are the jobs", JOB_COUNTS),
    _rule("I14.launch", "a bound attempt's launch is under way", ORPHAN_COMMAND),
    _rule("I14.outbox", "no message is stuck", STUCK_OUTBOX),
)
