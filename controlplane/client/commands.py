"""What the verbs of the command line do."""

from __future__ import annotations

import argparse
import codecs
import getpass
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from controlplane.client import login, output
from controlplane.client.rest import Json, RefusedError, RestClient

FOLLOW_SECONDS = 1.0
LOG_BYTES = 262_144
FINISHED = frozenset({"Completed", "Failed", "Terminated", "Aborted"})
JOB_COLUMNS = ("NAME", "ID", "PHASE", "QUEUE", "OWNER", "TASKS", "GPUS", "AGE", "REASON")

Arguments = argparse.Namespace


class UsageError(Exception):
    """The words on the command line do not go together."""


def sign_in(connect: Callable[[str, str], RestClient], arguments: Arguments) -> None:
    """Ask for a token, try it, and keep it."""
    token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
    me = connect(arguments.url, token).get("me")
    path = login.keep(login.Login(arguments.url, token))
    sys.stdout.write(f"Signed in as {output.clean(me['username'])}; kept in {path}\n")


def submit(client: RestClient, arguments: Arguments) -> None:
    """Submit a job from a file or from flags; or only ask whether it would fit."""
    if arguments.file:
        text = sys.stdin.read() if arguments.file == "-" else _text(arguments.file)
        told = client.post_yaml("jobs", text, dry_run=arguments.dry_run or None)
    else:
        told = client.post("jobs", document_of(arguments), dry_run=arguments.dry_run or None)
    if arguments.output == "json":
        output.print_json(told)
    elif arguments.dry_run:
        _print_dry_run(told)
    else:
        sys.stdout.write(f"run job {told['name']} successfully\n{told['id']}\n")


def document_of(arguments: Arguments) -> Json:
    """Return the job that the flags describe: one role."""
    if not arguments.name:
        raise UsageError("Give --name and a command, or -f FILE.")
    role: Json = {
        "name": "worker",
        "replicas": arguments.replicas,
        "command": arguments.command,
        "image": arguments.image,
        "cpu": arguments.cpu,
        "memory": arguments.memory,
        "gpu": arguments.gpu,
        "env": dict(_pair(one) for one in arguments.env),
    }
    job: Json = {"name": arguments.name, "queue": arguments.queue, "roles": [_stated(role)]}
    if arguments.min_available is not None:
        job["min_available"] = arguments.min_available
    if arguments.priority is not None:
        job["priority"] = arguments.priority
    return _stated(job)


def _stated(values: Json) -> Json:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"--env {text} is not NAME=VALUE.")
    return name, value


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def _print_dry_run(told: Json) -> None:
    for one in told["errors"]:
        sys.stdout.write(f"{one['field']}: {output.clean(one['message'])}\n")
    for one in told["notes"]:
        sys.stdout.write(f"note: {one['field']}: {output.clean(one['message'])}\n")
    if not told["valid"]:
        raise UsageError("The job is not valid.")
    headline = output.first_line((told["fit"] or {}).get("headline"))
    sys.stdout.write("valid; fits now\n" if told["fits"] else f"valid; waits: {headline}\n")


def jobs(client: RestClient, arguments: Arguments) -> None:
    """List jobs, the newest first."""
    found = list(
        client.items(
            "jobs",
            most=arguments.limit,
            tab=arguments.tab,
            queue=arguments.queue,
            owner=arguments.owner,
            text=arguments.selector,
        )
    )
    if arguments.output == "json":
        output.print_json(found)
        return
    now = datetime.now(UTC)
    output.print_table(JOB_COLUMNS, [_job_row(one, now) for one in found])


def _job_row(job: Json, now: datetime) -> tuple[object, ...]:
    tasks = job["tasks"]
    return (
        job["name"],
        job["id"],
        job["phase"],
        job["queue"],
        job["owner"],
        f"{tasks['running'] + tasks['succeeded']}/{tasks['total']}",
        f"{job['gpu_milli'] / 1000:g}",
        output.since(job["created_at"], now),
        output.first_line(job["reason"]),
    )


def job(client: RestClient, arguments: Arguments) -> None:
    """Show one job with its tasks."""
    found = client.get(f"jobs/{find(client, arguments.job)}")
    if arguments.output == "json":
        output.print_json(found)
        return
    for name in ("name", "id", "phase", "queue", "owner", "priority", "min_available"):
        sys.stdout.write(f"{name + ':':15}{output.clean(found[name])}\n")
    if found["reason"]:
        sys.stdout.write(f"{'reason:':15}{output.clean(found['reason']['message'])}\n")
    tasks = client.items(f"jobs/{found['id']}/tasks", most=200)
    output.print_table(
        ("TASK", "STATE", "NODE", "ATTEMPT", "REASON"),
        [
            (
                f"{one['role']}-{one['index']}",
                one["state"],
                one["node"],
                one["attempt_number"],
                output.first_line(one["reason"]),
            )
            for one in tasks
        ],
    )


def find(client: RestClient, name: str) -> str:
    """Return the id of a job by id or by name: of several jobs of a name the newest.

    Raises:
        UsageError: there is none.
    """
    try:
        return str(UUID(name))
    except ValueError:
        pass
    named = (one for one in client.items("jobs", most=500, text=name) if one["name"] == name)
    found = next(named, None)
    if found is None:
        raise UsageError(f"There is no job named {name} that you may see.")
    return str(found["id"])


def act(verb: str, past: str) -> Callable[[RestClient, Arguments], None]:
    """Return the command that does `verb` to jobs."""

    def run(client: RestClient, arguments: Arguments) -> None:
        for name in arguments.jobs:
            done = client.post(f"jobs/{find(client, name)}/{verb}", {"reason": arguments.reason})
            if arguments.output == "json":
                output.print_json(done)
            else:
                sys.stdout.write(f"{past} job {output.clean(done['name'])} successfully\n")

    return run


def logs(client: RestClient, arguments: Arguments) -> None:
    """Write what a task wrote; with -f until it ends."""
    job_id = find(client, arguments.job)
    query = {
        "role": arguments.role,
        "index": arguments.index,
        "attempt": arguments.attempt,
        "stream": "stderr" if arguments.stderr else "stdout",
    }
    # Bytes of a character may come in two replies; control characters stay out of the terminal.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    offset = 0
    while True:
        part = _log_part(client, job_id, {**query, "offset": offset}, is_waiting=arguments.follow)
        if part is not None:
            data, offset, is_final = part
            _write_log(decoder.decode(data))
            if data:
                continue
            if is_final or not arguments.follow:
                return
        time.sleep(FOLLOW_SECONDS)


def _log_part(
    client: RestClient, job_id: str, query: Json, *, is_waiting: bool
) -> tuple[bytes, int, bool] | None:
    """Return bytes, the offset after them, whether it ends there; None before the first attempt."""
    given = {name: value for name, value in query.items() if value is not None}
    try:
        reply = client.send("GET", f"jobs/{job_id}/logs", params={**given, "length": LOG_BYTES})
    except RefusedError as error:
        is_over = not is_waiting or client.get(f"jobs/{job_id}")["phase"] in FINISHED
        if error.code != "not_found" or is_over:
            raise
        return None
    after = int(reply.headers["Log-Offset"]) + len(reply.content)
    is_final = reply.headers["Log-Final"] == "true" and after >= int(reply.headers["Log-Size"])
    return reply.content, after, is_final


def _write_log(text: str) -> None:
    if not sys.stdout.isatty():
        sys.stdout.write(text)
    else:
        kept = (
            one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}"
            for one in text
        )
        sys.stdout.write("".join(kept))
    sys.stdout.flush()


def queues(client: RestClient, arguments: Arguments) -> None:
    """Show the tree of queues."""
    found = client.get("queues")["items"]
    if arguments.output == "json":
        output.print_json(found)
        return
    output.print_table(
        ("NAME", "WEIGHT", "STATE", "MIN", "DESERVED", "ALLOCATED", "MAX", "WAITING", "RUNNING"),
        [
            (
                "  " * one["depth"] + one["name"],
                one["weight"],
                one["state"],
                output.amounts(one["min"]),
                output.amounts(one["deserved"]),
                output.amounts(one["allocated"]),
                output.amounts(one["max"]),
                one["waiting"],
                one["running"],
            )
            for one in found
        ],
    )


def queue_set(client: RestClient, arguments: Arguments) -> None:
    """Change a queue's min, max or weight as it stands now."""
    found = queue_of(client, arguments.queue)
    body: Json = {"reason": arguments.reason}
    if arguments.weight is not None:
        body["weight"] = arguments.weight
    for name in ("min", "max"):
        given = getattr(arguments, name)
        if given:
            body[name] = {**found[name], **dict(read_amount(one) for one in given)}
    told = client.patch(f"queues/{found['id']}", body, if_match=f'"v{found["version"]}"')
    if arguments.output == "json":
        output.print_json(told)
    else:
        sys.stdout.write(
            f"queue {told['name']}: weight {told['weight']}, min {output.amounts(told['min'])},"
            f" max {output.amounts(told['max'])}\n"
        )


def queue_state(verb: str) -> Callable[[RestClient, Arguments], None]:
    """Return the command that opens or closes a queue."""

    def run(client: RestClient, arguments: Arguments) -> None:
        found = queue_of(client, arguments.queue)
        told = client.post(f"queues/{found['id']}/{verb}", {"reason": arguments.reason})
        if arguments.output == "json":
            output.print_json(told)
        else:
            sys.stdout.write(f"queue {told['name']} is {told['state']}\n")

    return run


def queue_of(client: RestClient, name: str) -> Json:
    """Return the queue of that name or id."""
    for one in client.get("queues")["items"]:
        if name in {one["name"], one["id"]} and not one["is_path_only"]:
            found: Json = one
            return found
    raise UsageError(f"There is no queue {name} that you may see.")


def read_amount(text: str) -> tuple[str, str]:
    """Read RESOURCE=AMOUNT; the server reads the amount: 2, 500m or 64Gi."""
    name, sign, amount = text.partition("=")
    if not name or not sign:
        raise UsageError(f"{text} is not RESOURCE=AMOUNT, such as gpu=4 or memory=64Gi.")
    return {"gpu": "nvidia.com/gpu"}.get(name, name), amount


def nodes(client: RestClient, arguments: Arguments) -> None:
    """List machines."""
    found = list(client.items("nodes", most=arguments.limit))
    if arguments.output == "json":
        output.print_json(found)
        return
    output.print_table(
        ("NAME", "STATE", "SCHEDULABLE", "GPUS", "HELD", "ALLOCATABLE"),
        [
            (
                one["name"],
                one["state"],
                "yes" if one["is_schedulable"] else "no",
                len(one["devices"]),
                output.amounts(one["held"]),
                output.amounts(one["allocatable"]),
            )
            for one in found
        ],
    )


def explain(client: RestClient, arguments: Arguments) -> None:
    """Say why a job waits, rung by rung."""
    told = client.get(f"jobs/{quote(find(client, arguments.job))}/explain")
    if arguments.output == "json":
        output.print_json(told)
        return
    if not told["is_waiting"]:
        sys.stdout.write(f"The job does not wait; it is {told['phase']}.\n")
        return
    sys.stdout.write((output.first_line(told["headline"]) or "It starts now.") + "\n")
    output.print_table(
        ("RUNG", "STATE", "WHY"),
        [(one["name"], one["state"], output.first_line(one["reason"])) for one in told["rungs"]],
    )


Command = Callable[[RestClient, Arguments], Any]
