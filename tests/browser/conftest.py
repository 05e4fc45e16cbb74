"""Chromium on a web server of its own, with the installation that the tests of pages use."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import uvicorn
from django.conf import settings
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.people import PASSWORD, People
from tests.web.pages.conftest import Site, build_site

# Playwright's loop runs in this thread, and Django then refuses the tests' own queries.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

START_SECONDS = 20


@dataclass(slots=True)
class Visit:
    """A page that somebody looks at, and what the browser complained about."""

    page: Page
    address: str
    violations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)

    def sign_in(self, username: str) -> None:
        self.open("/accounts/login/")
        self.page.get_by_label("Login").fill(username)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.address + "/")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    assert executable, "Chromium is not installed: apt install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def address(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the web program on a free port, in a thread, on the tests' database."""
    del transactional_db
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    origin = f"http://127.0.0.1:{port}"
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["127.0.0.1"])
    monkeypatch.setattr(settings, "CSRF_TRUSTED_ORIGINS", [origin])
    from controlplane.asgi import application

    server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until = time.monotonic() + START_SECONDS
    while not server.started:
        assert time.monotonic() < until, "the web program did not start"
        thread.join(0.05)
    yield origin
    server.should_exit = True
    thread.join(START_SECONDS)


@pytest.fixture
def site(address: str) -> Site:
    del address
    from tests.people import make_people

    people: People = make_people()
    for user in people.everyone:
        user.set_password(PASSWORD)
        user.save()
    return build_site(people)


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Visit]]:
    """Open a window of some width and theme that notes violations and errors."""
    contexts = []

    def opened(width: int = 1280, theme: str = "light", *, has_scripts: bool = True) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,  # type: ignore[arg-type]  # a literal there
            java_script_enabled=has_scripts,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # the machine may be busy with other tests
        seen = Visit(page, address)

        def note(message: ConsoleMessage) -> None:
            if "Content Security Policy" in message.text:
                seen.violations.append(f"{page.url}: {message.text[:200]}")
            elif message.type == "error" and "WebSocket" not in message.text:
                seen.errors.append(f"{page.url}: {message.text[:200]}")

        page.on("console", note)
        page.on("pageerror", lambda error: seen.errors.append(f"{page.url}: {error}"))
        return seen

    yield opened
    for context in contexts:
        context.close()
