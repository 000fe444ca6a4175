"""Kubeconfigs that kubectl refuses are refused by name: nothing in them is taken for something else."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.model.errors import ClusterError

from tests.loopback import ApiServer, Certificates, Config

BASE64 = base64.b64encode(b"x").decode()


def look(config: Config) -> None:
    KubernetesCluster.connect(json.dumps(config)).get(kinds.POD, "n", "x")


@pytest.mark.parametrize(
    ("user", "word"),
    [
        ({"token": "hush\nhush"}, "its token has"),
        ({"token": "hüsh"}, "its token has"),
        ({"token": 5}, "token must be a text, found a number"),
        ({"as": "ann", "as-groups": "hush"}, "as-groups must be a list of texts, found a text"),
        ({"as": "ann", "as-user-extra": {"a": "hush"}}, "as-user-extra must be"),
        ({"as": "ann", "as-user-extra": ["hush"]}, "as-user-extra must be"),
        ({"exec": "hush"}, "exec must be a mapping"),
        ({"auth-provider": "hush"}, "auth-provider must be a mapping"),
        ({"client-certificate-data": BASE64}, "client-certificate-data is without its key"),
        ({"client-certificate-data": BASE64, "client-key-data": "hush!"}, "client-key-data is not base64"),
        ({"client-certificate": 7, "client-key": 7}, "client-certificate must be .*; client-key must be"),
    ],
)
def test_a_user_that_is_ill_typed_is_refused_and_not_shown(api: ApiServer, user: Config, word: str) -> None:
    with pytest.raises(ClusterError, match=f"'lab' cannot be used: .*{word}") as caught:
        look(api.config({"token": "ok", **user}))
    assert "hush" not in str(caught.value)
    assert api.asked == []


@pytest.mark.parametrize(
    ("cluster", "word"),
    [
        ({"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify must be true or false without quotes"),
        ({"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"}, "exclude each other"),
        ({"certificate-authority-data": "!!"}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": 5}, "certificate-authority-data must be a text"),
        ({"tls-server-name": 5}, "tls-server-name must be a text"),
        ({"server": 5}, "server must be a text"),
        *(
            ({"server": server}, "server is not an address")
            for server in ("https://[::1", "https://a b", "https://h:x")
        ),
    ],
)
def test_a_cluster_that_is_ill_typed_is_refused(tls_api: ApiServer, cluster: Config, word: str) -> None:
    with pytest.raises(ClusterError, match=f"'lab' cannot be used: .*{word}"):
        look(tls_api.config(**cluster))
    assert tls_api.asked == []


@pytest.mark.parametrize("text", ["", "one\ntwo-hush", "hüsh"])
def test_a_token_file_without_a_token_is_named(api: ApiServer, tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ClusterError, match=r"'lab' cannot be used: its token file .*token' (is empty|has)") as caught:
        look(api.config({"tokenFile": str(file)}))
    assert "sh" not in str(caught.value).partition("token file")[2].partition("' ")[2]
    assert api.asked == []


@pytest.mark.parametrize("item", ["hush", {"name": "x", "user": "hush"}, ["hush"]])
def test_what_is_no_list_of_mappings_is_no_kubeconfig(api: ApiServer, item: object) -> None:
    with pytest.raises(ClusterError, match="is not a kubeconfig: `users` must be a list of mappings") as caught:
        look({**api.config(), "users": [item]})
    assert "hush" not in str(caught.value)


def test_a_key_with_a_password_is_refused_without_asking_for_it(certificates: Certificates, tls_api: ApiServer) -> None:
    certificates.make("locked")
    key = certificates.folder / "locked.enc"
    arguments = ["ec", "-in", "locked.key", "-aes128", "-passout", "pass:hush", "-out", str(key)]
    subprocess.run(["openssl", *arguments], cwd=certificates.folder, check=True, capture_output=True)
    user = {"client-certificate": str(certificates.folder / "locked.crt"), "client-key": str(key)}
    authority = base64.encodebytes(certificates.authority).decode()
    with pytest.raises(ClusterError, match="its certificates: the key has a password"):
        look(tls_api.config(user, **{"certificate-authority-data": authority}))
