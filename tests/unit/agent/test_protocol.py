"""The border between gateway and agent: what is written comes back, nonsense is named."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import protocol
from worker.protocol import (
    Ack,
    AttemptReport,
    DeviceInfo,
    FileToPlace,
    Heartbeat,
    Hello,
    Launch,
    LogChunk,
    ProtocolError,
    Report,
    RuntimeInfo,
    Stop,
)

MESSAGES: list[protocol.Message] = [
    Hello(
        version=1,
        node="n",
        boot_id="b",
        agent_version="0",
        highest_epoch=3,
        cpu_milli=1000,
        memory_bytes=5,
        numa_nodes=[{"id": 0, "cpus": "0-3", "memory_bytes": 5}],
        devices=[DeviceInfo(uuid="g", index=0, links={"h": "NVLink"})],
        runtimes=[RuntimeInfo(name="enroot", kind="wrapper", images={"python+3": 5})],
    ),
    Report(
        session="s",
        seq=1,
        attempts=[AttemptReport(attempt="a", state="Exited", at=1.5, exit_code=3)],
        logs=[LogChunk(attempt="a", stream="stdout", offset=0, data="eA==")],
    ),
    Heartbeat(session="s", sent=1.0),
    Launch(
        command_id=1,
        epoch=2,
        attempt="a",
        job="j",
        task="t",
        tenant="o",
        argv=["sh", "-c", "x"],
        runtime="host",
        files=[FileToPlace(path="x", content="eA==")],
        time_limit_seconds=None,
    ),
    Stop(command_id=1, epoch=2, attempt="a", grace_seconds=3.0),
    Ack(session="s", seq=1, lease_seconds=10.0),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trip(message: protocol.Message) -> None:
    """Every message comes back equal."""
    assert protocol.decode(protocol.encode(message)) == message


def test_unknown_field() -> None:
    """A newer peer may say more."""
    assert protocol.decode('{"type":"Heartbeat","session":"s","news":1}') == Heartbeat("s")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"type": "Nonsense"}, "unknown message 'Nonsense'"),
        ({"type": "Heartbeat"}, "Heartbeat.session: missing"),
        ({"type": "Heartbeat", "session": 5}, "Heartbeat.session: expected str, got int"),
        ({"type": "Heartbeat", "session": "s", "sent": True}, "Heartbeat.sent: expected float"),
        ({"type": "Report", "session": "s", "seq": 1.5}, "Report.seq: expected int, got float"),
        ({"type": "Report", "session": "s", "seq": 1, "logs": {}}, "Report.logs: expected a list"),
        (
            {"type": "Report", "session": "s", "seq": 1, "logs": [{"attempt": 1}]},
            r"Report.logs\[0\].attempt: expected str, got int",
        ),
    ],
)
def test_wrong_field(document: dict[str, Any], words: str) -> None:
    """A refusal names the field by its path."""
    with pytest.raises(ProtocolError, match=words):
        protocol.decode(json.dumps(document))


@pytest.mark.parametrize(
    "frame", ["", "[]", "null", "{", "[" * 100_000, '{"type":"Heartbeat","session":"s","sent":NaN}']
)
def test_no_message(frame: str) -> None:
    """What is no JSON object is refused as such, deep nesting and NaN included."""
    with pytest.raises(ProtocolError):
        protocol.decode(frame)


def test_frame_over_the_limit() -> None:
    """The size is looked at before anything is parsed."""
    with pytest.raises(ProtocolError, match="the limit is 1048576"):
        protocol.decode(" " * (protocol.MAX_FRAME_BYTES + 1))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=10,
    ),
    st.sampled_from(MESSAGES),
    st.data(),
)
def test_any_value_in_any_field(
    value: object, message: protocol.Message, data: st.DataObject
) -> None:
    """Whatever stands in a field, the answer is a message or a ProtocolError."""
    document = json.loads(protocol.encode(message))
    document[data.draw(st.sampled_from(sorted(document)))] = value
    try:
        decoded = protocol.decode(json.dumps(document))
    except ProtocolError:
        return
    assert protocol.encode(decoded)


def test_agent_side_needs_no_django() -> None:
    """The protocol pulls in nothing but the standard library."""
    import subprocess

    script = "import sys, worker.protocol; print([n for n in sys.modules if 'django' in n])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
