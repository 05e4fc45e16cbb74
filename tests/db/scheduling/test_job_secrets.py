"""Secrets that jobs name: refused at submission, given at launch, withheld when rights are gone."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from scheduling.domain import jobs, launches, reports
from scheduling.models import Attempt, Job
from scheduling.spec.job_spec import RoleSpec, SecretUse
from tenants.domain import secrets
from tenants.domain.access import Actor, load_actor
from tenants.domain.errors import Denied, Invalid
from tenants.domain.sealing import Keyring
from tenants.domain.secrets import NewSecret
from tenants.models import Grant, GrantRole, OrgUnit, OutboxRow, Secret, SecretKind
from tests.factories.cluster import Site, role, spec
from tests.people import NOW, make_grant, make_user

CANARY = "canary-8151-never-shown"


@pytest.fixture(autouse=True)
def keyring(settings: Settings) -> None:
    settings.TERRACE_SECRETS_KEYRING = Keyring([os.urandom(32)])


@pytest.fixture
def ann(site: Site) -> Actor:
    """Somebody who submits to the site's queue."""
    user = make_user("ann")
    make_grant(user, GrantRole.RESEARCHER, unit_of(site))
    return load_actor(user)


def unit_of(site: Site) -> OrgUnit:
    assert site.queue.unit is not None
    return site.queue.unit


def make(
    site: Site,
    actor: Actor,
    name: str = "wandb",
    kind: SecretKind = SecretKind.VARIABLES,
    **values: bytes,
) -> Secret:
    given = values or {"API_KEY": CANARY.encode()}
    return secrets.create_secret(
        actor=actor, unit_id=unit_of(site).id, new=NewSecret(name, kind, given), now=NOW
    )


def submit(site: Site, actor: Actor, *uses: SecretUse, **fields: Any) -> Job:
    one: RoleSpec = role(secrets=uses, **fields)
    return jobs.submit_job(actor=actor, spec=spec(one), queue=site.queue, now=site.now)


def launched(site: Site) -> launches.LaunchOrder:
    """Place the one job that waits and put its command together."""
    site.node()
    assert site.cycle().binds == 1
    orders = launches.compose(list(OutboxRow.objects.filter(topic="attempt.launch")))
    assert orders.withheld == []
    (order,) = orders.launches.values()
    return order


def files_of(order: launches.LaunchOrder) -> dict[str, str]:
    return {one.path: base64.b64decode(one.content).decode() for one in order.secret_files}


def test_job_that_names_an_unknown_secret_is_refused(site: Site, ann: Actor) -> None:
    """The place in the spec and the name are told."""
    make(site, ann)
    uses = (SecretUse(name="other"), SecretUse(name="wandb", key="NONE", variable="X"))

    with pytest.raises(Invalid) as refusal:
        submit(site, ann, *uses)

    assert [(one.path, one.code) for one in refusal.value.problems] == [
        ("roles[0].secrets[0].name", "secret_missing"),
        ("roles[0].secrets[1].key", "secret_key_missing"),
    ]


def test_optional_secret_may_be_missing(site: Site, ann: Actor) -> None:
    """A job starts without what it can do without."""
    submit(site, ann, SecretUse(name="other", is_optional=True))

    assert launched(site).secret_environment == {}


def test_role_without_the_right_to_use_secrets_is_denied(site: Site, ann: Actor) -> None:
    """A token that lacks the verb submits no job with a secret."""
    make(site, ann)
    narrowed = Actor(ann.user_id, ann.label, grants=ann.grants, verbs=frozenset({"job.create"}))

    with pytest.raises(Denied):
        submit(site, narrowed, SecretUse(name="wandb"))


def test_variables_and_files_reach_the_order_and_nothing_else(site: Site, ann: Actor) -> None:
    """All of it, one key under another name, files by path; the rows hold the names alone."""
    make(site, ann, API_KEY=CANARY.encode(), ENTITY=b"vision")
    make(site, ann, "ssh", SecretKind.FILES, id_rsa=b"private", config=b"Host *")
    submit(
        site,
        ann,
        SecretUse(name="wandb", prefix="W_"),
        SecretUse(name="wandb", key="API_KEY", variable="TOKEN"),
        SecretUse(name="ssh"),
        SecretUse(name="ssh", path="/etc/keys", items={"id_rsa": "one/id"}),
        SecretUse(name="ssh", key="config", path="conf"),
    )

    order = launched(site)

    assert order.secret_environment == {"W_API_KEY": CANARY, "W_ENTITY": "vision", "TOKEN": CANARY}
    assert files_of(order) == {
        "ssh/id_rsa": "private",
        "ssh/config": "Host *",
        "etc/keys/one/id": "private",
        "conf": "Host *",
    }
    assert {one.mode for one in order.secret_files} == {0o600}
    assert CANARY not in repr(order)
    assert CANARY not in json.dumps(list(OutboxRow.objects.values("topic", "key", "payload")))
    assert CANARY not in json.dumps(Job.objects.get().spec)


def test_what_the_role_sets_itself_stays(site: Site, ann: Actor) -> None:
    """As with envFrom, a variable of the role wins over one of a whole secret."""
    make(site, ann, API_KEY=b"of the secret", OTHER=b"x")
    submit(site, ann, SecretUse(name="wandb"), env={"API_KEY": "of the role"})

    order = launched(site)

    assert order.environment["API_KEY"] == "of the role"
    assert order.secret_environment == {"OTHER": "x"}


def test_logins_of_registries_become_one_file(site: Site, ann: Actor) -> None:
    """Container programs find the logins where they look for them."""
    for name, registry in (("one", b"a.example"), ("two", b"b.example")):
        values = {"registry": registry, "username": b"ann", "password": CANARY.encode()}
        make(site, ann, name, SecretKind.REGISTRY, **values)
    submit(site, ann, SecretUse(name="one"), SecretUse(name="two"))

    found = json.loads(files_of(launched(site))["registry/config.json"])

    login = base64.b64encode(f"ann:{CANARY}".encode()).decode()
    assert found == {"auths": {"a.example": {"auth": login}, "b.example": {"auth": login}}}


@pytest.mark.parametrize("how", ["revoked", "grant", "disabled", "key"])
def test_launch_is_withheld_when_the_right_is_gone(
    site: Site, ann: Actor, settings: Settings, how: str
) -> None:
    """What was allowed when the job was submitted is asked again when a task starts."""
    secret = make(site, ann)
    job = submit(site, ann, SecretUse(name="wandb"))
    match how:
        case "revoked":
            secrets.revoke_secret(actor=ann, secret_id=secret.id, expected_version=1, now=NOW)
        case "grant":
            Grant.objects.filter(user=ann.user_id).delete()
        case "disabled":
            job.owner.is_active = False
            job.owner.save()
        case "key":
            settings.TERRACE_SECRETS_KEYRING = Keyring([os.urandom(32)])
    site.node()
    site.cycle()

    orders = launches.compose(list(OutboxRow.objects.filter(topic="attempt.launch")))

    assert orders.launches == {}
    (withheld,) = orders.withheld
    assert CANARY not in withheld.message
    reports.not_launched(
        node_id=withheld.node, attempt_id=withheld.attempt, message=withheld.message, now=site.now
    )
    attempt = Attempt.objects.get(id=withheld.attempt)
    assert (attempt.state, attempt.reason_code) == ("Failed", "LaunchFailed")


def test_simulated_node_is_sent_no_secret(site: Site, ann: Actor) -> None:
    """What pretends to run needs nothing that is worth keeping."""
    make(site, ann)
    submit(site, ann, SecretUse(name="wandb"))
    site.node(is_simulated=True)
    site.cycle()

    (order,) = launches.compose(
        list(OutboxRow.objects.filter(topic="attempt.launch"))
    ).launches.values()

    assert (order.secret_environment, order.secret_files) == ({}, [])
