"""What the verbs about units, people, roles and tokens do."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from controlplane.client import output
from controlplane.client.commands import Arguments, UsageError
from controlplane.client.rest import Json, RestClient

MOST = 2000


def units(client: RestClient, arguments: Arguments) -> None:
    """Show the org units that you may read, by path."""
    found = list(client.items("units", most=MOST))
    if arguments.output == "json":
        output.print_json(found)
        return
    paths = _paths(found)
    rows = sorted((paths[one["id"]], one["kind"], one["id"], one["is_archived"]) for one in found)
    output.print_table(
        ("UNIT", "KIND", "ARCHIVED", "ID"),
        [(path, kind, "yes" if is_old else "no", one_id) for path, kind, one_id, is_old in rows],
    )


def people(client: RestClient, arguments: Arguments) -> None:
    """List accounts with their roles."""
    found = list(client.items("users", most=MOST))
    grants = list(client.items("grants", most=MOST))
    if arguments.output == "json":
        output.print_json(found)
        return
    paths = _paths(client.items("units", most=MOST))
    roles: dict[str, list[str]] = {}
    for grant in grants:
        where = paths.get(grant["unit_id"], "installation" if not grant["unit_id"] else "?")
        roles.setdefault(grant["user_id"], []).append(f"{grant['role']}@{where}")
    output.print_table(
        ("NAME", "STATE", "KIND", "ROLES"),
        [
            (
                one["username"],
                one["state"],
                "service" if one["is_service"] else "person",
                ", ".join(sorted(roles.get(one["id"], []))),
            )
            for one in found
        ],
    )


def invite(client: RestClient, arguments: Arguments) -> None:
    """Make an account and write the link by which its person chooses a password."""
    body: Json = {
        "username": arguments.name,
        "email": arguments.email,
        "role": arguments.role,
        "unit_id": _unit(client, arguments.unit),
        "invite": not arguments.service,
        "is_service": arguments.service,
        "reason": arguments.reason,
    }
    made = client.post("users", body)
    if arguments.output == "json":
        output.print_json(made)
    elif arguments.service:
        sys.stdout.write(f"service account {made['username']}\n{made['id']}\n")
    else:
        sys.stdout.write(f"{made['link']['url']}\n")


def grant(client: RestClient, arguments: Arguments) -> None:
    """Give a role; with --dry-run only say what it would let its person see and do."""
    body: Json = {
        "user_id": _user(client, arguments.name)["id"],
        "role": arguments.role,
        "unit_id": _unit(client, arguments.unit),
    }
    if arguments.dry_run:
        # With a slash, else the part before the colon is read as a scheme.
        _print_effect(client.post("/grants:preview", body), arguments)
        return
    made = client.post("grants", body | {"reason": arguments.reason})
    if arguments.output == "json":
        output.print_json(made)
    else:
        sys.stdout.write(f"{made['username']} is {made['role']} now\n{made['id']}\n")


def revoke(client: RestClient, arguments: Arguments) -> None:
    """Take a role; with --dry-run only say what its person would lose."""
    user, unit_id = _user(client, arguments.name), _unit(client, arguments.unit)
    held = client.items("grants", most=MOST, user=user["username"])
    found = next(
        (one for one in held if (one["role"], one["unit_id"]) == (arguments.role, unit_id)), None
    )
    if found is None:
        raise UsageError(f"{arguments.name} has no role {arguments.role} there.")
    if arguments.dry_run:
        _print_effect(client.get(f"grants/{found['id']}"), arguments)
        return
    client.send("DELETE", f"grants/{found['id']}")
    sys.stdout.write(f"{user['username']} is {arguments.role} no longer\n")


def tokens(client: RestClient, arguments: Arguments) -> None:
    """List tokens: your own, and those of the accounts you look after."""
    found = list(client.items("tokens", most=MOST))
    if arguments.output == "json":
        output.print_json(found)
        return
    names = {one["id"]: one["username"] for one in client.items("users", most=MOST)}
    output.print_table(
        ("NAME", "BEGINS", "OWNER", "VERBS", "LAST USED", "ENDS", "REVOKED", "ID"),
        [
            (
                one["name"],
                one["prefix"],
                names.get(one["user_id"], ""),
                ",".join(one["verbs"]) or "all",
                one["last_used_at"] or "never",
                one["expires_at"],
                one["revoked_at"] or "no",
                one["id"],
            )
            for one in found
        ],
    )


def revoke_token(client: RestClient, arguments: Arguments) -> None:
    """Revoke a token by its id or the characters that it begins with."""
    wanted = arguments.token
    found = [
        one
        for one in client.items("tokens", most=MOST)
        if one["id"] == wanted or (wanted and one["prefix"].startswith(wanted))
    ]
    if len(found) != 1:
        raise UsageError(f"{len(found)} tokens are meant by {wanted}; give the id of one.")
    client.send("DELETE", f"tokens/{found[0]['id']}")
    sys.stdout.write(f"token {output.clean(found[0]['name'])} is revoked\n")


def _paths(found: Iterable[Json]) -> dict[str, str]:
    """Return unit id -> names from the topmost visible unit down."""
    by_id = {one["id"]: one for one in found}

    def path(one: Json) -> str:
        above = by_id.get(one["parent_id"])
        return f"{path(above)}/{one['name']}" if above else str(one["name"])

    return {one_id: path(one) for one_id, one in by_id.items()}


def _unit(client: RestClient, text: str) -> str | None:
    """Return the id of a unit by id, path or name; none is the whole installation."""
    if not text:
        return None
    paths = _paths(client.items("units", most=MOST))
    meant = [
        one_id
        for one_id, path in paths.items()
        if text in {one_id, path} or path.rpartition("/")[2] == text
    ]
    exact = [one_id for one_id in meant if text in {one_id, paths[one_id]}]
    chosen = exact or meant
    if len(chosen) != 1:
        raise UsageError(f"{len(chosen)} units are meant by {text}; give the path of one.")
    return chosen[0]


def _user(client: RestClient, name: str) -> Json:
    for one in client.items("users", most=MOST):
        if name in {one["username"], one["id"]}:
            return one
    raise UsageError(f"There is nobody {name} that you may see; invite them first.")


def _print_effect(effect: Json, arguments: Arguments) -> None:
    if arguments.output == "json":
        output.print_json(effect)
        return
    for one in effect["sight"]:
        names = ", ".join(output.clean(name) for name in one["names"])
        more = one["count"] - len(one["names"])
        sys.stdout.write(f"{one['what']}: {one['count']} ({names}{', ...' if more else ''})\n")
    sys.stdout.write(f"may: {', '.join(effect['verbs']) or 'nothing that it could not already'}\n")
