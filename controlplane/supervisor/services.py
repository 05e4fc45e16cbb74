"""The file that tells every process of this machine where its embedded services listen."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "services.json"


class UnreadableServicesError(Exception):
    """The file is there and cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the supervisor started and how to reach it; passwords included."""

    database_url: str
    redis_url: str
    secret_key: str
    public_url: str
    gateway_url: str
    secrets_key: str = ""


def read(data_folder: Path) -> Services | None:
    """Return what the supervisor wrote, or None when none runs.

    Raises:
        UnreadableServicesError: The file belongs to somebody else or is damaged.
    """
    path = data_folder / FILE_NAME
    try:
        return Services(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        message = (
            f"{path} belongs to another user: run as that user or as root, or set TERRACE_DATA "
            "to a folder of your own."
        )
        raise UnreadableServicesError(message) from error
    except (ValueError, TypeError) as error:
        message = f"{path} is damaged ({error}): remove it and run `make up` again."
        raise UnreadableServicesError(message) from error


def write(data_folder: Path, services: Services, *, owner: tuple[int, int] | None = None) -> None:
    """Replace the file at once, readable only by its owner."""
    write_private(
        data_folder / FILE_NAME, json.dumps(asdict(services), indent=1) + "\n", owner=owner
    )


def write_private(path: Path, content: str, *, owner: tuple[int, int] | None = None) -> None:
    """Write a file that only its owner may read, so that a reader sees all of it or the old one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    if owner is not None:
        os.chown(draft, *owner)
    draft.replace(path)
