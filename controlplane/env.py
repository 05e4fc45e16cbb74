"""Read settings from the environment: typed, and loud about what is wrong.

Each reader takes the variable's name and a default; a variable that is set to nonsense stops the
process with its name, its value and an example of what would do. A secret may come from a file
named by `<NAME>_FILE`, which is how container platforms hand secrets over.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import overload
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})


def is_set(name: str) -> bool:
    """Tell whether the variable (or its `_FILE` form) is there and not empty."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


@overload
def text(name: str, default: str) -> str: ...
@overload
def text(name: str, default: None = None) -> str | None: ...
def text(name: str, default: str | None = None) -> str | None:
    """Return the variable as it is; an empty one counts as unset."""
    return os.environ.get(name) or default


def choice(name: str, default: str, *, among: Collection[str]) -> str:
    """Return the variable if it is one of the words in `among`."""
    value = text(name, default)
    if value not in among:
        raise _wrong(name, value, f"one of {', '.join(sorted(among))}", default)
    return value


def flag(name: str, *, default: bool) -> bool:
    """Return a yes or no."""
    value = text(name)
    if value is None:
        return default
    if value.lower() in TRUE_WORDS:
        return True
    if value.lower() in FALSE_WORDS:
        return False
    raise _wrong(name, value, "yes or no", "yes")


def integer(name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number between `least` and `most`, both included."""
    value = text(name)
    if value is None:
        return default
    expected = f"a whole number from {least} to {most}"
    try:
        number = int(value)
    except ValueError:
        raise _wrong(name, value, expected, str(default)) from None
    if not least <= number <= most:
        raise _wrong(name, value, expected, str(default))
    return number


def words(name: str, default: Collection[str] = ()) -> list[str]:
    """Return a list, written with commas."""
    value = text(name)
    if value is None:
        return list(default)
    return [word.strip() for word in value.split(",") if word.strip()]


def folder(name: str, default: Path) -> Path:
    """Return an absolute path."""
    value = text(name)
    return Path(value).expanduser().absolute() if value else default.absolute()


@overload
def origin(name: str, default: str) -> str: ...
@overload
def origin(name: str, default: None = None) -> str | None: ...
def origin(name: str, default: str | None = None) -> str | None:
    """Return an address of the form scheme://host[:port], without a path."""
    value = text(name, default)
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise _wrong(name, value, "scheme://host[:port] without a path", "https://terrace.example")
    return f"{parts.scheme}://{parts.netloc}"


@overload
def secret(name: str, default: str) -> str: ...
@overload
def secret(name: str, default: None = None) -> str | None: ...
def secret(name: str, default: str | None = None) -> str | None:
    """Return the variable, or what stands in the file that `<name>_FILE` names."""
    file_name = text(f"{name}_FILE")
    if file_name is None:
        return text(name, default)
    if text(name):
        message = f"Both {name} and {name}_FILE are set; keep one of them."
        raise ImproperlyConfigured(message)
    try:
        value = Path(file_name).read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"{name}_FILE={file_name!r} cannot be read: {error.strerror}."
        raise ImproperlyConfigured(message) from error
    if not value:
        message = f"{name}_FILE={file_name!r} is empty; put the secret into it."
        raise ImproperlyConfigured(message)
    return value


def _wrong(name: str, value: str, expected: str, example: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name}={value!r} is not {expected}, for example {name}={example}")
