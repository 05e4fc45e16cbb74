"""A job that is written as a manifest and read again is the same job."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.lifecycle.events import POLICY_ACTIONS, POLICY_EVENTS
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse
from scheduling.spec.volcano import to_manifest

names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
text_maps = st.dictionaries(names, words, max_size=3)
policies = st.one_of(
    st.fixed_dictionaries(
        {
            "events": st.lists(
                st.sampled_from(POLICY_EVENTS[1:]), min_size=1, max_size=2, unique=True
            )
        },
        optional={"timeout_seconds": st.integers(0, 100_000)},
    ),
    st.fixed_dictionaries({"exit_code": st.integers(1, 255)}),
).flatmap(lambda one: st.sampled_from(POLICY_ACTIONS).map(lambda action: {**one, "action": action}))

roles: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": names, "replicas": st.integers(0, 50), "command": st.lists(words, min_size=1)},
    optional={
        "image": st.sampled_from(["busybox", "host:5000/a/b:1"]),
        "args": st.lists(words, max_size=2),
        "env": text_maps,
        "working_dir": st.sampled_from(["", "/w"]),
        "cpu_milli": st.integers(0, 10**6),
        "memory_bytes": st.integers(0, 2**50),
        "gpu_milli": st.sampled_from([0, 250, 1000, 8000]),
        "resources": st.dictionaries(
            st.sampled_from(["a.b/c", "d.e/f"]), st.integers(1, 10**3).map(lambda n: n * 1000)
        ),
        "node_selector": text_maps,
        "ports": st.lists(st.fixed_dictionaries({"number": st.integers(1, 65535)}), max_size=2),
        "restart_policy": st.sampled_from(["Never", "OnFailure", "Always"]),
        "grace_seconds": st.integers(0, 1000),
        "policies": st.lists(policies, max_size=1),
        "labels": text_maps,
        "annotations": text_maps,
        "runtime": st.sampled_from(["", "python"]),
        "priority_class": st.sampled_from(["", "high"]),
    },
)

jobs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": names,
        "roles": st.lists(roles, min_size=1, max_size=3, unique_by=lambda r: r["name"]),
    },
    optional={
        "queue": names,
        "kind": st.sampled_from(["training", "array", "notebook"]),
        "priority": st.integers(-100, 10**6),
        "max_retry": st.integers(1, 9),
        "policies": st.lists(policies, max_size=1),
        "plugins": st.sampled_from(
            [{}, {"svc": {"inject_hosts_env": False}}, {"env": {}, "ssh": {}}]
        ),
        "ttl_seconds": st.integers(0, 10**6),
        "sla_waiting_seconds": st.integers(0, 10**6),
        "time_limit_seconds": st.integers(0, 10**6),
        "running_estimate_seconds": st.integers(0, 10**6),
        "preemptable": st.booleans(),
        "labels": text_maps,
        "annotations": text_maps,
        "code": st.just({"source": "git", "url": "https://host/x", "revision": "main"}),
    },
)


FIELDS = [
    *("name", "roles", "spec", "metadata", "tasks", "template", "policies", "plugins", "svc"),
    *("replicas", "env", "containers", "resources", "kind", "apiVersion"),
]


def without_templates(spec: JobSpec) -> JobSpec:
    """Leave out the templates: a job born in a form gets them only on its way out."""
    roles = tuple(role.model_copy(update={"template": None}) for role in spec.roles)
    return spec.model_copy(update={"roles": roles})


@settings(max_examples=150, deadline=None)
@given(jobs)
def test_a_job_survives_the_way_out_and_back(document: dict[str, Any]) -> None:
    """Plain -> spec -> manifest -> spec -> manifest: both specs and both manifests are equal."""
    first = parse(document, form=Format.JSON)
    assert isinstance(first, JobSpec), first
    manifest = to_manifest(first)

    second = parse(manifest, form=Format.JSON)

    assert isinstance(second, JobSpec), second
    assert without_templates(second) == first
    assert to_manifest(second) == manifest


@settings(max_examples=50, deadline=None)
@given(jobs)
def test_the_plain_representation_is_read_back_equal(document: dict[str, Any]) -> None:
    """What the API prints of a job is accepted as the same job."""
    spec = parse(document, form=Format.JSON)
    assert isinstance(spec, JobSpec)

    assert parse(spec.model_dump(mode="json"), form=Format.JSON) == spec


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(FIELDS),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_nothing_that_is_read_raises(document: Any) -> None:
    """Whatever a document holds, the answer is a spec or a list of problems."""
    manifest = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": document}

    for attempt in (document, {"name": "a", "roles": document}, manifest):
        for form in (Format.JSON, Format.FORM):
            assert isinstance(parse(attempt, form=form), JobSpec | list)
