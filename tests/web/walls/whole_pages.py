"""Every whole page there is to look at, by walking the addresses with the scene's things."""

from __future__ import annotations

from collections.abc import Iterator

from django.test import Client

from tests.web.walls.routes import routes
from tests.web.walls.scene import Scene

ACCOUNT_PAGES = (
    "/accounts/password/change/",
    "/accounts/email/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/2fa/webauthn/",
    "/accounts/3rdparty/",
    "/accounts/logout/",
)
VARIANTS = {
    "/jobs/": ("?group=queue",),
    "/jobs/new/": ("?as=yaml",),
    "/queues/": ("?edit=1",),
}
"""Forms of a page that show other parts than the bare one."""


def whole_pages(scene: Scene, client: Client) -> Iterator[tuple[str, str]]:
    """Yield the address and HTML of what a person sees as a page; parts of pages are left out."""
    found = [route.address(scene.value) for route in routes() if route.method == "get"]
    for path in (*found, *ACCOUNT_PAGES):
        if path.startswith("/api/"):
            continue
        for query in ("", *VARIANTS.get(path, ())):
            reply = client.get(path + query)
            is_html = reply.headers.get("Content-Type", "").startswith("text/html")
            if reply.status_code == 200 and is_html and not reply.streaming:
                text = reply.content.decode()
                if "<title>" in text:
                    yield path + query, text
