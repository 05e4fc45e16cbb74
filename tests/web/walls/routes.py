"""Every address of the installation with the methods that it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RegexPattern

METHODS = ("get", "post", "put", "patch", "delete")
FOREIGN = ("accounts/",)
"""Addresses of django-allauth: before anybody is known, or about one's own account."""
PARAMETER = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """One address, as the URL configuration writes it, and one method."""

    path: str
    method: str

    @property
    def parameters(self) -> list[str]:
        """Return the names of its parameters."""
        return [found["name"] for found in PARAMETER.finditer(self.path)]

    def address(self, value: Callable[[str, str], str]) -> str:
        """Fill in the parameters; `value` says by path and name what stands for one."""
        return "/" + PARAMETER.sub(lambda found: value(self.path, found["name"]), self.path)


def routes() -> list[Route]:
    """Return all routes but those of `FOREIGN`, once each."""
    found = {
        Route(path, method)
        for path, pattern in _walk(get_resolver().url_patterns, "")
        if not path.startswith(FOREIGN)
        for method in _methods(pattern)
    }
    return sorted(found)


def _walk(
    patterns: list[URLPattern | URLResolver], prefix: str
) -> Iterator[tuple[str, URLPattern]]:
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from _walk(one.url_patterns, prefix + str(one.pattern))
        elif not isinstance(one.pattern, RegexPattern):
            yield prefix + str(one.pattern), one


def _methods(pattern: URLPattern) -> list[str]:
    view = getattr(pattern.callback, "view_class", None) or getattr(pattern.callback, "cls", None)
    if view is None:
        return ["get", "post"]
    return [method for method in METHODS if hasattr(view, method)]
