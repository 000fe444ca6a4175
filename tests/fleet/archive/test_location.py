"""URLs of archives."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchx_pulumi.logs.archives import check_archive_url
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi_fleet.archive import open_archive


@pytest.mark.parametrize(
    "url",
    [
        "/srv/logs",
        "/srv/my logs",
        "file:///srv/logs",
        "s3://bucket",
        "s3://bucket?profile=me@lab",
        "s3://bucket/a@b?endpoint=http://127.0.0.1:9000&s3ForcePathStyle=true",
    ],
)
def test_allowed(url: str) -> None:
    assert check_archive_url(url, "log_archive") == []
    assert open_archive(url).name == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("logs", "'logs', allowed is an absolute path"),
        ("", "'', allowed is"),
        ("~/logs", "allowed is"),
        ("file://logs", "not an absolute path"),
        ("file://~/logs", "not an absolute path"),
        ("ftp://host/logs", "s3://bucket/prefix"),
        ("https://host/logs", "allowed is"),
        ("s3:///logs", "names no bucket"),
        ("s3://me:hunter22@bucket", "contains credentials"),
        ("s3://me@bucket", "contains credentials"),
        ("s3://bucket?secret_key=hunter22", "contains credentials"),
        ("s3://bucket?endpoint=me:hunter22@host:9000", "contains credentials"),
        ("azblob://container?sas=hunter22", "contains credentials"),
        ("me:hunter22@host:/logs", "'***@host:/logs', allowed is"),
        ("s3://[bucket", "is not a URL"),
        ("/srv/lo\0gs", "cannot be printed"),
        ("s3://bucket\n/logs", "cannot be printed"),
        ("file:///srv/lo%00gs", "cannot be printed"),
    ],
)
def test_refused(url: str, words: str) -> None:
    (problem,) = check_archive_url(url, "log_archive")
    assert problem.path == "log_archive"
    assert words in problem.message
    assert "hunter22" not in problem.message
    with pytest.raises(InvalidJobError) as raised:
        open_archive(url)
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize("url", ["azblob://container", "AzBlob://container"])
def test_an_archive_whose_package_is_not_installed_is_named_and_not_opened(url: str) -> None:
    assert check_archive_url(url, "log_archive") == []
    with pytest.raises(InvalidJobError, match="needs the package adlfs; install `adlfs`"):
        open_archive(url)


def test_opening_writes_nothing(tmp_path: Path) -> None:
    archive = open_archive(f"file://{tmp_path}/my%20logs")
    assert archive.index() == []
    assert [*tmp_path.iterdir()] == []
    archive.check_writable()
    assert [*(tmp_path / "my logs").iterdir()] == []
