import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.run_record import RunRecord, read_record, write_record

RECORD = RunRecord(
    app_id="job-1",
    job_name="job-1",
    namespace="default",
    hash="aa",
    digests={"queue": "q"},
    launched={"trainer": 4},
    replicas={"trainer": 2},
    attempt=3,
    launched_at="2026-01-01T00:00:00+00:00",
    uid="u",
    observed={"state": "SUCCEEDED"},
    cluster=ClusterIdentity(uid="k", ca="c", address="a"),
)


def test_a_record_comes_back_as_it_was_written() -> None:
    assert read_record(json.loads(json.dumps(write_record(RECORD)))) == RECORD


def test_numbers_that_became_floats_are_read_as_integers() -> None:
    written = json.loads(json.dumps(write_record(RECORD)), parse_int=float)
    assert read_record(written) == RECORD


def test_what_is_not_known_is_not_written() -> None:
    assert not {"uid", "observed"} & write_record(replace(RECORD, uid=None, observed=None)).keys()


def test_fields_of_a_later_release_are_left_out() -> None:
    assert read_record({**write_record(RECORD), "colour": "blue"}) == RECORD


@pytest.mark.parametrize("replicas", [{}, None])
def test_a_record_without_replicas_has_those_of_the_launch(replicas: object) -> None:
    assert read_record({**write_record(RECORD), "replicas": replicas}) == replace(RECORD, replicas={"trainer": 4})


def test_a_record_of_the_first_release_names_no_cluster() -> None:
    written = write_record(replace(RECORD, cluster=None))
    assert "cluster" not in written
    assert read_record(written) == replace(RECORD, cluster=None)
    with pytest.raises(DeployError, match="changed by hand"):
        read_record({**written, "cluster": "here"})


def test_a_run_of_shared_tasks_or_with_digests_has_version_2_which_0_1_0_refuses() -> None:
    shared = replace(RECORD, tasks={"trainer": (0, 1)})
    pinned = replace(RECORD, image_digests={"trainer": "sha256:1"})
    assert read_record(json.loads(json.dumps(write_record(shared)))) == replace(RECORD, tasks={"trainer": [0, 1]})
    assert read_record(json.loads(json.dumps(write_record(pinned)))) == pinned
    assert [write_record(record)["version"] for record in (RECORD, shared, pinned)] == [1, 2, 2]
    (wheel,) = (Path(__file__).parents[2] / "e2e" / "released").glob("torchx_pulumi-0.1.0-*.whl")
    text = "import json, sys; from torchx_pulumi.relaunch.record import read_record; read_record(json.load(sys.stdin))"
    texts = []
    for record in (RECORD, shared, pinned):
        done = subprocess.run(
            [sys.executable, "-c", text],
            input=json.dumps(write_record(record)),
            env={**os.environ, "PYTHONPATH": str(wheel)},
            text=True,
            capture_output=True,
            check=False,
        )
        texts.append(done.stderr)
    assert texts[0] == ""
    refusal = "has version 2, this release of torchx-pulumi reads up to 1; install the release that wrote it"
    assert [refusal in text for text in texts[1:]] == [True, True]


def test_a_run_whose_pods_name_tags_is_recorded_as_0_1_0_recorded_it() -> None:
    assert write_record(replace(RECORD, image_digests={})) == write_record(RECORD)
    assert "image_digests" not in write_record(RECORD)


@pytest.mark.parametrize("firsts", [[], [1, 0], [-1, 0], [3], [0, 0], [0, 0.5], [float("nan")], ["0"]])
def test_tasks_that_no_release_writes_are_refused_by_their_role(firsts: list[object]) -> None:
    written = {**write_record(replace(RECORD, tasks={"trainer": (0, 1)})), "tasks": {"trainer": firsts}}
    with pytest.raises(DeployError, match=r"tasks\.trainer.*changed by hand"):
        read_record(written)


def test_no_record_is_none() -> None:
    assert read_record(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "found str without a version"),
        ({**write_record(RECORD), "version": 3}, "has version 3"),
        ({"version": 1, "hash": "aa"}, "lacks attempt, job_name, launched, namespace"),
    ],
)
def test_what_is_no_record_is_refused(value: object, text: str) -> None:
    with pytest.raises(DeployError, match=text):
        read_record(value)


def test_the_version_of_the_identity_is_not_written_where_it_is_the_first() -> None:
    assert "identity_version" not in write_record(RECORD)
    second = replace(RECORD, identity_version=2)
    assert write_record(second)["identity_version"] == 2
    assert read_record(json.loads(json.dumps(write_record(second)), parse_int=float)) == second


def test_an_identity_of_a_later_release_is_refused() -> None:
    with pytest.raises(DeployError, match="has identity_version 3, this release of torchx-pulumi knows up to 2"):
        read_record({**write_record(RECORD), "identity_version": 3})
