"""Secrets on a node: in memory, in a private folder until the task ends, and in no record."""

from __future__ import annotations

import base64
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories.ears import Ears
from worker.agent.attempts import new_attempt, read_launch, store_launch, without_secrets
from worker.agent.config import AgentConfig, Runtime, RuntimeKind
from worker.agent.folders import NodeFolders
from worker.agent.host import HostMachine
from worker.agent.identity import Identity
from worker.agent.preparing import Preparer, attempt_folders, forget_secrets
from worker.agent.users import TaskUsers
from worker.protocol import FileToPlace, Launch, decode, encode
from worker.shim import records, spec

HOST = Runtime("host", RuntimeKind.INTERPRETER, sys.executable)
CANARY = "canary-never-written-down"


def launch(**fields: object) -> Launch:
    given: dict[str, object] = {
        "command_id": 1,
        "epoch": 1,
        "attempt": "a",
        "job": "j",
        "task": "j-m-0",
        "tenant": "t",
        "argv": ["true"],
        "runtime": "host",
        "environment": {"PLAIN": "1"},
        "secret_environment": {"TOKEN": CANARY, "PATH": "/own/bin", "TERRACE_OUTPUT": CANARY},
        "secret_files": [_file("keys/id", CANARY), _file("registry/config.json", "{}")],
    }
    return Launch(**{**given, **fields})  # type: ignore[arg-type]  # a message's fields


def _file(path: str, text: str) -> FileToPlace:
    return FileToPlace(path=path, content=base64.b64encode(text.encode()).decode(), mode=0o644)


@pytest.fixture
def folders(tmp_path: Path) -> NodeFolders:
    made = NodeFolders(tmp_path / "data", tmp_path / "jobs")
    made.data.mkdir()
    made.create()
    return made


@pytest.fixture
def preparer(folders: NodeFolders) -> Preparer:
    config = AgentConfig(may_drop_privileges=False, runtimes={"host": HOST})
    identity = Identity(node="n", server="http://127.0.0.1:1", credential="c")
    return Preparer(config, folders, TaskUsers(config, folders.data), identity, may_mount=False)


def test_files_are_private_whatever_the_command_says(
    preparer: Preparer, folders: NodeFolders
) -> None:
    """0600 in a folder of 0700, gone with `forget_secrets`, which may be called twice."""
    prepared = preparer.prepare(launch(), {})
    where = attempt_folders(folders, launch())

    modes = [
        stat.S_IMODE(path.stat().st_mode) for path in (where.secrets, where.secrets / "keys/id")
    ]
    assert modes == [0o700, 0o600]
    assert (where.secrets / "keys/id").read_text() == CANARY
    assert prepared.spec.environment["TERRACE_SECRETS"] == str(where.secrets)
    assert prepared.spec.environment["DOCKER_CONFIG"] == str(where.secrets / "registry")

    forget_secrets(where)
    forget_secrets(where)
    assert not where.secrets.exists()


def test_variables_are_kept_apart_from_what_is_written(preparer: Preparer) -> None:
    """The spec has none of them; what the agent itself says of the task stays as it says it."""
    prepared = preparer.prepare(launch(), {})

    path = prepared.secret_environment.pop("PATH")
    assert path.endswith(":/own/bin")  # the runtime's own folder comes first
    assert prepared.secret_environment == {"TOKEN": CANARY}
    assert CANARY not in str(prepared.spec.record())
    assert "/own/bin" not in str(prepared.spec.record())
    assert prepared.spec.environment["PLAIN"] == "1"
    assert prepared.spec.environment["TERRACE_OUTPUT"].endswith("/output")
    assert CANARY not in repr(preparer.prepare(launch(), {}))


def test_path_of_a_secret_stays_in_its_folder(preparer: Preparer) -> None:
    """A path that leads out is refused before anything is written there."""
    with pytest.raises(Exception, match="below the task's folder"):
        preparer.prepare(launch(secret_files=[_file("../../out", "x")]), {})


def test_record_of_a_command_has_no_secret(folders: NodeFolders) -> None:
    """What the agent reads after its restart says that there were some."""
    attempt = new_attempt(folders.attempt("a"), launch(), metrics=None)

    store_launch(attempt, launch())

    assert CANARY not in Path(attempt.path(records.LAUNCH)).read_text()
    found = read_launch(folders.attempt("a"))
    assert found == replace(
        launch(), secret_environment={}, secret_files=[], are_secrets_left_out=True
    )
    assert without_secrets(launch(secret_environment={}, secret_files=[])) == launch(
        secret_environment={}, secret_files=[]
    )


def test_message_carries_secrets_and_shows_none() -> None:
    """Over the wire they arrive whole; a printed message has nothing of them."""
    assert decode(encode(launch())) == launch()
    assert CANARY not in repr(launch())


async def test_task_whose_secrets_died_with_the_agent_is_given_back(
    preparer: Preparer, folders: NodeFolders
) -> None:
    """It never started here, so it is reported as gone, to be tried again."""
    machine = HostMachine(config=preparer.config, folders=folders, preparer=preparer)
    store_launch(new_attempt(folders.attempt("a"), launch(), metrics=None), launch())
    attempt = new_attempt(folders.attempt("a"), read_launch(folders.attempt("a")), metrics=None)
    ears = Ears()

    machine.adopt(attempt, ears)

    assert [(one.state, one.reason) for one in ears.reports] == [("Exited", "SecretsLost")]
    await machine.close()


def test_shim_reads_variables_from_memory() -> None:
    """The shared file is read from its start, wherever the writer left off."""
    fd = os.memfd_create("t")
    os.write(fd, b'{"TOKEN": "x"}')

    assert spec.load_secrets(fd) == {"TOKEN": "x"}


@pytest.mark.parametrize("text", [b"canary", b"[1]", b'{"A": 1}'])
def test_damaged_variables_stop_the_shim_without_being_shown(text: bytes) -> None:
    """The text of the error is of our own words."""
    fd = os.memfd_create("t")
    os.write(fd, text)

    with pytest.raises(ValueError, match="secrets: not a") as error:
        spec.load_secrets(fd)
    assert "canary" not in str(error.value)
