"""Restore a backup, so that everything of it is in force or nothing.

1. Check the backup, byte by byte, and that this version can read it.
2. Refuse while anything is connected to the database, and over what is there unless told to.
3. Put what is there aside. From here on `prepare` refuses to start until this is finished; a
   restore that was killed is undone by the next one.
4. Bring back rows and files, migrate them to this version.
5. Wait until no task of any node can run any more: then nothing is started twice.
6. In one transaction: let the rows know that they are of the past, and drop what stood aside.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.loader import MigrationLoader

from controlplane.backup import database, files, manifest
from controlplane.backup.errors import BackupError
from controlplane.backup.manifest import Manifest
from scheduling.domain import nodes, restored
from scheduling.domain.clock import database_now
from scheduling.domain.restored import Restored


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be restored, and over what."""

    folder: Path
    replaces: bool = False
    """Over an installation that has something in it, which is then gone."""
    agent_identity: Path | None = None
    """Where the agent of this machine keeps its credential, which the backup may not know."""


def bring_back(order: Order, say: Callable[[str], None]) -> tuple[Manifest, Restored]:
    """Restore, or leave everything as it was.

    Raises:
        BackupError: the backup is not whole, not for this version, or there is something already.
    """
    found = manifest.read(order.folder)
    say(f"Checking the backup of {found.taken_at} (Terrace {found.terrace_version}).")
    manifest.verify(order.folder, found)
    _require_known_migrations(found)
    _require_alone()
    if found.secrets_key not in {"", settings.TERRACE_SECRETS_KEYRING.current}:
        say(
            f"The key {found.secrets_key} sealed secrets then, and TERRACE_SECRETS_KEY begins with "
            "another one: add it (make up: the file secrets-key), or those secrets stay closed."
        )
    begun = time.monotonic()
    database.take_time()
    if database.is_being_restored():
        say("An earlier restore was interrupted; undoing it first.")
        _put_back()
    _require_empty(found, replaces=order.replaces)
    try:
        _set_aside()
        try:
            _fill(order, found, say)
            _outwait_tasks(begun, found, say)
            rejoining = _rejoining(order)
            with transaction.atomic():
                changed = restored.begin_anew(
                    taken_at=found.time, now=database_now(), rejoining=rejoining
                )
                database.drop_aside()
        except BaseException:
            connection.close()  # whatever state it is in
            database.take_time()
            _put_back()
            raise
    except (DatabaseError, OSError) as error:
        message = f"The backup could not be restored, and everything is as it was: {error}"
        raise BackupError(message) from error
    files.drop_aside()
    if rejoining and order.agent_identity is not None:
        order.agent_identity.unlink(missing_ok=True)
    return found, changed


def _fill(order: Order, found: Manifest, say: Callable[[str], None]) -> None:
    say("Restoring the database.")
    database.restore(order.folder / manifest.DATABASE)
    if found.has_files:
        say(f"Restoring {found.files} files.")
        files.copy_in(order.folder / manifest.FILES, manifest.entries(order.folder))
    say("Migrating to this version.")
    call_command("migrate", interactive=False, verbosity=0, skip_checks=True)


def _set_aside() -> None:
    database.set_aside()
    files.set_aside()


def _put_back() -> None:
    # The database last: it is the mark that something is still to be put back.
    files.put_back()
    database.put_back()


def _require_known_migrations(found: Manifest) -> None:
    known = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    apps = {app for app, _ in known}
    for app, name in sorted(found.migrations.items()):
        if app in apps and (app, name) not in known:
            message = (
                f"The backup was taken by Terrace {found.terrace_version}, which is newer than "
                f"this one: it has the migration {app}.{name}. Install that version or a later one."
            )
            raise BackupError(message)


def _require_alone() -> None:
    others = database.others()
    if others:
        message = (
            f"The database is in use by {', '.join(others)}: end web, gateway, workers and beat "
            "first, on every machine."
        )
        raise BackupError(message)


def _require_empty(found: Manifest, *, replaces: bool) -> None:
    if replaces:
        return
    what = "" if database.is_empty() else "The database has tables"
    if found.has_files and not what and not files.is_empty():
        what = "The file store has files"
    if what:
        message = (
            f"{what}: this installation is in use. To replace all that it has by the backup, "
            "without a way back, say so with --replace."
        )
        raise BackupError(message)


def _outwait_tasks(begun: float, found: Manifest, say: Callable[[str], None]) -> None:
    """Wait as long as a task may go on unheard, from when nobody could have heard it any more."""
    lease = max(found.node_lease_seconds, settings.TERRACE_NODE_LEASE_SECONDS)
    left = begun + nodes.longest_silence(lease).total_seconds() - time.monotonic()
    if left > 0:
        say(f"Waiting {left:.0f} s, until every task that a node may still run has ended.")
        time.sleep(left)


def _rejoining(order: Order) -> str:
    """Return this machine's name if its agent has to join anew, else nothing."""
    if order.agent_identity is None:
        return ""
    try:
        known = json.loads(order.agent_identity.read_text(encoding="utf-8"))
        if nodes.authenticate(str(known.get("credential", ""))) is not None:
            return ""
    except (FileNotFoundError, ValueError, AttributeError):
        pass  # it has none, or none of use
    return socket.gethostname().lower()
