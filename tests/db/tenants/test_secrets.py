"""Secrets are written and never read: who makes, sees and revokes them, and what lies where."""

from __future__ import annotations

import os
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django.fixtures import Settings

from tenants.domain import secrets
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.domain.sealing import CannotOpenError, Keyring, UnusableKeyError, new_key, read_keys
from tenants.domain.secrets import NewSecret
from tenants.models import AuditRow, OrgUnit, Secret, SecretKind, User
from tests.people import NOW, People

CANARY = b"canary-4711-never-shown"
OLD, NEW = os.urandom(32), os.urandom(32)


@pytest.fixture(autouse=True)
def keyring(settings: Settings) -> None:
    settings.TERRACE_SECRETS_KEYRING = Keyring([OLD])


def make(  # noqa: PLR0913 -- the fields of a secret
    people: People,
    user: User,
    unit: OrgUnit,
    *,
    name: str = "wandb",
    kind: SecretKind = SecretKind.VARIABLES,
    is_shared: bool = True,
    values: dict[str, bytes] | None = None,
) -> Secret:
    new = NewSecret(name, kind, values or {"API_KEY": CANARY}, is_shared)
    return secrets.create_secret(actor=people.actor(user), unit_id=unit.id, new=new, now=NOW)


def opened(secret: Secret) -> dict[str, bytes]:
    return secrets.values_for([secret], NOW)[secret.id]


def test_value_lies_in_no_table_as_it_is(people: People) -> None:
    """Row, audit trail and outbox hold names; the value is found in none of them."""
    secret = make(people, people.bob, people.vision)

    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            for (row,) in cursor.fetchall():
                assert CANARY.decode() not in row
                assert CANARY.hex() not in row, table
    assert opened(secret) == {"API_KEY": CANARY}
    assert CANARY.decode() not in repr(NewSecret("a", SecretKind.FILES, {"k": CANARY}))


def test_audit_row_names_the_keys_alone(people: People) -> None:
    """The record of a new secret tells what it holds and nothing of the values."""
    make(people, people.bob, people.vision)

    row = AuditRow.objects.get(action="secret.create")
    after = {"kind": "variables", "is_shared": True, "keys": ["API_KEY"], "revoked": False}
    assert (row.before, row.after, row.subject_label) == (None, after, "wandb")


@pytest.mark.parametrize(
    ("name", "unit", "outcome"),
    [
        ("bob", "vision", None),
        ("bob", "robots", None),
        ("alice", "vision", None),
        ("root", "mill", None),
        ("bob", "lab", NotFound),
        ("charlie", "vision", NotFound),
    ],
)
def test_who_may_make_secrets(
    people: People, name: str, unit: str, outcome: type[Exception] | None
) -> None:
    """Who submits jobs in a unit makes own ones there; an administrator below its grant."""
    if outcome is None:
        assert make(people, getattr(people, name), getattr(people, unit)).name == "wandb"
        return
    with pytest.raises(outcome):
        make(people, getattr(people, name), getattr(people, unit))


def test_own_secret_of_somebody_else_is_not_seen(people: People) -> None:
    """Bob's own secret is Bob's; administrators see its name, and nobody beside or below."""
    make(people, people.bob, people.vision, is_shared=False)
    make(people, people.alice, people.lab, name="everybodys")

    def seen(user: User) -> set[str]:
        return {one.name for one in secrets.visible_to(people.actor(user))}

    assert seen(people.bob) == {"wandb", "everybodys"}
    assert seen(people.alice) == {"wandb", "everybodys"}
    assert seen(people.root) == {"wandb", "everybodys"}
    assert seen(people.charlie) == set()


def test_only_owner_and_administrators_change_a_shared_secret(people: People) -> None:
    """Bob uses what Alice shared and may not replace or revoke it."""
    secret = make(people, people.alice, people.lab)

    with pytest.raises(Denied):
        secrets.revoke_secret(
            actor=people.actor(people.bob), secret_id=secret.id, expected_version=1, now=NOW
        )
    with pytest.raises(NotFound):
        secrets.revoke_secret(
            actor=people.actor(people.charlie), secret_id=secret.id, expected_version=1, now=NOW
        )


def test_nobody_but_an_administrator_shares_before_another(people: People) -> None:
    """Bob cannot put values of his into colleagues' jobs under a name that Alice gave a meaning."""
    make(people, people.alice, people.lab)

    with pytest.raises(Denied):
        make(people, people.bob, people.vision)

    assert make(people, people.bob, people.vision, is_shared=False).owner == people.bob
    assert make(people, people.bob, people.vision, name="other").is_shared
    assert make(people, people.alice, people.vision).is_shared


def test_nearest_secret_counts_and_in_one_unit_ones_own(people: People) -> None:
    """A name means the nearest unit's secret; beside a shared one the owner's own."""
    make(people, people.alice, people.lab, values={"K": b"of the tenant"})
    make(people, people.alice, people.vision, values={"K": b"of the department"})
    make(people, people.bob, people.vision, values={"K": b"Bob's own"}, is_shared=False)

    def meant(user: User, unit: OrgUnit) -> bytes:
        found = secrets.usable(unit_id=unit.id, owner_id=user.id, names=["wandb"])
        return opened(found["wandb"])["K"]

    assert meant(people.bob, people.robots) == b"Bob's own"
    assert meant(people.alice, people.robots) == b"of the department"
    assert meant(people.alice, people.speech) == b"of the tenant"
    assert secrets.usable(unit_id=people.mill.id, owner_id=people.bob.id, names=["wandb"]) == {}


def test_revoked_secret_has_no_value_and_its_name_is_free(people: People) -> None:
    """Revoking destroys the ciphertext; nobody is given the secret any more."""
    secret = make(people, people.bob, people.vision)

    gone = secrets.revoke_secret(
        actor=people.actor(people.bob), secret_id=secret.id, expected_version=1, now=NOW
    )

    assert (bytes(gone.ciphertext), bytes(gone.wrapped_key)) == (b"", b"")
    assert not secrets.usable(unit_id=people.vision.id, owner_id=people.bob.id, names=["wandb"])
    make(people, people.bob, people.vision)
    with pytest.raises(Conflict):
        secrets.replace_values(
            actor=people.actor(people.bob),
            secret_id=secret.id,
            values={"K": b"x"},
            expected_version=2,
            now=NOW,
        )


def test_replaced_values_are_the_ones_given_from_then_on(people: People) -> None:
    """All old values go with the new ones; an outdated version is refused."""
    secret = make(people, people.bob, people.vision)
    actor = people.actor(people.bob)

    secrets.replace_values(
        actor=actor, secret_id=secret.id, values={"OTHER": b"new"}, expected_version=1, now=NOW
    )

    assert opened(Secret.objects.get(id=secret.id)) == {"OTHER": b"new"}
    with pytest.raises(Conflict):
        secrets.replace_values(
            actor=actor, secret_id=secret.id, values={"K": b"x"}, expected_version=1, now=NOW
        )


@pytest.mark.parametrize(
    ("kind", "values", "code"),
    [
        (SecretKind.VARIABLES, {}, "secret_empty"),
        (SecretKind.VARIABLES, {"1X": b"v"}, "secret_key"),
        (SecretKind.VARIABLES, {"X": b"\xff"}, "secret_not_text"),
        (SecretKind.VARIABLES, {"X": b"a\0b"}, "secret_not_text"),
        (SecretKind.FILES, {"../x": b"v"}, "secret_key"),
        (SecretKind.FILES, {"x": b"v" * (128 * 1024 + 1)}, "file_too_big"),
        (SecretKind.REGISTRY, {"username": b"v"}, "secret_registry"),
    ],
)
def test_values_that_no_task_could_be_given_are_refused(
    people: People, kind: SecretKind, values: dict[str, bytes], code: str
) -> None:
    """What is wrong is named without the value."""
    with pytest.raises(Invalid) as refusal:
        secrets.create_secret(
            actor=people.actor(people.bob),
            unit_id=people.vision.id,
            new=NewSecret("wandb", kind, values),
            now=NOW,
        )
    assert code in {problem.code for problem in refusal.value.problems}


def test_without_a_key_there_are_no_secrets(people: People, settings: Settings) -> None:
    """An installation without a key says so in the place of keeping a value open."""
    settings.TERRACE_SECRETS_KEYRING = Keyring([])

    with pytest.raises(Conflict) as refusal:
        make(people, people.bob, people.vision)
    assert refusal.value.code == "secrets_key_missing"


# --- keys -----------------------------------------------------------------------------------------


def test_rotation_puts_every_secret_under_the_new_key(people: People, settings: Settings) -> None:
    """After rotating, the old key may go; the values are the same."""
    secret = make(people, people.bob, people.vision)
    settings.TERRACE_SECRETS_KEYRING = Keyring([NEW, OLD])

    assert secrets.rotate(NOW) == (1, [])
    assert secrets.rotate(NOW) == (0, [])

    settings.TERRACE_SECRETS_KEYRING = Keyring([NEW])
    assert opened(Secret.objects.get(id=secret.id)) == {"API_KEY": CANARY}


def test_secret_under_an_unknown_key_is_named_and_left(people: People, settings: Settings) -> None:
    """Rotation without the old key loses nothing: it says which secret did not open."""
    secret = make(people, people.bob, people.vision)
    settings.TERRACE_SECRETS_KEYRING = Keyring([NEW])

    rotated, lost = secrets.rotate(NOW)

    assert (rotated, [one.id for one in lost]) == (0, [secret.id])
    with pytest.raises(CannotOpenError):
        opened(secret)
    settings.TERRACE_SECRETS_KEYRING = Keyring([OLD])
    assert opened(Secret.objects.get(id=secret.id)) == {"API_KEY": CANARY}


def test_ciphertext_in_another_row_does_not_open(people: People) -> None:
    """Whoever copies a sealed value into a secret of their own is given nothing."""
    mine = make(people, people.bob, people.robots, name="mine")
    theirs = make(people, people.alice, people.lab, name="theirs")
    mine.wrapped_key, mine.ciphertext = theirs.wrapped_key, theirs.ciphertext

    with pytest.raises(CannotOpenError):
        opened(mine)


def test_altered_ciphertext_does_not_open(people: People) -> None:
    """One flipped bit is noticed."""
    secret = make(people, people.bob, people.vision)
    altered = bytearray(secret.ciphertext)
    altered[-1] ^= 1
    secret.ciphertext = bytes(altered)

    with pytest.raises(CannotOpenError):
        opened(secret)


@pytest.mark.parametrize(
    "text", ["short", "not base64!", f"{new_key()},x"], ids=["short", "no base64", "second short"]
)
def test_wrong_key_is_refused_without_being_shown(text: str) -> None:
    """The message counts keys and shows none."""
    with pytest.raises(UnusableKeyError) as error:
        read_keys(text)
    assert text not in str(error.value)


def test_keyring_shows_ids_only() -> None:
    """What is printed of a keyring opens nothing."""
    text = new_key()
    assert text.rstrip("=") not in repr(Keyring(read_keys(text)))
    assert repr(Keyring([])) == "Keyring()"


def test_command_rotates_and_names_what_no_key_opens(people: People, settings: Settings) -> None:
    """The operator reads how many secrets moved, and which one keeps its key needed."""
    make(people, people.bob, people.vision)
    settings.TERRACE_SECRETS_KEYRING = Keyring([NEW, OLD])
    out = StringIO()

    call_command("rotate_secrets", stdout=out)

    assert out.getvalue().startswith("1 secrets are under key ")
    settings.TERRACE_SECRETS_KEYRING = Keyring([OLD])
    with pytest.raises(CommandError, match=r"wandb \(vision\)"):
        call_command("rotate_secrets", stdout=out)
    settings.TERRACE_SECRETS_KEYRING = Keyring([])
    with pytest.raises(CommandError, match="TERRACE_SECRETS_KEY"):
        call_command("rotate_secrets", stdout=out)
