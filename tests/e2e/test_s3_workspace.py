"""A workspace on a real S3 server: every plan of a process reads the objects as they are."""

from __future__ import annotations

import tarfile
from io import BytesIO

import pytest
from torchx_pulumi.images.content.archive import stream
from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.model.errors import ImageError

from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

URL = "s3://state/code"


def read() -> dict[str, bytes]:
    entries = hash_files(read_tree(URL).entries)
    with tarfile.open(fileobj=BytesIO(b"".join(stream(entries)))) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_objects_that_change_between_two_plans(s3_backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**s3_backend.env, "AWS_ENDPOINT_URL": s3_backend.endpoint}.items():
        monkeypatch.setenv(name, value)
    code = s3_backend.bucket / "code"
    (code / "lib").mkdir(parents=True)
    (code / "train.py").write_bytes(b"one")
    (code / "lib/gone.py").write_bytes(b"gone")
    assert read() == {"train.py": b"one", "lib/gone.py": b"gone"}
    (code / "lib/gone.py").unlink()
    (code / "lib/new.py").write_bytes(b"new")
    (code / "train.py").write_bytes(b"one and two")
    assert read() == {"train.py": b"one and two", "lib/new.py": b"new"}
    entries = read_tree(URL).entries
    (code / "train.py").write_bytes(b"one, two and three")
    with pytest.raises(ImageError, match=r"'train.py': changed while it was read"):
        hash_files(entries)
