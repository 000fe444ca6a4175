"""Object stores by the scheme of their URLs, which are those of Pulumi's backends. A further store is a row.

What is read from here: which backends and log archives are accessed without the engine, the package that does it, and
the texts of options and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Settings = Callable[[Mapping[str, str], Mapping[str, str], float], dict[str, Any]]
"""Returns the parameters of a file system: of those of the URL, environment variables, and the timeout of a request."""

CONNECTIONS: Final = 16
"""Requests to one store at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectScheme:
    """The stores of one scheme, which a file system of fsspec reads and writes."""

    package: str
    """Package of the file system."""
    file_system: str
    """Its class."""
    install: str
    """What pip installs for it."""
    settings: Settings = lambda _given, _env, _timeout_s: {}
    tries: int | None = None
    """Attempts of one request. None: the file system's own number."""
    place: str = "bucket"
    """What the URL names first, for messages."""


def _of_s3(given: Mapping[str, str], _: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    without_tls = _is_true(given.get("disableSSL")) or _is_true(given.get("disable_https"))
    endpoint = given.get("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if without_tls else 'https'}://{endpoint}"
    config: dict[str, Any] = {
        "connect_timeout": timeout_s,
        "read_timeout": timeout_s,
        "retries": {"max_attempts": 0},
        "max_pool_connections": CONNECTIONS,
    }
    if endpoint:
        # As in Pulumi: servers other than Amazon's may refuse the default checksums.
        config |= {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if _is_true(given.get("s3ForcePathStyle")) or _is_true(given.get("use_path_style")):
        config["s3"] = {"addressing_style": "path"}
    return {
        "profile": given.get("profile"),
        "endpoint_url": endpoint,
        "use_ssl": not without_tls,
        "client_kwargs": {"region_name": given["region"]} if given.get("region") else {},
        "config_kwargs": config,
    }


def _of_azure(given: Mapping[str, str], env: Mapping[str, str], _: float) -> dict[str, Any]:
    return {
        "account_name": given.get("storage_account") or env.get("AZURE_STORAGE_ACCOUNT"),
        "account_key": env.get("AZURE_STORAGE_KEY"),
        "sas_token": env.get("AZURE_STORAGE_SAS_TOKEN"),
    }


def _is_true(text: str | None) -> bool:
    """Return whether a parameter of a URL says yes, as Go parses it."""
    return (text or "").lower() in ("1", "t", "true")


SCHEMES: Final[Mapping[str, ObjectScheme]] = {
    "s3": ObjectScheme(
        package="s3fs", file_system="S3FileSystem", install="torchx-pulumi[s3]", settings=_of_s3, tries=1
    ),
    "gs": ObjectScheme(package="gcsfs", file_system="GCSFileSystem", install="gcsfs"),
    "azblob": ObjectScheme(
        package="adlfs", file_system="AzureBlobFileSystem", install="adlfs", settings=_of_azure, place="container"
    ),
}

URLS: Final = tuple(f"{scheme}://" for scheme in SCHEMES)
"""How the URLs begin."""
