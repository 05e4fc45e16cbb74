"""The effect of a change of queues, shown before it is made: the engine's own answer, no guess."""

import pytest

from scheduling.domain import queues
from scheduling.domain.queue_changes import QueueEdit
from scheduling.domain.queue_preview import Preview
from scheduling.engine import cycle
from scheduling.engine.types import Plan, Snapshot
from scheduling.models import Cluster, Job, Node, Queue
from tenants.domain.errors import Conflict, Denied, Invalid
from tenants.models import AuditRow, GrantRole, OutboxRow
from tests.factories.rivals import Rivals

GPU = "nvidia.com/gpu"


def shares(preview: Preview) -> dict[str, tuple[int, int, int]]:
    """Return deserved before, after and allocated GPUs by queue."""
    return {
        share.queue: (
            share.deserved_before.get(GPU, 0) // 1000,
            share.deserved_after.get(GPU, 0) // 1000,
            share.allocated.get(GPU, 0) // 1000,
        )
        for share in preview.shares
    }


def test_weight_moves_shares(rivals: Rivals) -> None:
    """A weight of 3 to 1 would move 2 of 8 GPUs: 2 tasks lose their claim, 2 others start."""
    before = (AuditRow.objects.count(), OutboxRow.objects.count())
    assert rivals.vision.unit is not None
    manager = rivals.actor(rivals.vision.unit.tenant, GrantRole.QUEUE_MANAGER)

    preview = rivals.preview(manager, rivals.speech, weight=3)

    assert shares(preview) == {
        "default": (8, 8, 8),
        "robots": (4, 2, 4),
        "speech": (4, 6, 4),
        "vision": (4, 2, 4),
    }
    assert [(effect.queue, effect.tasks) for effect in preview.reclaimable] == [
        ("robots", 1),
        ("robots", 1),
    ]
    assert [(effect.job, effect.tasks) for effect in preview.starts] == [
        ("speech-2-0", 1),
        ("speech-2-1", 1),
    ]
    assert [effect.queue for effect in preview.evictions] == ["robots", "robots"]
    assert preview.warnings == ()
    assert Queue.objects.get(id=rivals.speech.id).weight == 1
    assert (AuditRow.objects.count(), OutboxRow.objects.count()) == before


def test_poison_job_is_left_out(rivals: Rivals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that makes planning fail breaks no preview: the others are planned without it."""
    whole = cycle.plan

    def plan(snapshot: Snapshot, *args: object, **kwargs: object) -> Plan:
        if any(job.name == "speech-2-0" for job in snapshot.jobs):
            raise ZeroDivisionError("a bug")
        return whole(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(cycle, "plan", plan)
    preview = rivals.preview(rivals.site.admin, rivals.speech, weight=3)

    assert "speech-2-1" in [effect.job for effect in preview.starts]
    assert "speech-2-0" not in [effect.job for effect in preview.starts]


def test_unreadable_job_is_left_out(rivals: Rivals) -> None:
    """A job whose rows make none breaks no preview."""
    Job.objects.filter(name="speech-2-0").update(spec={"roles": "none"})

    preview = rivals.preview(rivals.site.admin, rivals.speech, weight=3)

    assert "speech-2-1" in [effect.job for effect in preview.starts]


def test_no_effect_is_empty(rivals: Rivals) -> None:
    """A change that moves nothing shows no effect and equal shares."""
    preview = rivals.preview(rivals.site.admin, rivals.robots, weight=9)

    assert (preview.reclaimable, preview.starts, preview.evictions) == ((), (), ())
    assert not any(share.is_changed for share in preview.shares)
    assert queues.preview_edits(actor=rivals.site.admin, edits=[], now=rivals.site.now).shares == ()


def test_others_are_amounts(rivals: Rivals) -> None:
    """Who manages one department sees of the other's jobs how many tasks, and no name or share."""
    manager = rivals.actor(rivals.vision.unit, GrantRole.QUEUE_MANAGER)

    preview = rivals.preview(manager, rivals.robots, min={GPU: 6000})

    assert shares(preview) == {"robots": (4, 6, 4), "vision": (4, 6, 4)}
    assert [
        (effect.job_id, effect.job, effect.queue, effect.tasks) for effect in preview.evictions
    ] == [(None, "", "", 2)]
    assert "speech" not in str(preview)


def test_more_min_than_there_is(rivals: Rivals) -> None:
    """A guarantee beyond the cluster is allowed and warned of."""
    preview = rivals.preview(rivals.site.admin, rivals.speech, min={GPU: 9000})

    assert [(warning.code, warning.params["amount"]) for warning in preview.warnings] == [
        ("queue_min_above_total", 9000)
    ]


def test_refuses_what_applying_would_refuse(rivals: Rivals) -> None:
    """Rights, rules and versions hold for the preview as for the change."""
    viewer = rivals.actor(rivals.speech.unit, GrantRole.RESEARCHER)
    with pytest.raises(Denied):
        rivals.preview(viewer, rivals.speech, weight=2)
    with pytest.raises(Invalid):
        rivals.preview(rivals.site.admin, rivals.speech, weight=0)
    with pytest.raises(Conflict):
        rivals.preview(rivals.site.admin, rivals.speech, version=7, weight=2)


def test_preview_then_apply_is_what_was_said(rivals: Rivals) -> None:
    """The next cycle after applying does what the preview named."""
    admin = rivals.site.admin
    edit = QueueEdit(queue_id=rivals.speech.id, expected_version=1, weight=3)
    said = queues.preview_edits(actor=admin, edits=[edit], now=rivals.site.now)

    queues.edit_queues(actor=admin, edits=[edit], now=rivals.site.now)
    plan = rivals.site.plan()

    evicted = sorted(eviction.job for eviction in plan.evictions)
    assert evicted == sorted(str(effect.job_id) for effect in said.evictions)
    placed = [bind.job for bind in plan.binds] + [promise.job for promise in plan.pipelined]
    assert sorted(placed) == sorted(str(effect.job_id) for effect in said.starts)


def test_configuration_in_force(rivals: Rivals) -> None:
    """The cluster's own configuration plans the preview; a wrong one is not in force."""
    clusters = Cluster.objects.filter(id=rivals.site.cluster.id)
    clusters.update(
        scheduler_config='actions: "enqueue, allocate, backfill"\n'
        "tiers: [{plugins: [{name: gang}, {name: shares}, {name: predicates}]}]"
    )
    without_reclaim = rivals.preview(rivals.site.admin, rivals.speech, weight=3)
    clusters.update(scheduler_config="actions: [")
    by_default = rivals.preview(rivals.site.admin, rivals.speech, weight=3)

    assert without_reclaim.evictions == ()
    assert [effect.tasks for effect in by_default.evictions] == [1, 1]


def test_what_is_not_reclaimable(rivals: Rivals) -> None:
    """Tasks of a queue that gives nothing back are not named as reclaimable."""
    Queue.objects.filter(id=rivals.robots.id).update(reclaimable=False)

    assert rivals.preview(rivals.site.admin, rivals.speech, weight=3).reclaimable == ()


def test_no_open_queue_and_no_usable_node(rivals: Rivals) -> None:
    """A tree in which no leaf is open is warned of; a cordoned node counts for nothing."""
    Queue.objects.exclude(parent=None).update(state="Closed")
    Node.objects.update(is_cordoned=True)

    preview = rivals.preview(rivals.site.admin, rivals.speech, min={GPU: 1000})

    assert {(warning.code, warning.params.get("bound")) for warning in preview.warnings} == {
        ("queue_min_above_total", 0),
        ("queue_no_open_leaf", None),
    }
