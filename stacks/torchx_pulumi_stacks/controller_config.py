"""The key `controller` of the platform program: a mapping to a ControllerConfig, or all that is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from torchx_pulumi.controller.checks import check_retention
from torchx_pulumi.images.reference import parse_reference, parse_repository
from torchx_pulumi.log_archive import check_archive_url
from torchx_pulumi.model.errors import ImageError, Problem
from torchx_pulumi.model.options import unknown_name
from torchx_pulumi.model.redaction import passwords_of, without_password
from torchx_pulumi.planning.names import is_dns_label, is_dns_subdomain, is_env_name
from torchx_pulumi.planning.typed_reader import TypedReader, field_types, join, uncovered, whole_numbers
from torchx_pulumi.stack_state.backend import FILE_SCHEME, backend_folder

from torchx_pulumi_stacks.settings import Settings, key_of

BACKENDS: Final = (FILE_SCHEME, "s3://", "gs://", "azblob://")
"""Schemes of backends whose stacks a controller writes."""

BUILD_KEYS: Final = ("image_repo", "python_version", "platform")
"""Fields that say how the image is built. They are refused next to an image that exists."""

NOT_MOUNTS: Final = (
    *("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt/torchx-pulumi"),
    *("/proc", "/run", "/sys", "/tmp", "/usr", "/var/run"),  # noqa: S108  of the container
)
"""Folders of the container without which the controller does not run."""

RESOURCES: Final = ("limits", "requests", "claims")
"""Fields of a container's resources."""

TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
"""Fields of a toleration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The key `controller`. The text under a field describes its key in the mapping, written in camelCase."""

    backends: Sequence[str] = ()
    """List of Pulumi backends, without credentials: `s3://`, `gs://`, `azblob://`, or `file://` in the volume."""
    name: str = "torchx-controller"
    """Name of the objects. Unset: `torchx-controller`."""
    image: str | None = None
    """Image with the command `torchx-pulumi` and its extra `controller`. Unset: one is built from `baseImage`."""
    base_image: str | None = None
    """Image with Python 3.10 or newer and glibc 2.28 or newer, for example `python:3.12-slim`."""
    image_repo: str | None = None
    """Repository, without a tag, that the built image is pushed to."""
    python_version: str | None = None
    """Python of `baseImage`, in quotes, for example `"3.12"`."""
    platform: str | None = None
    """Platform of the built image, for example `linux/arm64`. Unset: that of this machine."""
    image_pull_secret: str | None = None
    """Name of an existing pull secret. Unset: the one that `pullSecret` makes, if there is one."""
    replicas: int = 2
    """Pods. One of them writes, all serve pages. Unset: 2."""
    backend_secret: str | None = None
    """Name of an existing Secret whose keys become environment variables, for example AWS_ACCESS_KEY_ID."""
    backend_credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Mapping of environment variables that a Secret is made of; set each with `--secret --path`."""
    volume_claim: str | None = None
    """Name of a PersistentVolumeClaim for `file://` backends and archives. Unset: these are refused."""
    volume_path: str = "/state"
    """Folder that the volume is mounted at. Unset: `/state`."""
    fs_group: int = 65532
    """Number of the group that may write the volume. Unset: 65532."""
    namespaces: Sequence[str] = ()
    """List of namespaces that are watched. Unset: all."""
    program_stacks: bool = False
    """true: stacks of users' own programs are written too."""
    log_archive: str | None = None
    """Archive of the logs of apps whose launch named none. Unset: those are not archived."""
    archive_allow: Sequence[str] = ()
    """List of further archives that a launch may name. Unset: that of `logArchive` only."""
    archive_secret_pods: bool = False
    """true: logs of pods with Secrets are archived there too."""
    forget_after: str | None = None
    """Age at which stacks of `torchx run` are removed after they have succeeded or were cancelled, for example `30d`.
    Unset: stacks stay, and the controller gets no permission to delete."""
    forget_failed_after: str | None = None
    """The same for those that failed. Unset: twice `forgetAfter`."""
    token_secret: str | None = None
    """Name of an existing Secret with the key `token`. Unset: one is generated: output `controller_token`."""
    port: int = 8080
    """Port of pods and Service, 1024 or more. Unset: 8080."""
    allowed_hosts: Sequence[str] = ()
    """List of host names of the page, for example of an ingress. Those of the Service are always allowed."""
    resources: Mapping[str, Any] = field(default_factory=lambda: {"requests": {"cpu": "100m", "memory": "256Mi"}})
    """Mapping: resources of the container. Unset: requests of 100m CPU and 256Mi memory, and no limits."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Mapping: labels of the nodes that may run it. Unset: any node."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """List of tolerations. Unset: none."""
    priority_class_name: str | None = None
    """Name of an existing PriorityClass. Unset: none."""
    service_account_annotations: Mapping[str, str] = field(default_factory=dict)
    """Mapping: annotations of the service account, for example `eks.amazonaws.com/role-arn`. Unset: none."""


def read_controller(settings: Settings, text: str | None) -> ControllerConfig | None:
    """Return what the key asks for; problems are noted in the settings. None: it is unset.

    Args:
        settings: Settings of the program.
        text: The key as JSON. None: unset.
    """
    if text is None:
        return None
    try:
        given = whole_numbers(json.loads(text))
    except ValueError:
        given = text
    reader = _Reader(settings)
    config = reader.read(ControllerConfig, given, "controller")
    if isinstance(given, Mapping):
        rules = [Problem(settings.path(f"controller.{key}"), message) for key, message in _problems(config)]
        reader.problems += uncovered(rules, reader.problems)
    settings.problems += reader.problems
    return config


class _Reader(TypedReader):
    """Reads the mapping of YAML or JSON. Messages name keys as the user writes them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def refuse(self, path: str, message: str, rule: str = "") -> None:
        super().refuse(self._settings.path(path), message, rule)

    def field_path(self, path: str, name: str) -> str:
        return join(path, key_of(name))

    def fields_of(self, kind: type, value: Any, path: str) -> Mapping[str, Any] | None:
        """Return the values by the names of their fields; unknown keys are refused. null is unset."""
        names = {key_of(name): name for name, _, _ in field_types(kind)}
        if not isinstance(value, Mapping):
            self.refuse(path, f"must be a mapping; known keys are {', '.join(sorted(names))}")
            return None
        for key in value.keys() - names.keys():
            self.refuse(join(path, key), unknown_name(key, names))
        return {names[key]: item for key, item in value.items() if key in names and item is not None}

    def flag(self, value: Any, path: str) -> bool:
        """Return true or false, also of the text that `pulumi config set` writes."""
        return super().flag({"true": True, "false": False}.get(value, value) if isinstance(value, str) else value, path)


def _problems(config: ControllerConfig) -> Iterator[tuple[str, str]]:
    """Yield the keys that are wrong, and how."""
    yield from _of_image(config)
    yield from _of_backends(config)
    yield from _of_names(config)
    archives = [] if config.log_archive is None else [("logArchive", config.log_archive)]
    for key, url in [*archives, *((f"archiveAllow[{at}]", url) for at, url in enumerate(config.archive_allow))]:
        problems = check_archive_url(url, key)
        yield from ((key, problem.message) for problem in problems)
        if not problems:
            yield from _of_folder(key, url, config)
    if config.archive_secret_pods and not archives:
        yield "archiveSecretPods", "is true, but logArchive is not set; name an archive, or leave this out"
    ages = {"--forget-after": "forgetAfter", "--forget-failed-after": "forgetFailedAfter"}
    retention, _ = check_retention(config.forget_after, config.forget_failed_after, dry_run=False, once=False)
    for problem in retention:
        # The message of the command names its options.
        yield ages[problem.path], problem.message.replace("--forget-after", ages["--forget-after"])
    unknown = [f"resources.{key}" for key in config.resources.keys() - {*RESOURCES}]
    yield from ((key, f"is unknown; known are {', '.join(RESOURCES)}") for key in unknown)
    for index, each in enumerate(config.tolerations):
        unknown = [f"tolerations[{index}].{key}" for key in each.keys() - {*TOLERATION}]
        yield from ((key, f"is unknown; known are {', '.join(TOLERATION)}") for key in unknown)
    if config.replicas < 1:
        yield "replicas", f"is {config.replicas}, must be at least 1"
    if not 1024 <= config.port <= 65535:
        yield "port", f"is {config.port}, must be 1024 to 65535: the controller does not run as root"
    if config.fs_group < 1:
        yield "fsGroup", f"is {config.fs_group}, must be at least 1: the controller does not run as root"


def _of_image(config: ControllerConfig) -> Iterator[tuple[str, str]]:
    if bool(config.image) == bool(config.base_image):
        found = "and baseImage are both set" if config.image else "is not set"
        yield "image", f"{found}; set either image (a finished one) or baseImage (one is built on it)"
    for name in BUILD_KEYS:
        if config.image and getattr(config, name):
            yield key_of(name), "is for an image that is built from baseImage; leave it out if image is set"
    for key, image in (("image", config.image), ("baseImage", config.base_image)):
        try:
            parse_reference(image or "set")
        except ImageError as error:
            yield key, str(error)
    if not config.base_image:
        return
    if config.platform and not re.fullmatch(r"linux/[a-z0-9]+(/v\d+)?", config.platform):
        yield "platform", f"is {config.platform!r}, must be linux/ and an architecture, for example linux/arm64"
    if not config.image_repo:
        yield "imageRepo", "is not set, must be the repository that the image is pushed to"
    else:
        try:
            parse_repository(config.image_repo)
        except ImageError as error:
            yield "imageRepo", str(error)
    if not re.fullmatch(r"3\.\d\d", config.python_version or ""):
        found = "is not set" if config.python_version is None else f"is {config.python_version!r}"
        yield "pythonVersion", f"{found}, must be the Python of baseImage in quotes, for example '3.12'"
    elif int((config.python_version or "")[2:]) < 10:
        yield "pythonVersion", f"is {config.python_version!r}, must be '3.10' or newer"


def _of_backends(config: ControllerConfig) -> Iterator[tuple[str, str]]:
    if not config.backends:
        yield "backends", f"is not set, must be a list of URLs that begin with {', '.join(BACKENDS)}"
    for index, url in enumerate(config.backends):
        key, shown = f"backends[{index}]", without_password(url)
        if not url.startswith(BACKENDS):
            yield key, f"is {shown!r}, must begin with {', '.join(BACKENDS)}: only these are written without the engine"
        elif passwords_of(url):
            yield key, f"is {shown!r}, which has credentials, and pods show their arguments; use backendCredentials"
        else:
            yield from _of_folder(key, url, config)
    if config.backend_secret and config.backend_credentials:
        yield "backendSecret", "and backendCredentials are both set; set one of them"
    for name in config.backend_credentials:
        if not is_env_name(name):
            yield f"backendCredentials.{name}", "must be the name of an environment variable (A-Z, 0-9, _)"
    mount = PurePosixPath(config.volume_path)
    if not mount.is_absolute() or len(mount.parts) < 2 or ".." in mount.parts or ":" in config.volume_path:
        yield "volumePath", f"is {config.volume_path!r}, must be an absolute path, for example /state"
    elif hidden := [
        each for each in NOT_MOUNTS if mount.is_relative_to(each) or PurePosixPath(each).is_relative_to(mount)
    ]:
        why = f"hides {hidden[0]} of the container or is in it; take another one, for example /state"
        yield "volumePath", f"is {config.volume_path!r}, which {why}"


def _of_folder(key: str, url: str, config: ControllerConfig) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a folder: only what is in the volume outlives a pod."""
    folder = backend_folder(url) if "://" in url else url
    if folder is None:
        return
    if not config.volume_claim:
        yield key, f"is {url!r}, a folder that no pod has; set volumeClaim to the claim of a volume that has it"
        return
    path, mount = PurePosixPath(folder), PurePosixPath(config.volume_path)
    if ".." in path.parts or not path.is_relative_to(mount):
        yield key, f"is {url!r}, must be in {mount}, where the volume {config.volume_claim!r} is mounted (volumePath)"


def _of_names(config: ControllerConfig) -> Iterator[tuple[str, str]]:
    label = "a DNS label (a-z, 0-9, -; at most 63)"
    subdomain = "a DNS name (a-z, 0-9, - and .; at most 253)"
    single: tuple[tuple[str, Callable[[str], bool], str], ...] = (
        # The Service has it too.
        ("name", is_dns_label, label),
        *((each, is_dns_subdomain, subdomain) for each in ("image_pull_secret", "backend_secret", "volume_claim")),
        *((each, is_dns_subdomain, subdomain) for each in ("token_secret", "priority_class_name")),
    )
    for name, allows, what in single:
        value = getattr(config, name)
        if value is not None and not allows(value):
            yield key_of(name), f"is {value!r}, must be {what}"
    for index, namespace in enumerate(config.namespaces):
        if not is_dns_label(namespace):
            yield f"namespaces[{index}]", f"is {namespace!r}, must be {label}"
    for index, host in enumerate(config.allowed_hosts):
        if not is_dns_subdomain(host.lower()):
            yield f"allowedHosts[{index}]", f"is {host!r}, must be a host name without scheme and port"
