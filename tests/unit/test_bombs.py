"""Everything that is read from people, given bombs: a typed refusal, in a second and in 64 MB.

Each reader is given each bomb in a forked process with little memory left to take and little time
of the processor; the process says how it ended. A reader may also accept what is harmless to it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rest_framework.exceptions import APIException

from controlplane.api.parsers import JsonParser
from controlplane.live import regions
from scheduling.domain import scheduler_configs
from scheduling.domain.files import safe_path
from scheduling.lifecycle import cron
from scheduling.simulator import trace
from scheduling.spec import quantities
from scheduling.spec.documents import read_documents
from scheduling.spec.org_file import read_org_file
from scheduling.spec.parse import Format, parse
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents
from tenants.domain import web_addresses
from tenants.domain.errors import Invalid
from worker.agent import placing

MEMORY = 64 * 2**20
SECONDS = 1
MOST_SECONDS = 60
"""Of the processor for all bombs; beyond it the process is killed."""
MIB = 2**20
TYPED = (
    APIException,
    Invalid,
    UnreadableDocumentError,
    trace.TraceError,
    regions.MalformedError,
    web_addresses.RefusedAddressError,
    placing.PlacingError,
    cron.NotAScheduleError,
)
Read = Callable[[bytes], object]


def _text(read: Callable[[str], object]) -> Read:
    return lambda raw: read(raw.decode(errors="replace"))


def _lines(read: Callable[[list[str]], object]) -> Read:
    return lambda raw: list(read(raw.decode(errors="replace").splitlines()))  # type: ignore[call-overload]  # an iterator of something


def _json_job(raw: bytes) -> object:
    document = JsonParser().parse(io.BytesIO(raw))
    return parse(document, form=Format.JSON) if isinstance(document, dict) else None


def _unpack(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, placing.open_root(Path(folder)) as root:
        placing.unpack(root, ".", io.BytesIO(raw), owner=placing.Owner(), limit=8 * MIB)


READERS: dict[str, Read] = {
    "job as YAML": lambda raw: parse(raw, form=Format.YAML),
    "documents": read_documents,
    "YAML": load_documents,
    "body of the API": lambda raw: JsonParser().parse(io.BytesIO(raw)),
    "job as JSON": _json_job,
    "scheduler's configuration": _text(scheduler_configs.problems_of),
    "organisation's file": read_org_file,
    "trace of Philly": _lines(trace.read_philly),
    "trace of Helios": _lines(trace.read_helios),
    "trace in SWF": _lines(trace.read_swf),
    "recorded day": _lines(trace.read_recorded),
    "queues of a trace": _text(lambda text: list(trace.read_queues(text))),
    "webhook's address": _text(lambda text: web_addresses.check(text, ())),
    "path of a file": _text(safe_path),
    "schedule": _text(cron.parse),
    "quantity": _text(quantities.read_quantity),
    "live region": _text(regions.Region.parse),
    "archive": _unpack,
}


def _aliases() -> bytes:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines).encode()


def _tar(*members: tuple[str, bytes, bytes, str], mode: str = "w:gz") -> bytes:
    """Pack members: name, content, type, target."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as tar:  # type: ignore[call-overload]  # a mode as text
        for name, content, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def _zip(name: str, content: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr(name, content)
    return target.getvalue()


def _damaged(raw: bytes) -> bytes:
    """Return an archive whose middle is something else."""
    middle = len(raw) // 2
    return raw[:middle] + bytes(64) + raw[middle + 64 :]


NOISE = os.urandom(64 * 1024)
FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
BOMBS: dict[str, bytes] = {
    "aliases": _aliases(),
    "an alias of itself": b"a: &a [*a]",
    "depth of YAML": b"[" * 100_000,
    "depth of blocks": "\n".join(" " * n + "a:" for n in range(1_000)).encode(),
    "depth of JSON": b'{"a":' * 100_000,
    "depth of JSON that ends": b"[" * 100_000 + b"]" * 100_000,
    "a key twice": b'{"name": "a", "name": "b"}',
    "a YAML key twice": b"name: a\nname: b\n",
    "many small maps": b"".join(b"- {a: 1}\n" for _ in range(40_000)),
    "many keys": b"".join(b"k%d: 1\n" % n for n in range(60_000)),
    "NaN": b'{"a": NaN, "b": Infinity, "c": -Infinity}',
    "a number too large": b'{"a": 1e999}',
    "a number of many digits": b'{"replicas": ' + b"9" * 100_000 + b"}",
    "a quantity of many digits": b"9" * 100_000 + b"Gi",
    "a quantity with an exponent": b"1e999999999",
    "a job of many tasks": b'{"name": "a", "roles": [{"name": "w", "replicas": 9007199254740991}]}',
    "a tag that runs something": b"!!python/object/apply:os.system [ls]",
    "not UTF-8": b"\xff\xfe\xfa" * 1_000,
    "NUL": b"a: \x00",
    "a lonely surrogate": b'{"name": "\\ud800"}',
    "a line without end": b"x" * (5 * MIB),
    "commas": b"," * MIB,
    "a field of CSV without end": b'job_id,num_gpu\n"' + b"a" * MIB,
    "a job of CSV with endless GPUs": (
        b"job_id,num_gpu,submit_time,duration\n1,9007199254740991,0,1\n"
    ),
    "a job of SWF with endless processors": b"1 0 1 1 9e15 1 1 9e15 1 1 1 1 1 1 1 1 1 1\n",
    "SWF with NaN": b"1 nan inf 1 nan 1 1 inf 1 nan 1 nan 1 1 nan 1 1 1\n",
    "a recorded job of endless tasks": json.dumps(
        {"job": "a", "queue": "q", "submitted_at": 0, "seconds": 1, "tasks": 2**53, "request": {}}
    ).encode(),
    "a recorded infinity": (
        b'{"job":1,"queue":1,"submitted_at":1e999,"seconds":1,"tasks":1e999,"request":{}}'
    ),
    "a path that climbs": b"../../etc/passwd",
    "a path with a link's name": b"a/../../b",
    "an address of this machine": b"http://127.0.0.1:6379/",
    "an address of clouds": b"http://169.254.169.254/latest/meta-data/",
    "an address in octal": b"http://0177.0.0.1/",
    "an address by one number": b"http://2130706433/",
    "an address in IPv6": b"http://[::ffff:127.0.0.1]/",
    "an address with another behind": b"https://example.org@127.0.0.1/",
    "a schedule of all": b"*/1 " * 10_000,
    "ANSI": b"\x1b]0;evil\x07\x1b[2Jname: x",
    "HTML": b"name: '<img src=x onerror=alert(1)>'",
    "bidi": "name: a\u202egnp.exe".encode(),
    "tar of zeros": _tar(("zeros", bytes(64 * MIB), FILE, "")),
    "zip of zeros": _zip("zeros", bytes(64 * MIB)),
    "tar in bzip2": _tar(("zeros", bytes(64 * MIB), FILE, ""), mode="w:bz2"),
    "tar that climbs": _tar(("../out", b"x", FILE, "")),
    "tar that is absolute": _tar(("/etc/out", b"x", FILE, "")),
    "tar with a link out": _tar(("link", b"", LINK, "/etc"), ("link/x", b"x", FILE, "")),
    "tar with a hard link": _tar(("link", b"", HARD, "/etc/passwd")),
    "zip that climbs": _zip("../out", b"x"),
    "damaged gzip": _damaged(_tar(("noise", NOISE, FILE, ""))),
    "damaged xz": _damaged(_tar(("noise", NOISE, FILE, ""), mode="w:xz")),
    "damaged zip": _damaged(_zip("noise", NOISE)),
    "half a tar": _tar(("noise", NOISE, FILE, ""), mode="w")[: len(NOISE) // 2],
}
DANGEROUS: dict[str, tuple[str, ...]] = {
    "job as YAML": ("aliases", "depth of YAML", "a YAML key twice", "NUL", "a lonely surrogate"),
    "organisation's file": ("aliases", "depth of YAML", "a YAML key twice", "not UTF-8"),
    "scheduler's configuration": ("aliases", "depth of YAML", "a YAML key twice", "NUL"),
    "body of the API": ("depth of JSON", "a key twice", "NaN", "a number too large", "not UTF-8"),
    "webhook's address": tuple(one for one in BOMBS if one.startswith("an address")),
    "path of a file": ("a path that climbs", "a path with a link's name"),
    "archive": tuple(one for one in BOMBS if one.startswith(("tar", "zip", "damaged", "half"))),
    "trace of Philly": ("a job of CSV with endless GPUs",),
    "trace in SWF": ("a job of SWF with endless processors", "SWF with NaN"),
    "recorded day": ("a recorded job of endless tasks", "a recorded infinity"),
}
"""What a reader must not accept."""


def _explode(read: Read, bombs: dict[str, bytes]) -> dict[str, str]:
    """Read bombs in a forked process; return for each `read`, `refused`, or how it broke."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            size = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
            for name, raw in bombs.items():
                said = json.dumps([name, _outcome(read, raw)[:300]])
                os.write(writing, f"{said}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="ascii") as pipe:
        outcomes = dict(json.loads(line) for line in pipe)
    _pid, status = os.waitpid(child, 0)
    return {name: outcomes.get(name, f"ended the process: {status}") for name in bombs}


def _outcome(read: Read, bomb: bytes) -> str:
    began = time.process_time()
    try:
        answer = read(bomb)
    except TYPED as error:
        said = f"refused {error}" if str(error) else "refused without a word"
    except BaseException as error:  # noqa: BLE001 - whatever else it is, it is the finding
        return f"broke: {type(error).__name__}: {error}"
    else:
        said = "refused" if _is_refusal(answer) else "read"
    spent = time.process_time() - began
    return said if spent <= SECONDS else f"took {spent:.1f} s"


def _is_refusal(answer: object) -> bool:
    """Tell whether an answer is a list of problems, in one of the forms that readers have."""
    if isinstance(answer, tuple) and len(answer) == 2:  # read, problems
        return bool(answer[1])
    return bool(getattr(answer, "problems", ())) or (isinstance(answer, list) and bool(answer))


@pytest.mark.parametrize("name", READERS)
def test_a_bomb_is_refused_in_a_second_and_64_megabytes(name: str) -> None:
    """No bomb breaks a reader, costs more than that, or is taken where it is dangerous."""
    sys.stdout.flush()
    outcomes = _explode(READERS[name], BOMBS)

    broken = {
        bomb: said for bomb, said in outcomes.items() if not said.startswith(("read", "refused"))
    }
    taken = [bomb for bomb in DANGEROUS.get(name, ()) if outcomes[bomb] == "read"]
    assert (broken, taken) == ({}, [])
