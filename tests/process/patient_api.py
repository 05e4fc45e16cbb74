"""What a test that kills processes asks of an installation, and how it asks: again and again."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from tests.process.running import PATIENCE_SECONDS

MAKE_TOKEN = """
from datetime import timedelta
from scheduling.domain import clock
from tenants.domain import tokens
from tenants.domain.access import load_actor
from tenants.models import User
now = clock.database_now()
admin = User.objects.get(username="admin")
_, secret = tokens.create_token(
    actor=load_actor(admin), user=admin, name="faults", verbs=[], unit=None,
    expires_at=now + timedelta(hours=12), now=now,
)
print(secret)
"""
VIOLATIONS = """
from django.core.management import call_command
call_command("check_invariants")
"""


class Api:
    """The REST API as a patient client uses it: a request that got no answer is repeated."""

    def __init__(self, address: str, token: str) -> None:
        self._base = f"{address}/api/v1"
        self._token = token
        self.internal_errors: list[str] = []
        """What was answered 500: the client comes again, and yet it should have been 503."""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def submit(self, job: Mapping[str, object]) -> str:
        """Submit a job, under one key however often, and return its id."""
        key = {"Idempotency-Key": f"patient-{job['name']}"}
        return str(self._until_answered("POST", "/jobs", job, key)["id"])

    def phase(self, job_id: str) -> str:
        """Return a job's phase."""
        return str(self._until_answered("GET", f"/jobs/{job_id}")["phase"])

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        once: bool = False,
    ) -> Any:
        """Return the reply to a request; `once` is for who tries again by himself.

        Raises:
            OSError: asked once, and there was none.
        """
        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" else {}
        if once:
            return self._ask(method, path, body, headers)
        return self._until_answered(method, path, body, headers)

    def _until_answered(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._ask(method, path, body, headers or {})
            except urllib.error.HTTPError as error:
                said = error.read().decode()
                if error.code < 500 or time.monotonic() > deadline:
                    raise AssertionError(said) from error
                if error.code == 500:
                    self.internal_errors.append(f"{method} {path}: {said}")
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
    ) -> Any:
        request = urllib.request.Request(
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                **headers,
            },
        )
        with self._opener.open(request, timeout=20) as reply:
            return json.load(reply)
