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


def test_no_record_is_none() -> None:
    assert read_record(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "found str without a version"),
        ({**write_record(RECORD), "version": 2}, "has version 2"),
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
