"""Which user a tenant's tasks get."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.agent.config import AgentConfig
from worker.agent.users import TaskUsers


def test_tenants_that_arrive_at_once_get_ids_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches in parallel threads give each tenant one id, and no two tenants the same."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    users = TaskUsers(AgentConfig(), tmp_path)
    tenants = [f"tenant-{number % 8}" for number in range(64)]

    with ThreadPoolExecutor(16) as pool:
        owners = list(pool.map(users.owner_for, tenants))

    ids = {tenant: owner.uid for tenant, owner in zip(tenants, owners, strict=True)}
    assert [ids[tenant] for tenant in tenants] == [owner.uid for owner in owners]
    assert len(set(ids.values())) == 8


def test_a_tenant_keeps_its_id_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts again on the same folder gives a tenant the id that it had."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    first = TaskUsers(AgentConfig(), tmp_path).owner_for("vision")

    again = TaskUsers(AgentConfig(), tmp_path).owner_for("vision")

    assert again == first
