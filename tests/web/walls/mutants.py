"""Takes guards away one at a time and runs the test that has to notice: `make guards`.

    python -m tests.web.walls.mutants [--only WORDS] [--turn N --count N] [--log FILE] [--whole]

The source of one module is changed while it is imported, in a process forked for that; no file is
touched. Each line of the output is a guard and whether it was missed; survivors make the exit 1.
`--log` notes each guard that was noticed, and passes over those that the file has: a run that was
ended goes on from there. `--whole` first runs every selection with all guards in their place.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from urllib.parse import quote

CHECKOUT = Path(__file__).resolve().parents[3]
LISTS = ("guards.toml", "guards_of_acts.toml")
HEAVY = ("numpy", "psycopg", "hypothesis", "redis", "structlog", "django.db.models", "pytest")
"""Imported once for all mutants; nothing of ours, and nothing that wants Django's settings."""
PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: where it stands, what is put in its place, and what has to notice."""

    what: str
    file: str
    find: str
    put: str
    tests: str
    routes: str = ""
    channels: str = ""
    is_daily: bool = False
    """Whether a run of the tests may take it away; all others wait for `make guards`."""

    @property
    def module(self) -> str:
        """Return the name under which the file is imported."""
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def selection(self) -> tuple[str, str, str]:
        """Return what is run for it."""
        return self.tests, self.routes, self.channels

    def mutated(self) -> str:
        """Return the module's source without the guard.

        Raises:
            ValueError: the guard does not stand there exactly once.
        """
        source = (CHECKOUT / self.file).read_text(encoding="utf-8")
        count = source.count(self.find)
        if count != 1:
            raise ValueError(f"{self.file}: {self.find!r} stands there {count} times")
        return source.replace(self.find, self.put)


def guards() -> list[Guard]:
    """Read the lists."""
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in LISTS]
    return [Guard(**one) for text in texts for one in tomllib.loads(text)["guard"]]


class _Mutated(SourceFileLoader):
    """Loads one module from another text than the file's."""

    source = ""

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the module of one guard before anybody else does."""

    def __init__(self, guard: Guard) -> None:
        self.module, self.source = guard.module, guard.mutated()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        assert found is not None
        assert found.origin is not None
        found.loader = _Mutated(fullname, found.origin)
        found.loader.source = self.source
        return found


def run(selection: tuple[str, str, str], guard: Guard | None, log: Path) -> int:
    """Run a selection of tests in a forked process, without the guard; return pytest's status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 3
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = _tests(selection, guard)
    finally:
        sys.stdout.flush()
        os._exit(status)


def _tests(selection: tuple[str, str, str], guard: Guard | None) -> int:
    import pytest

    tests, routes, channels = selection
    os.environ["TERRACE_WHOLE_MATRIX"] = "1" if routes else "0"
    os.environ["TERRACE_WALLS_ROUTES"], os.environ["TERRACE_WALLS_CHANNELS"] = routes, channels
    if guard is not None:
        sys.meta_path.insert(0, _Finder(guard))
    arguments = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--reuse-db"]
    return int(pytest.main([*arguments, "--tb=line", *tests.split()]))


def already_noticed(log: Path | None) -> set[str]:
    """Return the words of the guards that an earlier run with this log saw noticed."""
    return set(log.read_text(encoding="utf-8").splitlines()) if log and log.exists() else set()


def survivors(chosen: Iterable[Guard], folder: Path, noted: Path | None) -> list[Guard]:
    """Take the guards away one at a time; print each and return those that nothing noticed."""
    left: list[Guard] = []
    for guard in chosen:
        log = folder / "mutant.log"
        status = run(guard.selection, guard, log)
        word = {PASSED: "SURVIVED", FAILED: "noticed"}.get(status, f"BROKEN ({status})")
        print(f"{word:9} {guard.what} [{guard.file}]", flush=True)  # noqa: T201 - its output
        if status == FAILED:
            _note(noted, guard)
        else:
            left.append(guard)
            print(log.read_text(encoding="utf-8", errors="replace")[-1500:])  # noqa: T201 - as above
    return left


def _note(log: Path | None, guard: Guard) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{guard.what}\n")


def check_clean(chosen: Iterable[Guard], folder: Path) -> list[str]:
    """Run each selection of the guards' tests unchanged; return those that do not pass."""
    selections = dict.fromkeys(guard.selection for guard in chosen)
    return [" ".join(one) for one in selections if run(one, None, folder / "clean.log") != PASSED]


def by_turns(found: Sequence[Guard], turn: int, count: int) -> list[Guard]:
    """Return a handful that goes round the list as the turns go up."""
    return [found[(turn * count + place) % len(found)] for place in range(min(count, len(found)))]


def services(environment: Mapping[str, str]) -> tuple[dict[str, str], object]:
    """Return the addresses of one database and Redis for all mutants; start what was not given."""
    if "TERRACE_TEST_DATABASE_URL" in environment:
        return {}, None
    from tests.embedded import EmbeddedServices

    started = EmbeddedServices(environment)
    addresses = started.settings()
    with redirect_stdout(io.StringIO()):
        started.start()
    # Patient, as a busy machine may let a test wait for longer than a web process should.
    patient = quote("-c idle_in_transaction_session_timeout=0")
    return {
        "TERRACE_TEST_DATABASE_URL": f"{addresses['DATABASE_URL']}&options={patient}",
        "TERRACE_TEST_REDIS_URL": addresses["REDIS_URL"],
        "TERRACE_TEST_DATABASE_NAME": "test_guards",
    }, started


def main(arguments: Sequence[str]) -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--only", default="", help="guards whose words or file hold this")
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="so many by turns; 0: all")
    parser.add_argument("--log", type=Path, help="where noticed guards are noted, to go on later")
    parser.add_argument("--whole", action="store_true", help="run the tests unchanged first")
    given = parser.parse_args(arguments)
    passed_over = already_noticed(given.log)
    chosen = [
        one
        for one in guards()
        if given.only in f"{one.what} {one.file}" and one.what not in passed_over
    ]
    if given.count:
        chosen = by_turns([one for one in chosen if one.is_daily], given.turn, given.count)
    os.chdir(CHECKOUT)
    addresses, _started = services(os.environ)
    os.environ.update(addresses)
    for name in HEAVY:
        __import__(name)
    with tempfile.TemporaryDirectory() as folder:
        unclean = check_clean(chosen, Path(folder)) if given.whole else []
        left = survivors(chosen, Path(folder), given.log)
    print(f"{len(chosen) - len(left)} of {len(chosen)} guards noticed when gone")  # noqa: T201 - its output
    for one in unclean:
        print(f"fails with all guards in place: {one}")  # noqa: T201 - as above
    return 1 if left or unclean else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
