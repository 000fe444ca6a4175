"""Paths of archived logs: names from a cluster never leave the archive, and are told apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi_fleet.archive.archive import escape, job_folder, key_of_run, read_key

from tests.fleet.archive.clusters import only_run
from tests.fleet.archive.pods import UID, pod

HOSTILE = [
    "..",
    ".",
    "",
    "a/b",
    "../../etc",
    "a\0b",
    "%2E",
    "x~" * 31,
    ".hidden",
    "a.json",
    "x.partial",
    "-",
    "." * 63,
    "-" * 63,
]
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=63))
SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%~")


@given(NAMES, NAMES, NAMES, NAMES, NAMES, st.booleans())
def test_names_from_a_cluster_stay_within_the_archive(
    job_name: str, uid: str, role: str, pod_uid: str, container: str, partial: bool
) -> None:
    ref = replace(only_run(pod()), role=role, pod_uid=pod_uid, container=container, restarts=3)
    key = replace(key_of_run(job_folder(f"default:{job_name}", uid), ref), partial=partial)
    assert set(key.log) <= SAFE | {"/"}
    parts = PurePosixPath(key.log).parts
    assert len(parts) == 6
    assert all(part and not part.startswith(".") for part in key.log.split("/"))
    assert read_key(key.record) == read_key(key.log) == key


@given(NAMES, NAMES)
def test_two_names_have_two_paths(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.parametrize("path", ["a/b/c/d/e/x.json", "x.json", "a/b/c/d/0/20260101T000000Z-u-0-main.log", "a/b"])
def test_other_files_are_no_records(path: str) -> None:
    assert read_key(path) is None


def test_a_path_says_what_it_is() -> None:
    ref = replace(only_run(pod()), pod_created_at=datetime(2026, 11, 22, 17, 44, tzinfo=timezone.utc))
    assert key_of_run(job_folder("team:train-x1", UID), ref).log == (
        "team/train-x1/9b2c1f0a-0000-4000-8000-000000000001/trainer/0/"
        "20261122T174400Z-9b2c1f0a-0000-4000-8000-00000000000a-0-main.log.gz"
    )
