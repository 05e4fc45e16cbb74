"""Secrets in manifests become uses by name, and go back in Kubernetes' forms."""

from __future__ import annotations

from scheduling.spec import volcano
from scheduling.spec.job_spec import JobSpec, SecretUse
from scheduling.spec.parse import Format, parse, read

MANIFEST = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: x}
spec:
  minAvailable: 1
  tasks:
  - name: w
    replicas: 1
    template:
      spec:
        imagePullSecrets: [{name: reg}]
        containers:
        - image: a
          name: w
          env:
          - {name: A, value: b}
          - name: WANDB
            valueFrom: {secretKeyRef: {name: wandb, key: API_KEY, optional: true}}
          envFrom: [{secretRef: {name: s3}, prefix: X_}]
          volumeMounts:
          - {name: v, mountPath: /etc/creds}
          - {name: v, mountPath: /x/one, subPath: k1}
          - {name: other, mountPath: /data}
        volumes:
        - {name: v, secret: {secretName: files, items: [{key: k, path: p}]}}
        - {name: other, emptyDir: {}}
"""
USES = (
    SecretUse(name="wandb", key="API_KEY", variable="WANDB", is_optional=True),
    SecretUse(name="s3", prefix="X_"),
    SecretUse(name="files", path="/etc/creds", items={"k": "p"}),
    SecretUse(name="files", key="k1", path="/x/one"),
    SecretUse(name="reg", is_optional=True),
)


def spec_of(document: object) -> JobSpec:
    spec = parse(document, form=Format.YAML if isinstance(document, str) else Format.JSON)  # type: ignore[arg-type]
    assert isinstance(spec, JobSpec), spec
    return spec


def test_every_form_of_a_manifest_is_understood() -> None:
    """Variables, whole environments, volumes with and without a sub-path, pull secrets."""
    role = spec_of(MANIFEST).roles[0]

    assert role.secrets == USES
    assert role.env == {"A": "b"}


def test_manifest_comes_back_as_it_was() -> None:
    """What nobody edited is written as it was given."""
    spec = spec_of(MANIFEST)

    assert spec_of(volcano.to_manifest(spec)) == spec


def test_edited_secrets_are_written_into_the_manifest() -> None:
    """Secrets that a form changed replace those of the template; other volumes stay."""
    spec = spec_of(MANIFEST)
    uses = (SecretUse(name="new", key="K", variable="N"), USES[1], USES[2], USES[4])
    role = spec.roles[0].model_copy(update={"secrets": uses})

    written = volcano.to_manifest(spec.model_copy(update={"roles": (role,)}))

    assert spec_of(written).roles[0].secrets == uses
    pod = written["spec"]["tasks"][0]["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["other", "secret-2"]


def test_plain_form_takes_lines() -> None:
    """A form's lines: all of it, one variable, a folder, one file."""
    plain = {
        "name": "a",
        "roles": [
            {
                "name": "m",
                "command": "x",
                "secrets": "s3\nWANDB=wandb/API_KEY\nfiles:creds\nssh/id:keys/id_rsa",
            }
        ],
    }

    spec = read(plain, form=Format.FORM).spec

    assert spec is not None
    assert spec.roles[0].secrets == (
        SecretUse(name="s3"),
        SecretUse(name="wandb", key="API_KEY", variable="WANDB"),
        SecretUse(name="files", path="creds"),
        SecretUse(name="ssh", key="id", path="keys/id_rsa"),
    )


def test_wrong_uses_are_named_with_their_place() -> None:
    """A bad name, a variable without a key, and a path that leaves its folder."""
    plain = {
        "name": "a",
        "roles": [
            {
                "name": "m",
                "command": "x",
                "secrets": [
                    {"name": "Not A Name"},
                    {"name": "s3", "variable": "X"},
                    {"name": "s3", "key": "k", "variable": "1 2"},
                    {"name": "s3", "path": "../../etc"},
                ],
            }
        ],
    }

    problems = read(plain, form=Format.JSON).problems

    assert [(one.path, one.code) for one in problems] == [
        ("roles[0].secrets[0].name", "invalid_name"),
        ("roles[0].secrets[1].key", "required"),
        ("roles[0].secrets[2].variable", "invalid_env_name"),
        ("roles[0].secrets[3].path", "secret_path"),
    ]
