"""Secrets that jobs name: checked when a job is submitted, opened when a launch is put together.

The rights are asked anew at each launch: a secret that was revoked, or that the job's owner may
not use any more, stops the attempt with that as its reason. Nothing of a value is written anywhere
but into the one order for the node.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from uuid import UUID

from scheduling.domain import clock
from scheduling.models import Job
from scheduling.spec.job_spec import JobSpec, RoleSpec, SecretUse
from tenants.domain import access, secrets
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Invalid, Problem
from tenants.domain.sealing import CannotOpenError
from tenants.domain.secrets import Values
from tenants.models import Secret, SecretKind, User

LARGEST_DELIVERY = 512 * 1024
"""Bytes of all secrets of one task: a launch is one frame."""
REGISTRY_FILE = "registry/config.json"
"""Where the logins of registries lie, in the form that container programs read."""


class WithheldError(Exception):
    """A launch does not get what it needs; the text names the secret and the reason."""


@dataclass(slots=True)
class Delivery:
    """What one task is given; it shows nothing where it is printed."""

    variables: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Path below the folder of secrets -> content."""
    logins: dict[str, str] = field(default_factory=dict, repr=False)
    """Registry -> what its login is written as."""


def require_usable(*, actor: Actor, unit_id: UUID, spec: JobSpec) -> None:
    """Refuse a job that names secrets which its owner may not use; no query if it names none.

    Raises:
        Denied: the actor may use no secrets there.
        Invalid: there is no such secret for this unit, or it has no such key.
    """
    names = _names(spec)
    if not names or actor.user_id is None:
        return
    if not access.may(actor, Verb.SECRET_USE, unit_id):
        raise access.refusal(actor, Verb.SECRET_USE, unit_id)
    found = secrets.usable(unit_id=unit_id, owner_id=actor.user_id, names=names)
    problems = []
    for path, use in _uses(spec):
        secret = found.get(use.name)
        if secret is None:
            if not use.is_optional:
                problems.append(Problem(f"{path}.name", "secret_missing", {"secret": use.name}))
        elif use.key and use.key not in secret.keys and not use.is_optional:
            keys = ", ".join(secret.keys)
            params = {"secret": use.name, "key": use.key, "keys": keys}
            problems.append(Problem(f"{path}.key", "secret_key_missing", params))
    if problems:
        raise Invalid(problems)


def _uses(spec: JobSpec) -> Iterator[tuple[str, SecretUse]]:
    for number, role in enumerate(spec.roles):
        for position, use in enumerate(role.secrets):
            yield f"roles[{number}].secrets[{position}]", use


def _names(spec: JobSpec) -> set[str]:
    return {use.name for _, use in _uses(spec)}


class Opened:
    """The secrets of some jobs, opened for their launches."""

    def __init__(self, specs: Mapping[UUID, JobSpec], jobs: Mapping[UUID, Job]) -> None:
        """Find and open what the jobs name; jobs without secrets cost no query."""
        self._found: dict[UUID, dict[str, Secret]] = {}
        self._values: dict[UUID, dict[str, bytes]] = {}
        self._withheld: dict[UUID, str] = {}
        for job_id, spec in specs.items():
            names = _names(spec)
            if names:
                self._open(jobs[job_id], names)

    def _open(self, job: Job, names: set[str]) -> None:
        owner = User.objects.get(id=job.owner_id)
        if not secrets.may_use(owner, access.load_actor(owner), job.unit_id):
            self._withheld[job.id] = f"{owner.get_username()} may not use secrets there any more"
            return
        found = secrets.usable(unit_id=job.unit_id, owner_id=job.owner_id, names=names)
        self._found[job.id] = found
        fresh = [one for one in found.values() if one.id not in self._values]
        try:
            self._values |= secrets.values_for(fresh, clock.database_now())
        except CannotOpenError as error:
            self._withheld[job.id] = str(error)

    def deliver(self, job_id: UUID, role: RoleSpec) -> Delivery:
        """Return what a task of the role is given.

        Raises:
            WithheldError: a secret that it needs is not there, or may not be used.
        """
        delivery = Delivery()
        if not role.secrets:
            return delivery
        if job_id in self._withheld:
            raise WithheldError(self._withheld[job_id])
        for use in role.secrets:
            secret = self._found[job_id].get(use.name)
            if secret is None:
                if use.is_optional:
                    continue
                raise WithheldError(f"secret {use.name} was revoked, or its owner took it back")
            _give(delivery, use, secret, self._values[secret.id], role)
        if delivery.logins:
            logins = {one: {"auth": login} for one, login in delivery.logins.items()}
            delivery.files[REGISTRY_FILE] = json.dumps({"auths": logins}).encode()
        size = sum(len(one) for one in (*delivery.variables.values(), *delivery.files.values()))
        if size > LARGEST_DELIVERY:
            limit = f"{LARGEST_DELIVERY} are possible"
            raise WithheldError(f"its secrets have {size} bytes together, {limit}")
        return delivery


def _give(
    delivery: Delivery, use: SecretUse, secret: Secret, values: Values, role: RoleSpec
) -> None:
    kind = SecretKind(secret.kind)
    if use.key and use.key not in values:
        if not use.is_optional:
            raise WithheldError(f"secret {use.name} has no {use.key} any more")
    elif use.path:
        delivery.files |= _files(use, values)
    elif use.key:
        delivery.variables[use.variable or use.key] = _text(use, use.key, values[use.key])
    elif kind == SecretKind.REGISTRY:
        login = b":".join((values["username"], values["password"]))
        delivery.logins[values["registry"].decode()] = base64.b64encode(login).decode()
    elif kind == SecretKind.FILES and not use.prefix:
        delivery.files |= {f"{use.name}/{key}": value for key, value in values.items()}
    else:
        delivery.variables |= _environment(use, values, role)


def _environment(use: SecretUse, values: Values, role: RoleSpec) -> dict[str, str]:
    """Return all of a secret as variables, as `envFrom` does it.

    What the role sets itself stays, and what cannot be the name of a variable is left out.
    """
    named = {f"{use.prefix}{key}": key for key in values}
    return {
        name: _text(use, key, values[key])
        for name, key in named.items()
        if secrets.VARIABLE.fullmatch(name) and name not in role.env
    }


def _files(use: SecretUse, values: Values) -> dict[str, bytes]:
    """Return the files of a use; an absolute path is kept below the folder of secrets."""
    base = PurePosixPath(use.path.lstrip("/"))
    if use.key:
        return {str(base): values[use.key]}
    wanted = use.items or {key: key for key in values}
    missing = wanted.keys() - values.keys()
    if missing and not use.is_optional:
        raise WithheldError(f"secret {use.name} has no {min(missing)} any more")
    return {
        str(base / path.lstrip("/")): values[key] for key, path in wanted.items() if key in values
    }


def _text(use: SecretUse, key: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise WithheldError(f"{key} of secret {use.name} is no text; give it as a file")
    return text
