"""Set the tests up: throw-away servers first, then Django on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import django
import pytest
from django.conf import settings

from tests.embedded import EmbeddedServices
from tests.skips import SkipWatch

if TYPE_CHECKING:  # models can be imported only after this module has said where the servers are
    from tests.people import People

HERE = Path(__file__).resolve().parent
# These need no server; everything else may.
WITHOUT_SERVERS = tuple(str(HERE / name) + os.sep for name in ("unit", "meta"))
IN_A_BROWSER = str(HERE / "browser") + os.sep

services = EmbeddedServices(os.environ)
for _name in ("DATABASE_URL_FILE", "REDIS_URL_FILE", "SECRET_KEY_FILE"):
    os.environ.pop(_name, None)
_environment = {**services.settings(), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
os.environ.update(_environment)
_database = os.environ.get("TERRACE_TEST_DATABASE_NAME", f"test_terrace_{os.getpid()}")
settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = _database
# Here, not by pytest-django: the conftest of a folder that is named as argument imports models.
django.setup()


def pytest_configure(config: pytest.Config) -> None:
    """Watch skipped tests; `.ci/run` lets unlisted ones fail the run."""
    if config.getoption("numprocesses", None):
        for name in _environment:  # each of the processes that run the tests has its own servers
            del os.environ[name]
    is_fatal = os.environ.get("TERRACE_UNLISTED_SKIPS") == "fail"
    config.pluginmanager.register(SkipWatch(is_fatal=is_fatal))


@pytest.hookimpl(trylast=True)  # after the tests were shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in a browser last: Playwright's event loop stays in this thread."""
    items.sort(key=lambda item: str(item.path).startswith(IN_A_BROWSER))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the servers if a collected test may need them."""
    if not session.config.option.collectonly and any(
        not str(item.path).startswith(WITHOUT_SERVERS) for item in session.items
    ):
        services.start()


@pytest.hookimpl(trylast=True)  # with -x, fixtures that use the servers are torn down in this hook
def pytest_sessionfinish() -> None:
    """End the servers, before pytest removes its own folders."""
    services.stop()


@pytest.fixture
def people(db: None) -> People:
    """Alice, Bob, Charlie and Root, with their two tenants."""
    from tests.people import make_people  # models: not before Django is set up

    return make_people()
