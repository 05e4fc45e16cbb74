"""Bring a whole Terrace up on one machine, and down again: what `manage.py up` does.

1. Take the data folder's lock, so that there is one supervisor for it.
2. End what a killed supervisor left.
3. Start PostgreSQL and Redis, unless DATABASE_URL and REDIS_URL name servers.
4. Choose ports, and write where everything is for the other processes to read.
5. Prepare the database: migrations, the first login, a first queue, the local agent's token.
6. Start the programs of the table and the local agent, and keep them running.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.supervisor import (
    folders,
    identity,
    ports,
    postgres,
    programs,
    record,
    redis,
    services,
)
from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Account, command_as, tail
from controlplane.supervisor.programs import Program
from controlplane.supervisor.supervisor import Supervisor
from tenants.domain import sealing

PLAIN_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
WEB_SECONDS = 180.0
FIRST_REDIS_PORT = 6400
AGENT_ENVIRONMENT = frozenset(
    {
        "PATH",
        "LANG",
        "LC_ALL",
        "TZ",
        "HOME",
        "USER",
        "LOGNAME",
        "LD_LIBRARY_PATH",
        "XDG_RUNTIME_DIR",
    }
)


@dataclass(frozen=True, slots=True)
class Given:
    """What the environment brings, and the supervisor then neither starts nor makes up."""

    database_url: str | None = None
    redis_url: str | None = None
    secret_key: str | None = None
    public_url: str | None = None
    gateway_url: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the environment says about this start."""

    checkout: Path
    data: Path
    bind: str
    web_port: int
    gateway_port: int
    run_as: str | None
    given: Given
    environment: Mapping[str, str]
    with_agent: bool


@dataclass(frozen=True, slots=True)
class FirstLogin:
    """The generated login that nobody has changed yet."""

    name: str
    password: str
    is_new: bool
    file: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `manage.py prepare` reports."""

    first_login: FirstLogin | None
    join_token: str | None

    @classmethod
    def from_json(cls, report: str) -> "Prepared":
        """Read what the command printed."""
        fields = json.loads(report)
        login = fields["first_login"]
        return cls(FirstLogin(**login) if login else None, fields["join_token"])


def up(options: Options, say: Callable[[str], None]) -> None:
    """Run Terrace until asked to end.

    Raises:
        StartError: Something is missing or did not start; the message says what to do.
    """
    account = identity.service_account(options.run_as, options.checkout)
    if account is not None and account.may_read_all:
        say(
            f"{options.checkout} or its Python lies where only root may enter: the servers run as "
            f"{account.name} and keep the right to read every file. A checkout in a folder that "
            "others may enter, for example /srv/terrace, takes that right from them."
        )
    folders.make_data_folder(options.data, account)
    with lock(options.data):
        leftovers = record.end_leftovers(options.data)
        if leftovers:
            say(f"Ended what an earlier start had left: {', '.join(leftovers)}.")
        Run(options, account, say).until_asked()


def with_database(options: Options, arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Run one command of `manage.py` beside PostgreSQL alone, and return its exit status.

    Raises:
        StartError: Terrace runs on this data folder, or PostgreSQL does not start.
    """
    account = identity.service_account(options.run_as, options.checkout)
    folders.make_data_folder(options.data, account)
    with lock(options.data):
        record.end_leftovers(options.data)
        return Run(options, account, say).command(arguments)


def agent_identity(data: Path) -> Path:
    """Return the file that has the local agent's credential, once it has joined."""
    return data / "agent" / "node.json"


class Run:
    """One run of everything, from the start to the end."""

    def __init__(
        self, options: Options, account: Account | None, say: Callable[[str], None]
    ) -> None:
        """Make the folders; start nothing yet."""
        self.options = options
        self.account = account
        self.say = say
        logs = folders.make_private(options.data / "logs", None)
        self.supervisor = Supervisor(options.data, logs, say)
        self.environment = self._children_environment()
        self.sockets: dict[str, socket.socket] = {}

    def until_asked(self) -> None:
        """Start everything, watch it, and end it in order."""
        supervisor = self.supervisor
        with supervisor.signals():
            try:
                self._start()
                supervisor.run()
            finally:
                if supervisor.requests_to_end:
                    self.say("Ending: local tasks first. Ctrl-C again to hurry.")
                supervisor.end()
                for listening in self.sockets.values():
                    listening.close()
                (self.options.data / services.FILE_NAME).unlink(missing_ok=True)
        self.say("Terrace has ended.")

    def command(self, arguments: Sequence[str]) -> int:
        """Start PostgreSQL, run one command of `manage.py` to its end, and end PostgreSQL.

        The command runs as we do, since it may read and write what is not in the data folder. It
        has a session of its own: what Ctrl-C does to it is told to it once, not twice.
        """
        options, supervisor = self.options, self.supervisor
        with supervisor.signals():
            try:
                services.write(options.data, self._services_of_command())
                process = subprocess.Popen(
                    [sys.executable, str(options.checkout / "manage.py"), *arguments],
                    env={**options.environment, "TERRACE_DATA": str(options.data)},
                    start_new_session=True,
                )
                is_told = False
                while process.poll() is None:
                    if supervisor.requests_to_end and not is_told:
                        process.send_signal(signal.SIGINT)
                        is_told = True
                    supervisor.wait(0.5)
                return process.returncode
            finally:
                supervisor.end()
                (options.data / services.FILE_NAME).unlink(missing_ok=True)

    def _services_of_command(self) -> services.Services:
        """Start PostgreSQL; the other addresses are read by the settings, and nobody goes there."""
        options, given = self.options, self.options.given
        folders.make_private(options.data / "files", self.account)
        return services.Services(
            database_url=given.database_url or self._start_postgres(),
            redis_url=given.redis_url or "redis://terrace-is-not-running.invalid:6379/0",
            secret_key=self._secret_key(),
            public_url=given.public_url or f"http://127.0.0.1:{options.web_port}",
            gateway_url=given.gateway_url or f"http://127.0.0.1:{options.gateway_port}",
            secrets_key=self._known_secrets_key(),
        )

    def _start(self) -> None:
        begun = time.monotonic()
        found = self._start_services()
        prepared = self._prepare()
        for program in self._programs():
            self.supervisor.start(program)
        self._wait_for("web", "/healthz", found.public_url)
        if self.options.with_agent:
            self._wait_for("gateway", "/healthz", found.gateway_url)
            if not self.supervisor.requests_to_end:
                self._start_agent(found, prepared)
        if not self.supervisor.requests_to_end:
            self._greet(found, prepared, time.monotonic() - begun)

    # --- embedded servers -------------------------------------------------------------------------

    def _start_services(self) -> services.Services:
        """Start PostgreSQL and Redis, choose ports, and tell everybody."""
        options, given = self.options, self.options.given
        database_url = given.database_url or self._start_postgres()
        redis_url = given.redis_url or self._start_redis()
        web_port = self._listen("web", options.web_port)
        gateway_port = self._listen("gateway", options.gateway_port)
        host = "127.0.0.1" if options.bind in {"0.0.0.0", "::"} else options.bind  # noqa: S104 - asked for by the operator
        found = services.Services(
            database_url=database_url,
            redis_url=redis_url,
            secret_key=self._secret_key(),
            public_url=given.public_url or f"http://{host}:{web_port}",
            gateway_url=given.gateway_url or f"http://{host}:{gateway_port}",
            secrets_key=self._secrets_key(),
        )
        owner = (self.account.uid, self.account.gid) if self.account else None
        services.write(options.data, found, owner=owner)
        return found

    def _start_postgres(self) -> str:
        sockets = folders.socket_folder(self.options.data, self.account)
        folder = folders.make_private(self.options.data / "postgres", self.account)
        server = postgres.server(folder, sockets, self.account)
        if not server.is_initialised():
            # A new database knows nothing of the node that this machine was in the last one.
            self._agent_identity.unlink(missing_ok=True)
        program = Program(
            name="postgres",
            command=tuple(server.command()),
            environment=PLAIN_ENVIRONMENT,
            account=self.account,
            folder=folder,
            stop=signal.SIGINT,  # fast: open transactions are rolled back
            grace_seconds=30,
            before_start=server.prepare,
            is_ending=server.is_ending,
        )
        process = self.supervisor.start(program)
        server.wait_until_ready(process, self.supervisor.log_of(program))
        return server.url()

    def _start_redis(self) -> str:
        folder = folders.make_private(self.options.data / "redis", self.account)
        wanted = FIRST_REDIS_PORT
        while True:
            wanted = ports.next_free(wanted)
            server = redis.server(folder, wanted, self.account)
            program = Program(
                name="redis",
                command=tuple(server.command()),
                environment=PLAIN_ENVIRONMENT,
                account=self.account,
                folder=folder,
                before_start=server.prepare,
            )
            process = self.supervisor.start(program)
            try:
                server.wait_until_ready(process, self.supervisor.log_of(program))
            except StartError:
                # Somebody may have taken the port between looking and starting.
                if ports.is_free(wanted):
                    raise
                self.supervisor.give_up(program)
                wanted += 1
            else:
                return server.url

    def _listen(self, name: str, wanted: int) -> int:
        """Open the socket of a program, which inherits it, and return its port."""
        listening = ports.listen(wanted, self.options.bind)
        self.sockets[name] = listening
        port: int = listening.getsockname()[1]
        if port != wanted:
            self.say(f"Port {wanted} is taken; {name} listens on {port}.")
        return port

    def _secret_key(self) -> str:
        if self.options.given.secret_key:
            return self.options.given.secret_key
        path = self.options.data / "secret-key"
        if not path.exists():
            services.write_private(path, secrets.token_urlsafe(48))
        return path.read_text(encoding="ascii").strip()

    def _secrets_key(self) -> str:
        """Return the key that seals secrets; made once, and lost with them if it is removed."""
        if not self._known_secrets_key():
            services.write_private(self.options.data / "secrets-key", sealing.new_key())
        return self._known_secrets_key()

    def _known_secrets_key(self) -> str:
        """Return the key if there is one: a restore waits for it to be brought back."""
        path = self.options.data / "secrets-key"
        return path.read_text(encoding="ascii").strip() if path.exists() else ""

    # --- Terrace's own processes ------------------------------------------------------------------

    def _children_environment(self) -> dict[str, str]:
        environment = {
            **self.options.environment,
            "TERRACE_DATA": str(self.options.data),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",  # whatever LANG says, or does not say
        }
        if self.account is not None:
            # Root's own home is closed to the account, and some libraries look into it.
            environment.update(HOME=str(self.options.data), USER=self.account.name)
            environment["LOGNAME"] = self.account.name
        return environment

    def _prepare(self) -> Prepared:
        """Run `manage.py prepare` as the service account, and read what it reports."""
        options = self.options
        folders.make_private(options.data / "login", self.account)
        command = [sys.executable, str(options.checkout / "manage.py"), "prepare"]
        if options.with_agent and not self._agent_identity.exists():
            command.append("--join-token")
        done = subprocess.run(
            command_as(command, self.account),
            capture_output=True,
            check=False,
            cwd=options.checkout,
            # A migration may take longer than a page may.
            env={**self.environment, "TERRACE_STATEMENT_TIMEOUT_SECONDS": "3600"},
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[-4000:]
            message = f"The database could not be prepared:\n{words}"
            raise StartError(message)
        return Prepared.from_json(done.stdout.decode())

    def _programs(self) -> list[Program]:
        folders.make_private(self.options.data / "files", self.account)
        folders.make_private(self.options.data / "beat", self.account)
        return programs.from_table(
            data=self.options.data,
            sockets={name: listening.fileno() for name, listening in self.sockets.items()},
            environment=self.environment,
            account=self.account,
            checkout=self.options.checkout,
        )

    # --- the local agent --------------------------------------------------------------------------

    @property
    def _agent_folder(self) -> Path:
        return self.options.data / "agent"

    @property
    def _agent_identity(self) -> Path:
        return agent_identity(self.options.data)

    def _start_agent(self, found: services.Services, prepared: Prepared) -> None:
        """Let this machine join if it has not, and run its agent.

        The agent stays who we are, so that root can give tasks users of their own; nothing of the
        control plane's environment reaches it.
        """
        environment = {
            name: value
            for name, value in self.options.environment.items()
            if name in AGENT_ENVIRONMENT
        }
        environment.update(PYTHONUTF8="1", PYTHONUNBUFFERED="1")
        self._agent_folder.mkdir(mode=folders.PASSAGE, exist_ok=True)  # tasks' users pass through
        command = [sys.executable, "-m", "worker.agent", "run", "--server", found.gateway_url]
        command += ["--data", str(self._agent_folder)]
        if prepared.join_token is not None:
            token_file = self._agent_folder / "join-token"
            services.write_private(token_file, prepared.join_token)
            command += ["--token-file", str(token_file)]
        program = Program(
            name="agent",
            command=tuple(command),
            environment=environment,
            account=None,
            folder=self.options.checkout,
            stop=signal.SIGINT,  # ends its tasks, each with its grace; SIGTERM leaves them
            grace_seconds=60,
            leftover_stop=signal.SIGTERM,  # its successor adopts them
        )
        self.supervisor.start(program)

    # --- what a person reads ----------------------------------------------------------------------

    def _wait_for(self, name: str, path: str, public_url: str) -> None:
        """Return when a process answers HTTP, or somebody asks for the end."""
        deadline = time.monotonic() + WEB_SECONDS
        host, port = self.sockets[name].getsockname()[:2]
        url = f"http://{host}:{port}{path}"
        request = urllib.request.Request(url, headers={"Host": public_url.split("//", 1)[1]})
        # Straight to our own child: a proxy in the environment is not for this.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not self.supervisor.requests_to_end:
            try:
                with opener.open(request, timeout=2):
                    return
            except urllib.error.HTTPError:
                return  # it answers, if only that it is not ready or has no such page
            except OSError:
                self.supervisor.watch()
                self.supervisor.wait(0.05)
            if time.monotonic() > deadline:
                log = self.options.data / "logs" / f"{name}.log"
                message = f"{name} does not answer at {url}. Its log ends:\n{tail(log)}"
                raise StartError(message)

    def _greet(self, found: services.Services, prepared: Prepared, seconds: float) -> None:
        self.say(f"Terrace runs at {found.public_url} (started in {seconds:.1f} s).")
        login = prepared.first_login
        if login is not None and login.is_new:
            self.say(f"Sign in as {login.name} with the password {login.password}")
            self.say(f"It is shown this once, and kept in {login.file} until you change it.")
        elif login is not None:
            self.say(f"The first password of {login.name}, not changed yet, is in {login.file}.")
        self.say(f"Logs: {self.options.data / 'logs'}. Ctrl-C ends everything.")


@contextmanager
def lock(data: Path) -> Iterator[None]:
    """Hold the data folder for one supervisor.

    Raises:
        StartError: Another one has it.
    """
    descriptor = os.open(data / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+", encoding="ascii") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = services.read(data)
            where = f" at {running.public_url}" if running else ""
            message = f"Terrace already runs{where} on {data}. End it there with Ctrl-C first."
            raise StartError(message) from None
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")  # for people; what counts is the lock
        stream.flush()
        yield
