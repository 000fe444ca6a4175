"""Kubeconfig files, contents and contexts. This module reads files and the environment, never a cluster."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchx_pulumi.model.cluster_identity import authority_digest, digest_of
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.redaction import path_shown, yaml_problem

POD_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder of a pod's service account: `ca.crt`, `namespace` and `token`, which are renewed in place."""

SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""Lists of a kubeconfig, and the key of the mapping that each item has in addition to its name."""

NAME_FIELDS = ("name", "cluster", "user", "namespace", "current-context")
"""Fields that are names, or references by name."""

FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields that name a file, relative to the folder of the kubeconfig."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a cluster: a kubeconfig and a context. Equal ones share a transport."""

    config: str
    """The kubeconfig as JSON."""
    context: str | None
    """Name of the context in it. None: that of the pod in which this process runs."""
    description: str
    """Name of the cluster in messages, without secrets."""

    def __repr__(self) -> str:
        """Return the description, without credentials."""
        return f"Access({self.description})"


def find_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Find the kubeconfig and the context to use.

    Args:
        kubeconfig: Path or contents. None: the first of KUBECONFIG, `~/.kube/config` and the pod's service
            account that exists. Empty files are skipped.
        context: Name of a context. None: the current one.

    Raises:
        ClusterError: There is no kubeconfig, it cannot be read, or it has no such context.
    """
    if kubeconfig is not None and is_contents(kubeconfig):
        config, source = parse(kubeconfig, "the given kubeconfig"), "the given kubeconfig"
    else:
        texts = read_files(kubeconfig)
        if not texts:
            if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                return Access(json.dumps(pod_config()), None, "the cluster of this pod")
            looked = _looked_for(kubeconfig)
            raise ClusterError(
                f"no kubeconfig: looked for {looked}; name one with KUBECONFIG or the option kubeconfig, "
                "or start a cluster"
            )
        source = ", ".join(map(str, texts))
        config = merge([with_absolute_paths(parse(text, str(path)), path.parent) for path, text in texts.items()])
    chosen = choose_context(config, context, source)
    return Access(json.dumps(config, sort_keys=True, default=str), chosen, f"the cluster of context {chosen!r}")


def _shown(path: Path) -> str:
    return path_shown(str(path)).strip("'")


def _looked_for(kubeconfig: str | None) -> str:
    """Return the searched paths for a message. Contents that were given as a path are not repeated."""
    named = kubeconfig or os.environ.get("KUBECONFIG") or ""
    shown = [f"{_shown(path)}{' (empty)' if path.is_file() else ''}" for path in locations(kubeconfig)]
    # KUBECONFIG is split at colons, which contents have as well.
    if ": " in named or any(text.endswith("not a path)") for text in shown):
        return f"({len(named)} characters that are not a path)"
    return ", ".join(shown)


def is_contents(kubeconfig: str) -> bool:
    r"""Return whether a text is the contents of a kubeconfig, not its path.

    >>> is_contents("~/.kube/config"), is_contents('{"clusters": []}'), is_contents("apiVersion: v1\nkind: Config")
    (False, True, True)
    """
    return "\n" in kubeconfig.strip() or kubeconfig.lstrip().startswith("{")


def locations(kubeconfig: str | None) -> list[Path]:
    """Return the kubeconfig files to read, in the order of their precedence."""
    named = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    names = [named] if kubeconfig else named.split(os.pathsep)
    return [Path(name).expanduser() for name in names if name]


def read_files(kubeconfig: str | None) -> dict[Path, str]:
    """Return the kubeconfig files that exist and are not empty, with their texts, in the order of their precedence.

    Raises:
        ClusterError: A file cannot be read.
    """
    texts = {path: read(path) for path in locations(kubeconfig)}
    return {path: text for path, text in texts.items() if text.strip()}


def absolute_kubeconfig(kubeconfig: str | None) -> str | None:
    """Return the absolute path of a kubeconfig. Contents and None are returned unchanged.

    >>> absolute_kubeconfig("/etc/kube/config"), absolute_kubeconfig(None)
    ('/etc/kube/config', None)
    """
    if kubeconfig is None or is_contents(kubeconfig):
        return kubeconfig
    return str(Path(kubeconfig).expanduser().absolute())


def read(path: Path) -> str:
    """Return the text of a kubeconfig file. Empty: there is no such file.

    Raises:
        ClusterError: The file cannot be read, for example for lack of permission.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        # The system's message repeats the name, which may be the contents of a kubeconfig.
        reason = getattr(error, "strerror", None) or "it is not a path"
        raise ClusterError(
            f"kubeconfig {_shown(path)} cannot be read: {reason}; give a path, or contents as YAML"
        ) from None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        # The message of UnicodeDecodeError shows the bytes.
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ClusterError(f"kubeconfig {path} cannot be read: {reason}") from None


def parse(text: str, source: str) -> dict[str, Any]:
    """Parse a kubeconfig. No message repeats its text, because it contains credentials."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads names as they are written: without quotes, `1` is a number and `yes` a boolean in YAML 1.1."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            for key, value in node.value:
                is_name = isinstance(value, yaml.ScalarNode) and key.value in NAME_FIELDS
                if is_name and value.tag != "tag:yaml.org,2002:null":
                    value.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep)

    try:
        config = yaml.load(text, Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ClusterError(f"{source} is not valid YAML{line}: {yaml_problem(error)}") from None
    except yaml.YAMLError:
        raise ClusterError(f"{source} is not valid YAML") from None
    if not isinstance(config, dict):
        raise ClusterError(
            f"{source} is not a kubeconfig: found {type(config).__name__}, needed a mapping with `contexts`"
        )
    for section, part in SECTIONS.items():
        items = config.get(section)
        named = items is None or (isinstance(items, list) and all(isinstance(item, dict) for item in items))
        if not named or not all(isinstance(item.get(part), dict | None) for item in items or ()):
            raise ClusterError(
                f"{source} is not a kubeconfig: `{section}` must be a list of mappings, each with `name` and "
                f"`{part}`, which is a mapping"
            )
    return config


def merge(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge parsed kubeconfigs as kubectl does: the first one that has a name or a value wins."""
    merged: dict[str, Any] = {}
    for config in configs:
        for key, value in config.items():
            if key not in SECTIONS:
                merged[key] = merged.get(key) or value
                continue
            known = {item.get("name") for item in merged.get(key, [])}
            merged[key] = merged.get(key, []) + [item for item in value or () if item.get("name") not in known]
    return merged


def with_absolute_paths(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a parsed kubeconfig with absolute paths of the files that it names."""
    changed = dict(config)
    for section, part in (("clusters", "cluster"), ("users", "user")):
        items = [dict(item) for item in config.get(section) or ()]
        for item in items:
            fields = dict(item.get(part) or {})
            item[part] = fields | {name: str(folder / fields[name]) for name in FILE_FIELDS if fields.get(name)}
            plugin = fields.get("exec")
            if isinstance(plugin, Mapping) and os.sep in str(plugin.get("command") or ""):
                # A command without a folder is found on PATH.
                item[part]["exec"] = {**plugin, "command": str(folder / plugin["command"])}
        changed[section] = items
    return changed


def choose_context(config: dict[str, Any], context: str | None, source: str) -> str:
    """Return the name of the context to use.

    Raises:
        ClusterError: There is no such context, or no current one. The message lists the contexts.
    """
    names = [str(item.get("name")) for item in config.get("contexts") or ()]
    there = f"it has {', '.join(map(repr, names))}" if names else "it has none"
    chosen = context or config.get("current-context")
    if not chosen:
        raise ClusterError(f"{source} has no current context; choose one with the option kube_context: {there}")
    if chosen not in names:
        raise ClusterError(f"{source} has no context {chosen!r}; {there}")
    return str(chosen)


def cluster_and_user(config: Mapping[str, Any], context: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cluster and the user of a context.

    Args:
        config: The kubeconfig.
        context: Name of a context in it.

    Raises:
        ClusterError: The context, its cluster or the address is missing. A missing user is an empty mapping.
    """
    chosen = _named(config, "contexts", "context", context)
    cluster = _named(config, "clusters", "cluster", chosen.get("cluster"))
    if not cluster.get("server"):
        raise ClusterError(
            f"the cluster of context {context!r} cannot be used: its kubeconfig has no address for cluster "
            f"{chosen.get('cluster')!r}; give it one, or choose another context"
        )
    return cluster, _named(config, "users", "user", chosen.get("user"))


def _named(config: Mapping[str, Any], section: str, part: str, name: Any) -> dict[str, Any]:
    """Return the fields of an item of a section. Empty: there is no such item."""
    found = next((item for item in config.get(section) or () if item.get("name") == name), None)
    return dict((found or {}).get(part) or {})


def api_server(access: Access) -> str:
    """Return the address of the API server.

    Raises:
        ClusterError: The kubeconfig has no address.
    """
    return str(cluster_and_user(json.loads(access.config), access.context)[0]["server"])


def pod_config(folder: str = POD_FOLDER) -> dict[str, Any]:
    """Return a pod's service account as a kubeconfig with one context, whose name is None.

    Args:
        folder: Folder of the account's files.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        namespace = Path(folder, "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    return {
        "clusters": [{"name": "pod", "cluster": {"server": server, "certificate-authority": f"{folder}/ca.crt"}}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{folder}/token"}}],
        "contexts": [{"name": None, "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
    }


def namespace_of(access: Access) -> str:
    """Return the namespace of the context or of the pod. The default is `default`."""
    context = _named(json.loads(access.config), "contexts", "context", access.context)
    return str(context.get("namespace") or "default")


def identity_of(address: str) -> str:
    """Return a digest of the normalized address of an API server.

    >>> identity_of("https://API.example.com/") == identity_of("https://api.example.com:443")
    True
    """
    parts = urlsplit(address if "://" in address else f"https://{address}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    plain = f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}"
    return digest_of(plain.encode())


def authority_of(access: Access) -> str | None:
    """Return the digest of the authority that an access trusts. None: there is none, or it cannot be read."""
    cluster, _ = cluster_and_user(json.loads(access.config), access.context)
    if cluster.get("certificate-authority-data"):
        try:
            return authority_digest(base64.b64decode(cluster["certificate-authority-data"]))
        except (TypeError, ValueError):
            # The connection reports it.
            return None
    return authority_in_file(cluster.get("certificate-authority"))


def authority_in_file(path: str | None) -> str | None:
    """Return the digest of the authority in a file. None: there is no such file."""
    try:
        return authority_digest(Path(path).read_bytes()) if path else None
    except OSError:
        return None
