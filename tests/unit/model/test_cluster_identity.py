from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kubeconfig import authority_of, cluster_and_user, find_access
from torchx_pulumi.model.cluster_identity import (
    ClusterIdentity,
    Match,
    authority_digest,
    compare,
    read_identity,
    write_identity,
)

from tests.fakes import FakeCluster

HERE = ClusterIdentity(uid="u1", ca="c1", address="a1", name="the cluster of context 'x' at https://x")


@pytest.mark.parametrize(
    ("recorded", "present", "match"),
    [
        # Two uids decide, whatever the addresses and authorities are.
        ({"uid": "u1"}, {"uid": "u1", "ca": "c2", "address": "a2"}, Match.SAME),
        ({"uid": "u1"}, {"uid": "u2"}, Match.DIFFERENT),
        # Without one of them: an equal address with an equal authority.
        ({"uid": None}, {}, Match.SAME),
        ({}, {"uid": None}, Match.SAME),
        ({"uid": None, "ca": None}, {"uid": None, "ca": None}, Match.SAME),
        ({"uid": None}, {"address": "a2"}, Match.UNDECIDED),
        ({"uid": None}, {"ca": "c2"}, Match.UNDECIDED),
        ({"uid": None}, {"ca": None}, Match.UNDECIDED),
        ({"uid": None}, {"uid": None, "ca": "c2", "address": "a2"}, Match.UNDECIDED),
    ],
)
def test_uids_decide_and_without_them_address_and_authority(recorded: Any, present: Any, match: Match) -> None:
    base = {"uid": "u1", "ca": "c1", "address": "a1"}
    assert compare(ClusterIdentity(**base | recorded), ClusterIdentity(**base | present)) is match


def test_the_key_is_of_the_uid_where_it_is_known() -> None:
    assert HERE.key == ClusterIdentity(uid="u1", address="another").key != HERE.address
    assert HERE.keys == (HERE.key, "a1")
    unknown = ClusterIdentity(address="a1")
    assert (unknown.key, unknown.keys) == ("a1", ("a1",))


def test_an_identity_comes_back_as_it_was_written() -> None:
    for identity in (HERE, ClusterIdentity(address="a1")):
        read = read_identity(json.loads(json.dumps(write_identity(identity))))
        assert read == identity
        assert read is not None
        assert read.name == identity.name
    assert read_identity(None) is None
    assert read_identity({**write_identity(HERE), "colour": "blue"}) == HERE


@pytest.mark.parametrize("value", ["text", {}, {"uid": "u"}])
def test_what_is_no_identity_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="without an address"):
        read_identity(value)


def test_the_authority_is_the_same_from_a_file_and_from_data(tmp_path: Path) -> None:
    certificate = b"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.crt").write_bytes(certificate.replace(b"\n", b"\r\n"))

    def authority(**fields: str) -> str | None:
        cluster = {"name": "c", "cluster": {"server": "https://x", **fields}}
        context = {"name": "x", "context": {"cluster": "c"}}
        config = {"clusters": [cluster], "contexts": [context], "current-context": "x"}
        return authority_of(cluster_and_user(find_access(json.dumps(config)))[0])

    data = base64.b64encode(certificate).decode()
    known = authority_digest(certificate)
    assert known is not None
    assert authority(**{"certificate-authority-data": data}) == known
    assert authority(**{"certificate-authority": str(tmp_path / "ca.crt")}) == known
    assert authority() is None
    assert authority(**{"certificate-authority": str(tmp_path / "none")}) is None


def test_fakes_of_two_addresses_are_two_clusters_unless_they_are_given_one_uid() -> None:
    one, two = FakeCluster(), FakeCluster(api_server="https://other.example.com")
    assert compare(one.identify(), two.identify()) is Match.DIFFERENT
    two.uid = one.identify().uid
    assert compare(one.identify(), two.identify()) is Match.SAME
    forbidden = FakeCluster(api_server="https://other.example.com", denied=[("get", kinds.NAMESPACE)])
    assert forbidden.identify().uid is None
    assert compare(one.identify(), forbidden.identify()) is Match.UNDECIDED
