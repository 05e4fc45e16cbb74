"""Parts of GPUs in a running system: placed, held, refused beyond a card, told to the task."""

from __future__ import annotations

import pytest

from scheduling.domain import apply_plan, invariants, launches, nodes
from scheduling.domain.transitions import LAUNCH_TOPIC
from scheduling.models import DeviceHold, Job
from scheduling.spec.job_spec import RoleSpec
from tenants.models import OutboxRow
from tests.factories.cluster import GIB, Site, make_site, role

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site() -> Site:
    return make_site()


def cards(count: int) -> list[nodes.DeviceFacts]:
    return [
        nodes.DeviceFacts(uuid=f"GPU-{i}", index=i, memory_bytes=80 * GIB) for i in range(count)
    ]


def held(job: Job) -> list[tuple[str, int, int]]:
    rows = DeviceHold.objects.filter(hold__attempt__job=job, released_at__isnull=True)
    return sorted(rows.values_list("device__uuid", "gpu_milli", "memory_bytes"))


def told(job: Job) -> dict[str, str]:
    rows = OutboxRow.objects.filter(topic=LAUNCH_TOPIC)
    (order,) = [
        order
        for order in launches.compose(list(rows)).launches.values()
        if order.job == str(job.id)
    ]
    names = ("TERRACE_GPU", "CUDA_MPS")
    return {name: text for name, text in order.environment.items() if name.startswith(names)}


def by_memory(mib: int, *, cores: int = 0) -> RoleSpec:
    amounts = {"volcano.sh/vgpu-memory": mib * 1000, "volcano.sh/vgpu-cores": cores * 1000}
    return role(resources={"volcano.sh/vgpu-number": 1000, **amounts})


def test_parts_of_one_card_share_it(site: Site) -> None:
    """Two parts by thousandths and one by memory: what each holds is on record, and it is told."""
    site.node(devices=cards(1))
    parts = site.submit(role(gpu_milli=300, replicas=2))
    stated = site.submit(by_memory(1024, cores=30))

    site.cycle()

    assert held(parts) == [("GPU-0", 300, 24 * GIB)] * 2
    assert held(stated) == [("GPU-0", 300, GIB)]
    assert told(stated) == {
        "TERRACE_GPU_MILLI": "300",
        "TERRACE_GPU_MEMORY_BYTES": str(GIB),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    }
    assert [one for one in invariants.check() if one.rule != "I14.outbox"] == []


@pytest.mark.parametrize(
    "wanted", [role(gpu_milli=500), by_memory(50 * 1024), role(gpu_milli=1000)]
)
def test_what_two_cards_have_left_together_is_no_room(site: Site, wanted: RoleSpec) -> None:
    """Each card has four tenths left: no task gets more than that, nor a whole card."""
    site.node(devices=cards(2))
    site.started(role(gpu_milli=600, replicas=2))

    job = site.submit(wanted)
    applied = site.cycle()

    assert (held(job), applied.rejected) == ([], [])


def test_a_card_that_filled_meanwhile_refuses_a_part(site: Site) -> None:
    """The rows decide, not the snapshot: memory is counted beside compute."""
    site.node(devices=cards(1))
    late = site.submit(by_memory(60 * 1024))
    plan = site.plan()
    before = site.cache.snapshot
    faster = site.submit(by_memory(30 * 1024), priority=9)
    assert before is not None
    Job.objects.filter(id=late.id).update(wish="hold")
    site.cycle()
    Job.objects.filter(id=late.id).update(wish="")

    applied = apply_plan.apply(
        plan,
        cluster_id=site.cluster.id,
        scope=site.scope,
        epoch=site.epoch,
        snapshot=before,
        now=site.now,
    )

    assert held(faster) == [("GPU-0", 0, 30 * GIB)]
    assert (applied.binds, held(late)) == (0, [])


def test_a_card_is_chosen_by_the_name_of_its_driver(site: Site) -> None:
    """The annotation says what `nvidia-smi` says; a model is chosen by a part of its name."""
    facts = [
        nodes.DeviceFacts(uuid=f"GPU-{i}", index=i, model=model, memory_bytes=80 * GIB)
        for i, model in enumerate(("NVIDIA A100", "NVIDIA H100", "NVIDIA H100"))
    ]
    site.node(devices=facts)

    named = site.submit(role(gpu_milli=1000, annotations={"nvidia.com/use-gpuuuid": "GPU-2"}))
    model = site.submit(role(gpu_milli=1000, annotations={"nvidia.com/use-gputype": "H100"}))
    site.cycle()
    other = site.submit(role(gpu_milli=1000, annotations={"nvidia.com/nouse-gpuuuid": "GPU-0"}))
    site.cycle()

    assert [[one[0] for one in held(job)] for job in (named, model, other)] == [
        ["GPU-2"],
        ["GPU-1"],
        [],
    ]
    assert told(named) == {}
