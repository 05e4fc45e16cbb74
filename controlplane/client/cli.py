"""The command line `terrace`, and the short names that users of Volcano know."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from controlplane.client import commands, login, people, placement
from controlplane.client.rest import RefusedError, RestClient, UnreachableError
from controlplane.version import VERSION

REFUSED, USAGE, UNREACHABLE = 1, 2, 3
TABS = ("all", "waiting", "running", "suspended", "completed", "failed", "cancelled")


def main(
    words: Sequence[str] | None = None,
    *,
    connect: Callable[[str, str], RestClient] = RestClient,
) -> int:
    """Run one command; return the exit status: 1 refused, 2 misused, 3 nobody answered."""
    arguments = parser().parse_args(words)
    try:
        if arguments.run is commands.sign_in:
            commands.sign_in(connect, arguments)
        else:
            known = login.current()
            arguments.run(connect(known.url, known.token), arguments)
    except RefusedError as error:
        return _say(str(error), REFUSED)
    except (commands.UsageError, login.NotLoggedInError) as error:
        return _say(str(error), USAGE)
    except UnreachableError as error:
        return _say(str(error), UNREACHABLE)
    except KeyboardInterrupt:
        return _say("", 130)
    except BrokenPipeError:
        # The reader, such as `head`, has enough; Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _say(text: str, status: int) -> int:
    if text:
        sys.stderr.write(f"{text}\n")
    return status


def parser() -> argparse.ArgumentParser:
    """Return the words that the command line understands."""
    top = argparse.ArgumentParser(prog="terrace", description="Jobs and queues of Terrace.")
    top.add_argument("--version", action="version", version=f"terrace {VERSION}")
    verbs = top.add_subparsers(title="verbs", required=True, metavar="VERB")

    def add(name: str, run: object, help_text: str) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=help_text, description=help_text)
        one.add_argument("-o", "--output", choices=("table", "json"), default="table")
        one.set_defaults(run=run)
        return one

    add("login", commands.sign_in, "Keep a token for an installation.").add_argument("url")
    _add_submission(add("sub", commands.submit, "Submit a job."))
    _add_listing(add("jobs", commands.jobs, "List jobs."))
    add("job", commands.job, "Show a job.").add_argument("job", help="name or id")
    for verb, past in (
        ("cancel", "cancel"),
        ("suspend", "suspend"),
        ("resume", "resume"),
        ("retry", "retry"),
    ):
        one = add(verb, commands.act(verb, past), f"{verb.capitalize()} jobs.")
        one.add_argument("jobs", nargs="+", metavar="JOB", help="name or id")
        one.add_argument("--reason", default="", help="for the audit trail")
    _add_logs(add("logs", commands.logs, "Show what a task writes."))
    add("queues", commands.queues, "Show the tree of queues.")
    _add_queue(verbs)
    one = add("nodes", commands.nodes, "List machines.")
    one.add_argument("--limit", type=int, default=500)
    add("explain", commands.explain, "Say why a job waits.").add_argument("job")
    add("units", people.units, "Show the org units.")
    add("people", people.people, "List accounts with their roles.")
    add("tokens", people.tokens, "List tokens.")
    add("revoke-token", people.revoke_token, "Revoke a token.").add_argument(
        "token", help="its id, or what it begins with"
    )
    _add_person(add("invite", people.invite, "Make an account and its one-use link."))
    for name, run, text in (
        ("grant", people.grant, "Give a role."),
        ("revoke", people.revoke, "Take a role."),
    ):
        one = add(name, run, text)
        one.add_argument("name", help="user name")
        _add_role(one)
        one.add_argument("--dry-run", action="store_true", help="only say what it would change")
    return top


def _add_person(one: argparse.ArgumentParser) -> None:
    one.add_argument("name", help="user name")
    one.add_argument("--email", default="")
    one.add_argument("--service", action="store_true", help="for a program: by token only")
    _add_role(one)


def _add_role(one: argparse.ArgumentParser) -> None:
    one.add_argument("--role", default="researcher")
    one.add_argument("--unit", default="", help="id, path or name; none: the installation")
    one.add_argument("--reason", default="", help="for the audit trail")


def _add_submission(one: argparse.ArgumentParser) -> None:
    one.add_argument("-f", "--file", help="a YAML file, native or a Volcano manifest; - for stdin")
    one.add_argument("-N", "--name")
    one.add_argument("-q", "--queue", default="default")
    one.add_argument("-i", "--image", default="")
    one.add_argument("-r", "--replicas", type=int, default=1)
    one.add_argument("-m", "--min-available", type=int)
    one.add_argument("-p", "--priority", type=int)
    one.add_argument("--cpu", default="1")
    one.add_argument("--memory", default="100Mi")
    one.add_argument("--gpu", default="")
    one.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("--dry-run", action="store_true", help="only say whether it is valid and fits")
    one.add_argument("command", nargs="*", help="after --")


def _add_listing(one: argparse.ArgumentParser) -> None:
    one.add_argument("--tab", choices=TABS, default="all")
    one.add_argument("-q", "--queue", default="")
    one.add_argument("--owner", default="")
    one.add_argument("--selector", default="", help="part of the name")
    one.add_argument("--limit", type=int, default=50)


def _add_logs(one: argparse.ArgumentParser) -> None:
    one.add_argument("job", help="name or id")
    one.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    one.add_argument("--role")
    one.add_argument("--index", type=int, default=0)
    one.add_argument("--attempt", type=int)
    one.add_argument("--stderr", action="store_true")


def _add_queue(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    queue = verbs.add_parser("queue", help="Change a queue.")
    acts = queue.add_subparsers(required=True, metavar="ACTION")
    for name, run in (
        ("set", commands.queue_set),
        ("place", placement.place),
        ("open", commands.queue_state("open")),
        ("close", commands.queue_state("close")),
    ):
        one = acts.add_parser(name)
        one.set_defaults(run=run)
        one.add_argument("queue", help="name or id")
        one.add_argument("-o", "--output", choices=("table", "json"), default="table")
        one.add_argument("--reason", default="", help="for the audit trail")
        if name == "set":
            one.add_argument("-w", "--weight", type=int)
            one.add_argument("--min", action="append", metavar="RESOURCE=AMOUNT")
            one.add_argument("--max", action="append", metavar="RESOURCE=AMOUNT")
        if name == "place":
            _add_placement(one)


def _add_placement(one: argparse.ArgumentParser) -> None:
    for kind in placement.KINDS:
        one.add_argument(f"--{kind}", metavar="GROUPS", help="node groups, by commas; '': none")
    one.add_argument("--limit", action="append", metavar="GROUP:RESOURCE=AMOUNT")
    one.add_argument("--deserved", action="append", metavar="RESOURCE=AMOUNT")


def vsub() -> int:
    """`vsub` is `terrace sub`."""
    return main(["sub", *sys.argv[1:]])


def vjobs() -> int:
    """`vjobs` is `terrace jobs`."""
    return main(["jobs", *sys.argv[1:]])


def vqueues() -> int:
    """`vqueues` is `terrace queues`."""
    return main(["queues", *sys.argv[1:]])


def vcancel() -> int:
    """`vcancel` is `terrace cancel`."""
    return main(["cancel", *sys.argv[1:]])


def vsuspend() -> int:
    """`vsuspend` is `terrace suspend`."""
    return main(["suspend", *sys.argv[1:]])


def vresume() -> int:
    """`vresume` is `terrace resume`."""
    return main(["resume", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
