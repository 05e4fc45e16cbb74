"""What plugins inject, byte for byte, on a cluster and on plain machines."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.spec.job_plugins import (
    PLUGINS,
    Endpoint,
    KeyPair,
    context_of,
    environment,
    for_job,
    options_of,
    options_to_args,
    read_options,
)
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse


def job(plugins: dict[str, Any], **replicas: int) -> JobSpec:
    """Make the job `tfj` with these roles."""
    roles = [
        {"name": name.replace("_", "-"), "replicas": count, "command": ["run"]}
        for name, count in replicas.items()
    ]
    spec = parse({"name": "tfj", "roles": roles, "plugins": plugins}, form=Format.JSON)
    assert isinstance(spec, JobSpec), spec
    return spec


def test_env_tells_the_index_under_both_names() -> None:
    """VK_ is the older one."""
    assert environment(job({"env": {}}, w=3), "w", 2).env == {
        "VK_TASK_INDEX": "2",
        "VC_TASK_INDEX": "2",
    }


def test_svc_lists_hosts_in_files_and_variables() -> None:
    """Roles in the order of the spec, `-` becomes `_`, one host a line."""
    given = environment(job({"svc": {}}, ps=1, big_worker=2), "ps", 0)

    assert given.env == {
        "VC_PS_HOSTS": "tfj-ps-0.tfj",
        "VC_PS_NUM": "1",
        "VC_BIG_WORKER_HOSTS": "tfj-big-worker-0.tfj,tfj-big-worker-1.tfj",
        "VC_BIG_WORKER_NUM": "2",
    }
    assert {file.path: file.text for file in given.files} == {
        "/etc/volcano/ps.host": "tfj-ps-0.tfj",
        "/etc/volcano/VC_PS_HOSTS": "tfj-ps-0.tfj",
        "/etc/volcano/VC_PS_NUM": "1",
        "/etc/volcano/big_worker.host": "tfj-big-worker-0.tfj\ntfj-big-worker-1.tfj",
        "/etc/volcano/VC_BIG_WORKER_HOSTS": "tfj-big-worker-0.tfj,tfj-big-worker-1.tfj",
        "/etc/volcano/VC_BIG_WORKER_NUM": "2",
    }


def test_svc_can_leave_the_variables_out() -> None:
    """They can exceed what an environment holds; the files stay."""
    given = environment(job({"svc": {"inject_hosts_env": False}}, w=2), "w", 0)

    assert given.env == {}
    assert len(given.files) == 3


def test_tensorflow_describes_the_cluster() -> None:
    """Compact JSON, parts in TensorFlow's order."""
    given = environment(job({"tensorflow": {}}, worker=2, ps=1), "worker", 1)

    assert given.env["TF_CONFIG"] == (
        '{"cluster":{"ps":["tfj-ps-0.tfj:2222"],"worker":["tfj-worker-0.tfj:2222",'
        '"tfj-worker-1.tfj:2222"]},"task":{"type":"worker","index":1}}'
    )


def test_one_task_alone_has_no_cluster() -> None:
    """A job of one role with one replica gets no TF_CONFIG."""
    assert "TF_CONFIG" not in environment(job({"tensorflow": {}}, worker=1), "worker", 0).env


@pytest.mark.parametrize(("role", "index", "rank"), [("master", 0, "0"), ("worker", 1, "2")])
def test_pytorch_ranks(role: str, index: int, rank: str) -> None:
    """The master is 0, workers follow; the world counts both, other roles have no rank."""
    spec = job({"pytorch": {}}, master=1, worker=2, board=1)
    wanted = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")

    given = environment(spec, role, index)
    board = environment(spec, "board", 0)

    assert [given.env[name] for name in wanted] == ["tfj-master-0.tfj", "23456", "3", rank]
    assert "RANK" not in board.env
    assert given.ports == (23456,)


def test_mpi_lists_workers_for_the_launcher_only() -> None:
    """No slots are written; mpi brings svc and ssh."""
    spec = job({"mpi": {}}, master=1, worker=2)

    assert environment(spec, "master", 0).env["MPI_HOST"] == "tfj-worker-0.tfj,tfj-worker-1.tfj"
    assert "MPI_HOST" not in environment(spec, "worker", 0).env
    assert sorted(spec.plugins) == ["mpi", "ssh", "svc"]


def test_ssh_configures_every_host_with_the_given_keys() -> None:
    """Keys are given, never made here; the default folder is private."""
    files = environment(
        job({"ssh": {}}, w=1), "w", 0, key_pair=KeyPair("PRIVATE", "ssh-rsa PUBLIC")
    ).files

    assert {(file.path, file.mode): file.text for file in files} == {
        ("/root/.ssh/id_rsa", 0o600): "PRIVATE",
        ("/root/.ssh/id_rsa.pub", 0o600): "ssh-rsa PUBLIC",
        ("/root/.ssh/authorized_keys", 0o600): "ssh-rsa PUBLIC",
        ("/root/.ssh/config", 0o600): (
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
            "Host tfj-w-0\n  HostName tfj-w-0.tfj\n  Port 22\n"
        ),
    }


def test_a_users_own_keys_win() -> None:
    """Both must be given."""
    options = {"private_key": "MINE", "public_key": "MY-PUBLIC"}
    spec = job({"ssh": options}, w=1)

    kept = for_job(spec.plugins, context_of(spec, key_pair=KeyPair("A", "B")))["ssh"]

    assert (kept.secret, kept.files["id_rsa"], kept.files["id_rsa.pub"]) == (
        "tfj-ssh",
        "MINE",
        "MY-PUBLIC",
    )


def test_ray_starts_head_and_workers() -> None:
    """Commands are replaced, and a service stands before the head."""
    spec = job({"ray": {}}, head=1, worker=1)

    head = environment(spec, "head", 0).additions[-1]
    worker = environment(spec, "worker", 0).additions[-1]

    assert head.commands["head"][-1] == (
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6379"
        " --dashboard-port=8265 --ray-client-server-port=10001"
    )
    assert worker.commands["worker"][-1] == "ray start --block --address=tfj-head-0.tfj:6379"
    assert for_job(spec.plugins, context_of(spec))["ray"].services[0].name == "tfj-head-svc"


def test_hcclrank_counts_workers_after_masters() -> None:
    """Ranks are annotations; other roles have none."""
    spec = job({"hcclrank": {}}, master=2, worker=2, board=1)

    ranks = [
        dict(environment(spec, role, 1 if role != "board" else 0).additions[-1].annotations)
        for role in ("master", "worker", "board")
    ]

    assert ranks == [{"hccl/rankIndex": "1"}, {"hccl/rankIndex": "3"}, {}]


@pytest.mark.parametrize(
    ("plugins", "given", "rank"),
    [
        ({"hcclrank": {}}, {}, "3"),
        ({"hcclrank": {}, "rendezvous": {"env": {"RANK": "9"}}}, {}, "9"),
        ({"hcclrank": {}}, {"env": {"RANK": "7"}}, "7"),
        ({"hcclrank": {}}, {"env": {"RANK": "7"}, "annotations": {"hccl/rankIndex": "5"}}, "5"),
        ({}, {"env": {"RANK": "7"}}, None),
    ],
)
def test_rank_stands_in_a_variable_where_there_is_no_pod(
    plugins: dict[str, Any], given: dict[str, Any], rank: str | None
) -> None:
    """An annotated rank counts, else a RANK that the process sees, else the computed one."""
    spec = job(plugins, master=2, worker=2)
    roles = [one.model_copy(update=given) if one.name == "worker" else one for one in spec.roles]

    env = environment(spec.model_copy(update={"roles": roles}), "worker", 1).env

    assert env.get("TERRACE_HCCL_RANK") == rank


def test_rendezvous_fills_templates() -> None:
    """Any framework's variables can be written with placeholders."""
    env = {
        "DMLC_PS_ROOT_URI": "{host.scheduler}",
        "ALL": "{hosts.worker}/{num.worker}/{role}{index}",
    }

    given = environment(job({"rendezvous": {"env": env}}, scheduler=1, worker=2), "worker", 1).env

    assert given["DMLC_PS_ROOT_URI"] == "tfj-scheduler-0.tfj"
    assert given["ALL"] == "tfj-worker-0.tfj,tfj-worker-1.tfj/2/worker1"


def test_rendezvous_refuses_a_role_that_is_not_there() -> None:
    """The placeholder is named."""
    roles = [{"name": "w", "command": ["run"]}]
    plugins = {"rendezvous": {"env": {"A": "{hosts.ghost}"}}}

    result = parse({"name": "a", "roles": roles, "plugins": plugins}, form=Format.JSON)

    assert isinstance(result, list)
    assert [(one.path, one.code) for one in result] == [
        ("plugins.rendezvous.env.A", "unknown_placeholder")
    ]


def test_plain_machines_get_a_hosts_file_and_their_real_ports() -> None:
    """Addresses and ports of the tasks are given; names stay as on a cluster."""
    endpoints = {
        ("master", 0): Endpoint("tfj-master-0.tfj", "10.0.0.1", {23456: 40001}),
        ("worker", 0): Endpoint("tfj-worker-0.tfj", "10.0.0.2"),
    }

    given = environment(job({"pytorch": {}}, master=1, worker=1), "worker", 0, endpoints=endpoints)

    assert given.hosts == (
        ("10.0.0.1", ("tfj-master-0.tfj", "tfj-master-0")),
        ("10.0.0.2", ("tfj-worker-0.tfj", "tfj-worker-0")),
    )
    assert (given.env["MASTER_ADDR"], given.env["MASTER_PORT"]) == ("tfj-master-0.tfj", "40001")


def test_a_plugins_variable_wins() -> None:
    """A variable of the same name in the role's own environment is replaced."""
    role = {"name": "w", "command": ["run"], "env": {"VC_TASK_INDEX": "mine", "A": "1"}}
    spec = parse({"name": "a", "roles": [role], "plugins": ["env"]}, form=Format.JSON)
    assert isinstance(spec, JobSpec)

    assert environment(spec, "w", 0).env == {"VC_TASK_INDEX": "0", "A": "1", "VK_TASK_INDEX": "0"}


def test_an_unknown_role_is_an_error() -> None:
    """Nobody gets an empty environment by mistake."""
    with pytest.raises(KeyError):
        environment(job({}, w=1), "ghost", 0)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (["--port=1"], {"port": "1"}),
        (["-port", "1", "--wait-master-enabled"], {"port": "1", "wait_master_enabled": "true"}),
        ([], {}),
        (None, {}),
        ({"port": 1}, {"port": 1}),
    ],
)
def test_flags_are_read_as_go_does(args: Any, options: dict[str, Any]) -> None:
    """With one or two dashes, with = or a blank, bare ones are true."""
    assert read_options("pytorch", args) == (options, [])


def test_options_go_back_to_flags() -> None:
    """Those at their default are left out."""
    assert options_to_args("svc", {"inject_hosts_env": "false"}) == ["--inject-hosts-env=false"]


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_works_with_its_defaults(name: str) -> None:
    """No option is needed."""
    assert options_of(name, {}).model_dump() is not None


def test_a_context_is_shared_by_all_tasks_of_a_job() -> None:
    """With it the environment of each task is the same as without."""
    plugins: dict[str, Any] = {"tensorflow": {}, "ssh": {}, "mpi": {}, "env": {}}
    spec = job(plugins, master=1, ps=1, worker=3)
    context = context_of(spec)

    shared = [environment(spec, "worker", n, context=context) for n in range(3)]

    assert shared == [environment(spec, "worker", n) for n in range(3)]


def test_a_plugins_command_takes_the_place_of_the_roles() -> None:
    """Ray's start command is what runs; other plugins leave the command alone."""
    spec = job({"ray": {}}, head=1, worker=1, driver=1)

    commands = [environment(spec, role, 0).command for role in ("head", "driver")]

    assert commands[0] is not None
    assert commands[0][:2] == ("sh", "-c")
    assert commands[1] is None


def test_a_host_list_too_long_for_a_variable_stays_in_the_files() -> None:
    """A process could not be started with it."""
    given = environment(job({"svc": {}}, ps=1, worker=9000), "ps", 0)

    assert sorted(given.env) == ["VC_PS_HOSTS", "VC_PS_NUM", "VC_WORKER_NUM"]
    assert "/etc/volcano/VC_WORKER_HOSTS" in {file.path for file in given.files}
