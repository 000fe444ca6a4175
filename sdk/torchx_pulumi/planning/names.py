"""Rules of names in Kubernetes and Volcano, and the names of a job's objects. One function per rule.

A name that is shortened or changed ends with a hash of the whole original.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

MAX_LABEL = 63
"""Maximum length of a DNS label, label value and pod name, in characters."""

MAX_ROLE = 40
"""Maximum length of a role name in object names, so that job, replica and task index fit into a pod name."""

HASH_LENGTH = 8
"""Hexadecimal digits of a hash in a name."""

_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def is_dns_label(text: str) -> bool:
    """Return whether a text is a DNS label (RFC 1123): pods, tasks, containers, namespaces.

    >>> is_dns_label("trainer-0"), is_dns_label("0"), is_dns_label("-a"), is_dns_label("A"), is_dns_label("a" * 64)
    (True, True, False, False, False)
    """
    return len(text) <= MAX_LABEL and _DNS_1123.fullmatch(text) is not None


def is_service_name(text: str) -> bool:
    """Return whether a text can name a Service (RFC 1035): a DNS label that starts with a letter.

    >>> is_service_name("train-1"), is_service_name("1-train")
    (True, False)
    """
    return len(text) <= MAX_LABEL and _DNS_1035.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain: queues, priority classes, secrets, service accounts.

    >>> is_dns_subdomain("my.queue"), is_dns_subdomain("my_queue"), is_dns_subdomain("")
    (True, False, False)
    """
    return len(text) <= 253 and all(_DNS_1123.fullmatch(part) for part in text.split("."))


def is_label_value(text: str) -> bool:
    """Return whether a text can be the value of a label.

    >>> is_label_value(""), is_label_value("a.B_c-1"), is_label_value("a/b"), is_label_value("a-")
    (True, True, False, False)
    """
    return text == "" or (len(text) <= MAX_LABEL and _QUALIFIED.fullmatch(text) is not None)


def is_qualified_name(text: str) -> bool:
    """Return whether a text can be the key of a label or annotation, or the name of a resource.

    >>> is_qualified_name("nvidia.com/gpu"), is_qualified_name("gpu"), is_qualified_name("a/b/c")
    (True, True, False)
    """
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= MAX_LABEL and _QUALIFIED.fullmatch(name) is not None


def is_device_name(text: str) -> bool:
    """Return whether a text can name a device of a resource: CPU, memory and storage have no domain.

    >>> is_device_name("vpc.amazonaws.com/efa"), is_device_name("hugepages-2Mi"), is_device_name("ephemeral-storage")
    (True, True, False)
    """
    return is_qualified_name(text) and ("/" in text or text.startswith("hugepages-"))


def is_port_name(text: str) -> bool:
    """Return whether a text can name a container port.

    >>> is_port_name("c10d"), is_port_name("tcp_store"), is_port_name("29500"), is_port_name("a" * 16)
    (True, False, False, False)
    """
    return (
        len(text) <= 15
        and _DNS_1123.fullmatch(text) is not None
        and "--" not in text
        and not text.isdigit()
        and any(letter.isalpha() for letter in text)
    )


def is_env_name(text: str) -> bool:
    """Return whether a text can name an environment variable in every supported Volcano.

    >>> is_env_name("MY_VAR"), is_env_name("1A"), is_env_name("A=B")
    (True, False, False)
    """
    return _ENV.fullmatch(text) is not None


def short_hash(*parts: str) -> str:
    """Return a hash of texts in a few hexadecimal digits. The boundaries between the texts count.

    >>> short_hash("ab", "c") == short_hash("a", "bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:HASH_LENGTH]


def normalize(text: str) -> str:
    """Return the lower case letters, digits and inner dashes of a text, as TorchX's `normalize_str` does.

    >>> normalize("My_Trainer.v2"), normalize("--a-")
    ('mytrainerv2', 'a-')
    """
    return "".join(re.findall(r"[a-z0-9\-]", text.lower())).lstrip("-")


def role_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return distinct names for the roles of one job in object names: TorchX's names where those are distinct.

    A role whose TorchX name is empty, too long, or shared with another role of the job gets a hash of its own name.

    >>> role_names(["trainer", "my-Role"])
    ('trainer', 'my-role')
    >>> role_names(["a_b", "ab"])
    ('ab-51e3aacb', 'ab-9caccc24')
    """
    normal = [normalize(name) for name in names]
    plain = {text for text in normal if text and len(text) <= MAX_ROLE and normal.count(text) == 1}
    pairs = zip(normal, names, strict=True)
    return tuple(text if text in plain else _hashed_role(text, name, plain) for text, name in pairs)


def _hashed_role(normal: str, name: str, taken: set[str]) -> str:
    hashed, stem = short_hash(name), normal[: MAX_ROLE - HASH_LENGTH - 1].rstrip("-") or "role"
    while (candidate := f"{stem}-{hashed}") in taken:
        hashed = short_hash(name, hashed)
    return candidate


def task_name(role: str, index: int) -> str:
    """Return the name of the task and of the container of a replica.

    >>> task_name("trainer", 3)
    'trainer-3'
    """
    return f"{role}-{index}"


def job_name(app_name: str, *identity: str, tail: int = 0) -> str:
    """Return a name for a job without a fixed one: `<name>-<short hash>`, short enough for its longest pod name.

    Args:
        app_name: App name as the user wrote it.
        *identity: Texts that tell runs of the same name apart: hashes of the run and of its owner.
        tail: Characters that pod names add (`Variant.name_tail`).

    >>> job_name("My_Train", "1")
    'mytrain-431c42c8'
    >>> len(job_name("n" * 80, "1", tail=20))
    43
    """
    room = max(MAX_LABEL - tail - HASH_LENGTH - 1, 1)
    stem = normalize(app_name)
    if not is_service_name(stem[:1]):
        stem = f"j-{stem}" if stem else "job"
    return f"{stem[:room].rstrip('-')}-{short_hash(app_name, *identity)}"


def owner_digest(organization: str, project: str, stack: str, urn: str) -> str:
    """Return the label value by which a stack knows the objects that a component of it created, 32 hex digits."""
    return hashlib.sha256("\n".join((organization, project, stack, urn)).encode()).hexdigest()[:32]


def label_value(text: str) -> str:
    """Return a valid label value for a text. A valid one is returned unchanged.

    Characters that are not allowed become dots, as in TorchX nightly. If that is not enough, a hash is added.

    >>> label_value("my_app"), label_value("team/app"), label_value("")
    ('my_app', 'team.app', '')
    >>> label_value("/app/"), label_value("-")
    ('app-d82943ad', '4c327c3d')
    >>> len(label_value("x" * 100))
    63
    """
    dotted = re.sub(r"[^-A-Za-z0-9_.]", ".", text)
    if is_label_value(dotted):
        return dotted
    stem = dotted[: MAX_LABEL - HASH_LENGTH - 1].strip("-_.")
    return f"{stem}-{short_hash(text)}" if stem else short_hash(text)
