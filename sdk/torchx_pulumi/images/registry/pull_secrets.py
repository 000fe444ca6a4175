"""Credentials inside a pod: the pull secrets (`imagePullSecrets`) of its service account."""

from __future__ import annotations

import base64
import fnmatch
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.images.reference import DOCKER_HUB, Reference
from torchx_pulumi.images.registry.credentials import FoundLogin, RegistryLogin
from torchx_pulumi.kube import KubernetesCluster, Reader
from torchx_pulumi.kube.kinds import SECRET, SERVICE_ACCOUNT
from torchx_pulumi.kube.kubeconfig import POD_FOLDER, pod_config
from torchx_pulumi.model.errors import ClusterError

_HUB_NAMES: Final = ("docker.io", "index.docker.io", "registry-1.docker.io")
_KEYS: Final = (".dockerconfigjson", ".dockercfg")
"""Keys of the data of `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`."""


def login_of_pod(reference: Reference, *, folder: str | None = None, cluster: Reader | None = None) -> FoundLogin:
    """Return the credentials for a repository in the pull secrets of the pod's service account.

    Args:
        reference: The repository.
        folder: Folder of the service account's files. None: that of Kubernetes.
        cluster: The cluster. None: the pod's own.
    """
    folder = folder or POD_FOLDER
    token = Path(folder, "token")
    if not os.environ.get("KUBERNETES_SERVICE_HOST") or not token.is_file():
        return FoundLogin(login=None)
    try:
        namespace, name = _account(token.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return FoundLogin(login=None, note="the token of the pod's service account cannot be read or names no account")
    where = f"the pod's service account {namespace}/{name}"
    asked = f"serviceaccounts/{name}"
    try:
        found = cluster or _own_cluster(folder)
        secrets = (found.get(SERVICE_ACCOUNT, namespace, name) or {}).get("imagePullSecrets") or []
        entries: dict[str, Any] = {}
        for secret in [str(each.get("name")) for each in secrets]:
            asked = f"secrets/{secret}"
            # The first one that has an entry decides, as for the kubelet.
            entries = {**_entries(found.get(SECRET, namespace, secret) or {}), **entries}
    except ClusterError as error:
        if error.reason == "Forbidden":
            rule = f"`get` of {asked} in namespace {namespace}"
            return FoundLogin(login=None, note=f"{where} has no permission to read its pull secrets: it needs {rule}")
        return FoundLogin(login=None, note=f"the pull secrets of {where} cannot be read: {error}")
    if login := login_for(reference, entries):
        return FoundLogin(login=login)
    note = f"no imagePullSecrets of {where} have a login for {reference.registry}"
    return FoundLogin(login=None, note=note if secrets else f"{where} has no imagePullSecrets")


def _own_cluster(folder: str) -> Reader:
    """Return the cluster of this pod, also if the pod has a kubeconfig of another one."""
    config = pod_config(folder)
    config["contexts"][0]["name"] = config["current-context"] = "pod"
    return KubernetesCluster.connect(json.dumps(config))


def _account(token: str) -> tuple[str, str]:
    """Return namespace and name of the service account that a token is for.

    Raises:
        ValueError: It is for no service account.
    """
    payload = token.strip().split(".")[1] if token.count(".") == 2 else ""
    content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)) or b"{}")
    system, kind, namespace, name = str(content.get("sub") or "").split(":")
    if (system, kind) != ("system", "serviceaccount"):
        raise ValueError(kind)
    return namespace, name


def _entries(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a pull secret by registry; empty if it cannot be read."""
    data = secret.get("data") or {}
    for key in _KEYS:
        try:
            content = json.loads(base64.b64decode(data.get(key) or ""))
        except ValueError:
            continue
        if isinstance(content, dict):
            found = content.get("auths") if key == _KEYS[0] else content
            return dict(found) if isinstance(found, dict) else {}
    return {}


def login_for(reference: Reference, entries: Mapping[str, Any]) -> RegistryLogin | None:
    """Return the most specific login for a repository; keys may have paths and, in the host, `*`, as for the kubelet.

    Args:
        reference: The repository.
        entries: Entries of `auths` by registry.
    """
    found: list[tuple[tuple[int, bool], RegistryLogin]] = []
    names = _HUB_NAMES if reference.registry == DOCKER_HUB else (reference.registry,)
    for key, entry in entries.items():
        host, _, path = key.rpartition("://")[2].partition("/")
        path = path.strip("/")
        path = "" if path in ("v1", "v2") else path
        inside = not path or reference.path == path or reference.path.startswith(f"{path}/")
        if inside and any(_is_host(name, host) for name in names) and isinstance(entry, dict):
            login = _login(entry)
            if login is not None:
                found.append(((len(path), "*" not in host), login))
    return max(found, key=lambda each: each[0])[1] if found else None


def _is_host(name: str, pattern: str) -> bool:
    """Return whether a host is one of a pattern's, part by part: `*` does not match a dot."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _login(entry: Mapping[str, Any]) -> RegistryLogin | None:
    user, password = entry.get("username"), entry.get("password")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except ValueError:
            return None
    if not user and not entry.get("identitytoken"):
        return None
    return RegistryLogin(user=user, password=password, identity_token=entry.get("identitytoken"))
