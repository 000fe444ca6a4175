"""The table of object stores: a row is all that a further store needs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.logs.archives import check_archive_url
from torchx_pulumi.model.object_schemes import SCHEMES, ObjectScheme
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi.stack_state.stacks import StoredStacks, open_stacks
from torchx_pulumi_fleet.archive import open_archive

MEMORY = ObjectScheme(
    package="fsspec.implementations.memory", file_system="MemoryFileSystem", install="fsspec", tries=3
)


def test_a_row_opens_backends_and_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "memory", MEMORY)  # type: ignore[arg-type]  # a constant elsewhere
    assert check_archive_url("memory://bucket/logs", "log_archive") == []
    open_archive("memory://bucket/logs").check_writable()
    assert isinstance(open_stacks("memory://bucket"), StoredStacks)
    store = open_store("memory://bucket/folder?prefix=a")
    assert store is not None
    assert store._files.retries == 3  # type: ignore[union-attr]
    store.upload("b.json", io.BytesIO(b"text"))
    assert store.paths("") == ["b.json"]
    again = open_store("memory://bucket/a/folder")
    assert again is not None
    assert again.read_bytes("b.json") == b"text"
    store.remove("b.json")


@pytest.mark.parametrize(
    ("scheme", "given", "expected"),
    [
        (
            "azblob",
            {"storage_account": "me"},
            {"account_name": "me", "account_key": "key", "sas_token": None},
        ),
        ("azblob", {}, {"account_name": "ours", "account_key": "key", "sas_token": None}),
        ("s3", {"region": "eu-1"}, {"endpoint_url": None, "use_ssl": True, "client_kwargs": {"region_name": "eu-1"}}),
        ("s3", {"endpoint": "h:9000", "disableSSL": "T"}, {"endpoint_url": "http://h:9000", "use_ssl": False}),
        ("s3", {"endpoint": "h"}, {"endpoint_url": "https://h", "client_kwargs": {}}),
        ("s3", {"endpoint": "http://h", "profile": "lab"}, {"endpoint_url": "http://h", "profile": "lab"}),
    ],
)
def test_parameters_of_a_url(scheme: str, given: dict[str, str], expected: dict[str, Any]) -> None:
    env = {"AZURE_STORAGE_ACCOUNT": "ours", "AZURE_STORAGE_KEY": "key"}
    found = SCHEMES[scheme].settings(given, env, 2.0)
    assert {name: found.get(name) for name in expected} == expected


def test_s3_is_asked_once_and_in_time() -> None:
    config = SCHEMES["s3"].settings({"use_path_style": "true", "endpoint": "h"}, {}, 2.0)["config_kwargs"]
    assert (config["connect_timeout"], config["read_timeout"], config["retries"]) == (2.0, 2.0, {"max_attempts": 0})
    assert config["s3"] == {"addressing_style": "path"}
    assert config["request_checksum_calculation"] == "when_required"
    assert SCHEMES["s3"].tries == 1


@pytest.mark.parametrize("page", ["logs.md", "backends.md"])
def test_the_documentation_names_every_store(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    words = [
        word for scheme, row in SCHEMES.items() for word in (f"`{scheme}://", row.install.removeprefix("torchx-pulumi"))
    ]
    assert [word for word in words if word not in text] == []
