import json
from dataclasses import replace

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
    cluster=ClusterIdentity(uid="k", ca="c", address="a"),
)


def test_a_record_comes_back_as_it_was_written() -> None:
    assert read_record(json.loads(json.dumps(write_record(RECORD)))) == RECORD


def test_numbers_that_became_floats_are_read_as_integers() -> None:
    written = json.loads(json.dumps(write_record(RECORD)), parse_int=float)
    assert read_record(written) == RECORD


def test_what_is_not_known_is_not_written() -> None:
    assert "uid" not in write_record(replace(RECORD, uid=None))


def test_fields_of_a_later_release_are_left_out() -> None:
    assert read_record({**write_record(RECORD), "colour": "blue"}) == RECORD


@pytest.mark.parametrize("replicas", [{}, None])
def test_a_record_without_replicas_has_those_of_the_launch(replicas: object) -> None:
    assert read_record({**write_record(RECORD), "replicas": replicas}) == replace(RECORD, replicas={"trainer": 4})


def test_a_record_of_a_launch_that_could_read_no_cluster_names_none() -> None:
    written = write_record(replace(RECORD, cluster=None))
    assert "cluster" not in written
    assert read_record(written) == replace(RECORD, cluster=None)
    with pytest.raises(DeployError, match="changed by hand"):
        read_record({**written, "cluster": "here"})


def test_a_run_of_shared_tasks_or_with_digests_has_version_2() -> None:
    shared = replace(RECORD, tasks={"trainer": (0, 1)})
    pinned = replace(RECORD, image_digests={"trainer": "sha256:1"})
    assert read_record(json.loads(json.dumps(write_record(shared)))) == replace(RECORD, tasks={"trainer": [0, 1]})
    assert read_record(json.loads(json.dumps(write_record(pinned)))) == pinned
    assert [write_record(record)["version"] for record in (RECORD, shared, pinned)] == [1, 2, 2]


def test_no_digests_of_images_are_not_written() -> None:
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


@pytest.mark.parametrize("version", [1, 3, "2", [2]])
def test_an_identity_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(DeployError, match=r"identity_version .*, this release of torchx-pulumi knows 2; install"):
        read_record({**write_record(RECORD), "identity_version": version})


def test_a_record_that_names_no_version_of_its_identity_is_refused() -> None:
    written = {key: value for key, value in write_record(RECORD).items() if key != "identity_version"}
    with pytest.raises(DeployError, match="has no identity_version, this release of torchx-pulumi knows 2"):
        read_record(written)
