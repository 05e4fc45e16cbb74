"""Which user a task runs as: never root, and not the agent's own where that can be helped."""

from __future__ import annotations

import os
import pwd
import threading
from dataclasses import dataclass, field
from pathlib import Path

from worker.agent.config import AgentConfig, ConfigError
from worker.agent.placing import Owner
from worker.shim import records

FILE = "tenants.json"


@dataclass(slots=True)
class TaskUsers:
    """Gives each tenant an id of its own, the same one for as long as the data folder lives."""

    config: AgentConfig
    data: Path
    _by_tenant: dict[str, int] = field(default_factory=dict)
    _fixed: Owner | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Launches prepare in threads: two tenants must not be given one id."""

    def __post_init__(self) -> None:
        """Read what was given out before.

        Raises:
            ConfigError: the configured user does not exist or is root.
        """
        if not self.is_dropping:
            self._fixed = Owner()
        elif self.config.user:
            self._fixed = _named_user(self.config.user)
        record = records.read(str(self.data / FILE)) or {}
        self._by_tenant = {str(k): int(v) for k, v in record.items() if isinstance(v, int)}

    @property
    def is_dropping(self) -> bool:
        """Whether tasks run as somebody else than the agent."""
        return os.geteuid() == 0 and self.config.may_drop_privileges

    def owner_for(self, tenant: str) -> Owner:
        """Return the user for the tenant's tasks; a new tenant gets the next free id.

        Raises:
            ConfigError: all ids are given out.
        """
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            uid = self._by_tenant.get(tenant)
            if uid is None:
                uid = self._next_uid()
                records.write(str(self.data / FILE), {**self._by_tenant, tenant: uid})
                self._by_tenant[tenant] = uid
        return Owner(uid, uid)

    def warnings(self) -> list[str]:
        """Say what weakens the wall between tasks and this machine."""
        if self.is_dropping:
            return []
        if os.geteuid() == 0:
            return ["tasks run as root, because agent.toml has may_drop_privileges = false"]
        name = _user_name(os.geteuid())
        banner = (
            f"tasks run as the agent's own user {name}: they can read its files and credential; "
            "run the agent as root, which gives each tenant an unprivileged user"
        )
        return [banner]

    def _next_uid(self) -> int:
        taken = set(self._by_tenant.values())
        first = self.config.uid_first
        for uid in range(first, first + self.config.uid_count):
            if uid not in taken:
                return uid
        raise ConfigError(
            f"all {self.config.uid_count} user ids from {first} are given to tenants; "
            "raise uid_count in agent.toml"
        )


def _named_user(name: str) -> Owner:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"user = {name!r} in agent.toml: no such user on this machine") from None
    if entry.pw_uid == 0:
        raise ConfigError("user = 'root' in agent.toml: tasks are never run as root; name another")
    return Owner(entry.pw_uid, entry.pw_gid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
