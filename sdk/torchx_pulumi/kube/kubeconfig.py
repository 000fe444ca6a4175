"""Kubeconfig files, contents, contexts and fields. This module reads files and the environment, never a cluster."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from torchx_pulumi.model.cluster_identity import authority_digest, digest_of
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.redaction import path_shown, yaml_problem
from torchx_pulumi.model.text import is_text_list

POD_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder of a pod's service account: `ca.crt`, `namespace` and `token`, which are renewed in place."""

SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""Lists of a kubeconfig, and the key of the mapping that each item has in addition to its name."""

NAME_FIELDS = ("name", "cluster", "user", "namespace", "current-context")
"""Fields that are names, or references by name."""

FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields that name a file, relative to the folder of the kubeconfig."""

_COMPARED_FIELDS = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "extensions",
)
"""All fields of a cluster in a kubeconfig."""


Fields = Mapping[str, Any]
"""A kubeconfig, or a cluster, a user or a context of one, as it was read."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a cluster: a kubeconfig and a context. Equal ones share a transport."""

    config: str = field(repr=False)
    """The kubeconfig as JSON."""
    context: str | None
    """Name of the context in it. None: that of the pod in which this process runs."""
    description: str
    """Name of the cluster in messages, without secrets."""


def find_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Find the kubeconfig and the context to use.

    Args:
        kubeconfig: Path or contents. None: the first of KUBECONFIG, `~/.kube/config` and the pod's service
            account that exists. Empty files are skipped.
        context: Name of a context. None: the current one.

    Raises:
        ClusterError: There is no kubeconfig, it cannot be read, or it has no such context. The message lists those
            that it has.
    """
    if kubeconfig is not None and is_contents(kubeconfig):
        source = "the given kubeconfig"
        config = _parse(kubeconfig, source)
    else:
        texts = read_files(kubeconfig)
        if not texts:
            if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                return Access(json.dumps(pod_config()), None, "the cluster of this pod")
            raise ClusterError(
                f"no kubeconfig: looked for {_looked_for(kubeconfig)}; name one with KUBECONFIG or the option "
                "kubeconfig, or start a cluster"
            )
        source = ", ".join(map(str, texts))
        config = _merge([_parse(text, str(path), path.parent) for path, text in texts.items()])
    names = [str(item.get("name")) for item in config.get("contexts") or ()]
    there = f"it has {', '.join(map(repr, names))}" if names else "it has none"
    chosen = context or config.get("current-context")
    if not chosen:
        raise ClusterError(f"{source} has no current context; choose one with the option kube_context: {there}")
    if chosen not in names:
        raise ClusterError(f"{source} has no context {chosen!r}; {there}")
    return Access(json.dumps(config, sort_keys=True, default=str), str(chosen), f"the cluster of context {chosen!r}")


def _looked_for(kubeconfig: str | None) -> str:
    """Return the searched paths for a message. Contents that were given as a path are not repeated."""
    named = kubeconfig or os.environ.get("KUBECONFIG") or ""
    shown = [f"{_shown(path)}{' (empty)' if path.is_file() else ''}" for path in locations(kubeconfig)]
    # KUBECONFIG is split at colons, which contents have as well.
    if ": " in named or any(text.endswith("not a path)") for text in shown):
        return f"({len(named)} characters that are not a path)"
    return ", ".join(shown)


def _shown(path: Path) -> str:
    return path_shown(str(path)).strip("'")


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
    texts = {path: _read(path) for path in locations(kubeconfig)}
    return {path: text for path, text in texts.items() if text.strip()}


def absolute_kubeconfig(kubeconfig: str | None) -> str | None:
    """Return the absolute path of a kubeconfig. Contents and None are returned unchanged.

    >>> absolute_kubeconfig("/etc/kube/config"), absolute_kubeconfig(None)
    ('/etc/kube/config', None)
    """
    if kubeconfig is None or is_contents(kubeconfig):
        return kubeconfig
    return str(Path(kubeconfig).expanduser().absolute())


def _read(path: Path) -> str:
    """Return the text of a kubeconfig file; empty if there is no such file."""
    try:
        return path.read_text(encoding="utf-8") if stat.S_ISREG(path.stat().st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError:
        # Its message shows the bytes.
        reason = "it is not text in UTF-8"
    except (OSError, ValueError) as error:
        # The system's message repeats the name, which may be the contents of a kubeconfig.
        reason = f"{getattr(error, 'strerror', None) or 'it is not a path'}; give a path, or contents as YAML"
    raise ClusterError(f"kubeconfig {_shown(path)} cannot be read: {reason}")


def _parse(text: str, source: str, folder: Path | None = None) -> dict[str, Any]:
    """Parse a kubeconfig. Messages have its source, and never its text, because it contains credentials.

    Files that it names are relative to `folder`, or for None to that of this process.
    """
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
        items = [] if items is None else items
        named = isinstance(items, list) and all(isinstance(item, dict) for item in items)
        if not named or not all(isinstance(item.get(part), dict | None) for item in items):
            raise ClusterError(
                f"{source} is not a kubeconfig: `{section}` must be a list of mappings, each with `name` and "
                f"`{part}`, which is a mapping"
            )
        if folder is not None:
            for item in items:
                _resolve_files(item.get(part) or {}, folder.absolute())
    return config


def _resolve_files(fields: dict[str, Any], folder: Path) -> None:
    """Let a cluster or a user name its files by absolute paths."""
    for name in FILE_FIELDS:
        if fields.get(name):
            fields[name] = str(folder / fields[name])
    plugin = fields.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        # A command without a folder is found on PATH.
        plugin["command"] = str(folder / plugin["command"])


def _merge(configs: list[dict[str, Any]]) -> dict[str, Any]:
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


def cluster_and_user(access: Access) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cluster and the user of an access.

    Raises:
        ClusterError: The context, its cluster or the address is missing. A missing user is an empty mapping.
    """
    config = json.loads(access.config)
    chosen = _named(config, "contexts", access.context)
    cluster = _named(config, "clusters", chosen.get("cluster"))
    if not cluster.get("server"):
        raise ClusterError(
            f"the cluster of context {access.context!r} cannot be used: its kubeconfig has no address for cluster "
            f"{chosen.get('cluster')!r}; give it one, or choose another context"
        )
    return cluster, _named(config, "users", chosen.get("user"))


def chosen_cluster(kubeconfig: str | None, context: str | None = None, cluster: str | None = None) -> Fields | None:
    """Return the cluster that a kubeconfig, a context and a cluster's name choose, as Pulumi's provider compares it.

    It replaces itself, and with it all objects that it made, if any of these fields differs. Values at their defaults
    are left out, unknown fields too, and certificates are bytes. None: the kubeconfig is None or empty, or lacks the
    context or the cluster; the provider then compares nothing.

    Args:
        kubeconfig: Contents or path. None: the ambient one, which the provider does not compare.
        context: Name of a context. None: the current one.
        cluster: Name of a cluster. None: that of the context.

    Raises:
        ClusterError: The kubeconfig cannot be read, or is none.
    """
    if not kubeconfig:
        return None
    if is_contents(kubeconfig):
        config = _parse(kubeconfig, "the kubeconfig")
    else:
        path = Path(kubeconfig).expanduser()
        if not (text := _read(path)).strip():
            raise ClusterError(f"kubeconfig {_shown(path)} is not on this machine, or empty")
        config = _parse(text, str(path))
    # A list: what is no name cannot be in a set.
    names = [item.get("name") for item in config.get("contexts") or ()]
    chosen = context or config.get("current-context")
    found = _named(config, "clusters", cluster or _named(config, "contexts", chosen).get("cluster"))
    if chosen not in names or not found:
        return None
    if data := found.get("certificate-authority-data"):
        found["certificate-authority-data"] = _decoded(str(data)) if _is_base64(str(data)) else data
    return {name: found[name] for name in _COMPARED_FIELDS if found.get(name)}


def _named(config: Fields, section: str, name: object) -> dict[str, Any]:
    """Return the fields of an item of a section; empty if there is no such item."""
    found: dict[str, Any] = next((item for item in config.get(section) or () if item.get("name") == name), {})
    return dict(found.get(SECTIONS[section]) or {})


def api_server(access: Access) -> str:
    """Return the address of the API server.

    Raises:
        ClusterError: The kubeconfig has no address.
    """
    return str(cluster_and_user(access)[0]["server"])


def pod_config(folder: str = POD_FOLDER) -> dict[str, Any]:
    """Return a pod's service account, whose files are in a folder, as a kubeconfig with one context, named None."""
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
    return str(_named(json.loads(access.config), "contexts", access.context).get("namespace") or "default")


def identity_of(address: str) -> str:
    """Return a digest of the normalized address of an API server.

    >>> identity_of("https://API.example.com/") == identity_of("https://api.example.com:443")
    True
    """
    parts = urlsplit(address if "://" in address else f"https://{address}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    plain = f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}"
    return digest_of(plain.encode())


def contents_of(section: Fields, name: str) -> bytes | None:
    """Return a certificate or key of a cluster or a user, from the kubeconfig or the file that it names.

    As in kubectl, inline data wins.

    Raises:
        OSError: The file cannot be read.
        ValueError: The data is not base64.
    """
    if section.get(f"{name}-data"):
        return _decoded(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


def _decoded(text: str) -> bytes:
    # By default the standard library skips unknown characters. Line breaks are allowed.
    return base64.b64decode("".join(text.split()), validate=True)


def authority_of(cluster: Fields) -> str | None:
    """Return the digest of the authority that a cluster of a kubeconfig names, or None if it cannot be read."""
    try:
        return authority_digest(contents_of(cluster, "certificate-authority"))
    except (AttributeError, OSError, TypeError, ValueError):
        # The connection reports it.
        return None


def check_fields(cluster: Fields, user: Fields, where: str) -> None:
    """Check the types of all fields that requests depend on, as kubectl does.

    Without the checks a field of a wrong type would have another meaning: `insecure-skip-tls-verify: "false"` is a text
    that is not empty, and `as-groups: admins` would be six groups of one letter.

    Raises:
        ClusterError: All problems. It repeats no value, because that may be a secret.
    """
    problems = [*_type_problems(cluster, _CLUSTER_FIELDS), *_type_problems(user, _USER_FIELDS)]
    if cluster.get("insecure-skip-tls-verify") is True and (
        cluster.get("certificate-authority") or cluster.get("certificate-authority-data")
    ):
        problems.append("insecure-skip-tls-verify and certificate-authority exclude each other; remove one")
    for name in ("client-certificate", "client-certificate-data"):
        if user.get(name) and not (user.get("client-key") or user.get("client-key-data")):
            problems.append(f"{name} is without its key; add client-key or client-key-data")
    if problems:
        raise ClusterError(f"{where} cannot be used: in its kubeconfig, {'; '.join(problems)}")


def _type_problems(section: Fields, fields: Mapping[str, Sequence[_Rule]]) -> Iterator[str]:
    for name, rules in fields.items():
        value = section.get(name)
        broken = next((rule for rule in rules if value is not None and not rule.holds(value)), None)
        if broken is not None:
            yield f"{name} {broken.problem.format(found=KINDS.get(type(value), type(value).__name__))}"


def _is_base64(text: str) -> bool:
    try:
        return _decoded(text) is not None
    except ValueError:
        return False


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
        return bool(parts.hostname) and parts.port != 0 and not any(letter.isspace() for letter in server)
    except ValueError:
        return False


class _Rule(NamedTuple):
    """A rule for the value of a field, and the problem of any other value."""

    holds: Callable[[Any], bool]
    problem: str


_TEXT = _Rule(lambda value: isinstance(value, str), "must be a text, found {found}; put it in quotes")
_BASE64 = _Rule(_is_base64, "is not base64")
_ADDRESS = _Rule(_is_address, "is not an address; write https://host:port")
_FLAG = _Rule(lambda value: isinstance(value, bool), "must be true or false without quotes, found {found}")
_TEXTS = _Rule(is_text_list, "must be a list of texts, found {found}")
_TEXTS_BY_NAME = _Rule(
    lambda value: isinstance(value, Mapping) and all(texts is None or is_text_list(texts) for texts in value.values()),
    "must be a mapping of names to lists of texts",
)
_MAPPING = _Rule(lambda value: isinstance(value, Mapping), "must be a mapping, found {found}")

_CLUSTER_FIELDS = {
    "server": (_TEXT, _ADDRESS),
    "tls-server-name": (_TEXT,),
    "proxy-url": (_TEXT,),
    "certificate-authority": (_TEXT,),
    "certificate-authority-data": (_TEXT, _BASE64),
    "insecure-skip-tls-verify": (_FLAG,),
}
_USER_FIELDS = {
    "token": (_TEXT,),
    "tokenFile": (_TEXT,),
    "username": (_TEXT,),
    "password": (_TEXT,),
    "client-certificate": (_TEXT,),
    "client-certificate-data": (_TEXT, _BASE64),
    "client-key": (_TEXT,),
    "client-key-data": (_TEXT, _BASE64),
    "as": (_TEXT,),
    "as-uid": (_TEXT,),
    "as-groups": (_TEXTS,),
    "as-user-extra": (_TEXTS_BY_NAME,),
    "exec": (_MAPPING,),
    "auth-provider": (_MAPPING,),
}

KINDS = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
"""Types of YAML in messages."""
