"""Where things lie on the node, and which of them a task's user may enter.

DATA/                    0711  the agent's
  node.json              0600  identity and credential
  agent.toml                   what the machine's owner decides
  state.json  lease  tenants.json
  attempts/ID/           0700  records and logs; never a task's
JOBS/                    0711  DATA/jobs unless configured or out of the tasks' reach
  JOB/                   0711
    shared/              0700  the task user's; outlives attempts (TERRACE_JOB_DIR)
    ATTEMPT/             0711  the agent's, so that what lies in it cannot be swapped
      work/ output/ home/ tmp/   0700, the task user's
      files/ hosts metrics.jsonl
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from worker.shim import child

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class UnsafeNameError(ValueError):
    """A name that came over the wire cannot be a folder's name."""


def safe_name(name: str, what: str) -> str:
    """Return the name if it can be one part of a path.

    Raises:
        UnsafeNameError: it is empty, too long, or has characters beyond letters, digits, `._-`.
    """
    if not SAFE_NAME.fullmatch(name):
        raise UnsafeNameError(f"{what} {name[:80]!r}: letters, digits, . _ - only, at most 200")
    return name


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The paths of one node."""

    data: Path
    jobs: Path

    @property
    def attempts(self) -> Path:
        """Where each attempt has its records."""
        return self.data / "attempts"

    @property
    def lease(self) -> Path:
        """The file whose deadline all supervisors of this node obey."""
        return self.data / "lease"

    def attempt(self, attempt: str) -> Path:
        """Return the folder of an attempt's records and logs."""
        return self.attempts / safe_name(attempt, "attempt")

    def job(self, job: str) -> Path:
        """Return the folder of a job."""
        return self.jobs / safe_name(job, "job")

    def create(self) -> None:
        """Make what is missing."""
        self.data.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.data.chmod(0o711)  # whatever the umask was: task users pass through to their job
        self.attempts.mkdir(mode=0o700, exist_ok=True)
        self.jobs.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.jobs.chmod(0o711)


def choose_jobs_folder(data: Path, configured: Path | None, *, needs_passage: bool) -> Path:
    """Return where job folders go: configured, in the data folder, or where task users may enter.

    Args:
        data: the agent's folder.
        configured: what `agent.toml` says.
        needs_passage: tasks run as users who may not pass, say, /root, and a job's folder cannot
            be shown to them in a mount namespace either.
    """
    if configured is not None:
        return configured.absolute()
    if needs_passage and child.barrier(str(data.resolve() / "jobs")):
        key = hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:12]
        return Path("/var/lib/terrace-jobs") / key
    return data.absolute() / "jobs"
