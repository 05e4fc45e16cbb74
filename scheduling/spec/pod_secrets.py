"""Secrets in a pod template: read out of it, and written back in Kubernetes' forms.

`env[].valueFrom.secretKeyRef`, `envFrom[].secretRef`, volumes of a `secret` with their mounts, and
`imagePullSecrets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scheduling.spec.job_spec import SecretUse
from scheduling.spec.reader import MapReader

_VOLUME_PREFIX = "secret-"


def lift(pod: MapReader, container: MapReader) -> list[dict[str, Any]]:
    """Return the secrets that the main container is given."""
    found = [
        *_variables(container),
        *_whole_environments(container),
        *_volumes(pod, container),
        *(
            {"name": name, "is_optional": True}  # a cluster pulls without one, too
            for one in pod.maps("imagePullSecrets")
            if (name := one.text("name"))
        ),
    ]
    return [
        {key: value for key, value in one.items() if value not in ("", None, {})} for one in found
    ]


def _variables(container: MapReader) -> Iterator[dict[str, Any]]:
    for one in container.maps("env"):
        source = one.sub("valueFrom")
        reference = source.sub("secretKeyRef") if source else None
        if reference is None:
            continue
        yield {
            "name": reference.text("name"),
            "key": reference.text("key"),
            "variable": one.text("name"),
            "is_optional": reference.flag("optional") or None,
        }


def _whole_environments(container: MapReader) -> Iterator[dict[str, Any]]:
    for one in container.maps("envFrom"):
        reference = one.sub("secretRef")
        if reference is not None:
            yield {
                "name": reference.text("name"),
                "prefix": one.text("prefix"),
                "is_optional": reference.flag("optional") or None,
            }


def _volumes(pod: MapReader, container: MapReader) -> Iterator[dict[str, Any]]:
    secrets = {
        volume.text("name"): secret
        for volume in pod.maps("volumes")
        if (secret := volume.sub("secret")) is not None
    }
    for mount in container.maps("volumeMounts"):
        secret = secrets.get(mount.text("name"))
        if secret is None:
            continue
        items = {
            key: path
            for item in secret.maps("items")
            if (key := item.text("key")) and (path := item.text("path"))
        }
        key = mount.text("subPath") or ""
        yield {
            "name": secret.text("secretName"),
            "path": mount.text("mountPath"),
            "key": next((k for k, path in items.items() if path == key), key),
            "items": {} if key else items,
            "is_optional": secret.flag("optional") or None,
        }


def write(pod: dict[str, Any], main: dict[str, Any], secrets: Sequence[SecretUse]) -> None:
    """Put secrets in the place of all that the template had."""
    pulled = {one.get("name") for one in pod.get("imagePullSecrets") or []}
    _take_out(pod, main)
    for number, use in enumerate(secrets):
        optional = {"optional": True} if use.is_optional else {}
        if use.path:
            volume = f"{_VOLUME_PREFIX}{number}"
            secret: dict[str, Any] = {"secretName": use.name, **optional}
            if use.items:
                secret["items"] = [{"key": key, "path": path} for key, path in use.items.items()]
            mount = {"name": volume, "mountPath": use.path}
            if use.key:
                mount["subPath"] = use.key
            pod.setdefault("volumes", []).append({"name": volume, "secret": secret})
            main.setdefault("volumeMounts", []).append(mount)
        elif use.key:
            reference = {"secretKeyRef": {"name": use.name, "key": use.key, **optional}}
            variable = {"name": use.variable or use.key, "valueFrom": reference}
            main.setdefault("env", []).append(variable)
        elif use.name in pulled and not use.prefix:
            pod.setdefault("imagePullSecrets", []).append({"name": use.name})
        else:
            source: dict[str, Any] = {"secretRef": {"name": use.name, **optional}}
            if use.prefix:
                source["prefix"] = use.prefix
            main.setdefault("envFrom", []).append(source)


def _take_out(pod: dict[str, Any], main: dict[str, Any]) -> None:
    volumes = {one.get("name") for one in pod.get("volumes") or [] if "secret" in one}
    _keep(pod, "volumes", lambda one: "secret" not in one)
    _keep(main, "volumeMounts", lambda one: one.get("name") not in volumes)
    _keep(main, "env", lambda one: "secretKeyRef" not in (one.get("valueFrom") or {}))
    _keep(main, "envFrom", lambda one: "secretRef" not in one)
    pod.pop("imagePullSecrets", None)


def _keep(owner: dict[str, Any], name: str, is_kept: Any) -> None:  # Any: a test of a map
    kept = [one for one in owner.get(name) or [] if is_kept(one)]
    if kept:
        owner[name] = kept
    else:
        owner.pop(name, None)
