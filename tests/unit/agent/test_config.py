"""What the machine's owner writes, and where things then lie."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from worker.agent import config
from worker.agent.config import ConfigError, Runtime, RuntimeKind
from worker.agent.folders import UnsafeNameError, choose_jobs_folder, safe_name
from worker.agent.identity import Identity, JoinError, check_server, fetch_request
from worker.shim import child


def load(tmp_path: Path, text: str) -> config.AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return config.load(path)


def test_no_file(tmp_path: Path) -> None:
    """Without a file the machine and the agent's own Python are offered."""
    loaded = config.load(tmp_path / "agent.toml")

    assert sorted(loaded.runtimes) == ["host", "python"]
    assert loaded.runtimes["host"] == Runtime("host", RuntimeKind.HOST)


def test_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    """The example that a wrong file is answered with is right itself."""
    loaded = load(tmp_path, config.EXAMPLE)

    assert loaded.jobs_folder == Path("/scratch/terrace")
    assert loaded.runtimes["enroot"].argv == ("/usr/local/bin/in-image", "--")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is not TOML"),
        ("adress = 'x'", "unknown key 'adress'; there are address"),
        ("uid_count = 'many'", "uid_count = 'many' has the wrong type"),
        ("uid_count = true", "uid_count = True has the wrong type"),
        ("[runtimes.x]\nkind = 'magic'", "runtimes.x.kind is missing or not one of host"),
        ("[runtimes.x]\nkind = 'venv'", "runtimes.x.path is missing"),
        ("[runtimes.x]\nkind = 'wrapper'", "runtimes.x.argv is missing"),
        ("[runtimes.x]\nkind = 'wrapper'\nargv = 'sh'", "runtimes.x.argv is not a list"),
    ],
)
def test_wrong_file(tmp_path: Path, text: str, words: str) -> None:
    """A wrong line is named by its key."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, text)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a\n", "a" * 201])
def test_name_that_is_no_folder(name: str) -> None:
    """Names that come over the wire cannot climb or hide."""
    with pytest.raises(UnsafeNameError, match="attempt"):
        safe_name(name, "attempt")


def test_jobs_folder_of_a_barred_data_folder(tmp_path: Path) -> None:
    """Where task users cannot pass and nothing can be shown to them, jobs lie elsewhere."""
    open_folder = tmp_path / "data"
    open_folder.mkdir()
    tmp_path.chmod(0o700)

    barred = choose_jobs_folder(open_folder, None, needs_passage=True)
    passable = choose_jobs_folder(open_folder, None, needs_passage=False)
    configured = choose_jobs_folder(open_folder, Path("/scratch"), needs_passage=True)

    assert barred.parent == Path("/var/lib/terrace-jobs")
    assert (passable, configured) == (open_folder / "jobs", Path("/scratch"))


def test_barrier() -> None:
    """The outermost folder that not everybody may pass is what has to be covered."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # its folders may be passed by all
        inner = Path(name) / "b" / "c"
        inner.mkdir(parents=True)
        barred = child.barrier(str(inner))
        Path(name).chmod(0o711)
        passable = child.barrier(str(inner))

    assert (barred, passable) == (name, "")


@pytest.mark.parametrize("url", ["gateway:8443", "ftp://gateway", "https://", "http://x/?a=b"])
def test_server_that_is_none(url: str) -> None:
    """An address that cannot be a gateway's is answered with one that could."""
    with pytest.raises(JoinError, match="is not of the form"):
        check_server(url)


@pytest.mark.parametrize(
    "url",
    [
        "/agent/v1/files/7",
        "https://gateway.example/agent/v1/files/7",
        "http://evil.example/agent/v1/files/7",
        "//evil.example/agent/v1/files/7",
    ],
)
def test_credential_goes_to_the_own_gateway_only(url: str) -> None:
    """Whatever host an address names, the request goes to the gateway that the node joined by."""
    request = fetch_request(Identity("https://gateway.example", "n", "secret"), url)

    assert request.full_url == "https://gateway.example/agent/v1/files/7"


def test_credential_is_not_shown() -> None:
    """An identity in a log does not give the secret away."""
    assert "secret" not in repr(Identity("https://gateway.example", "n", "secret"))
