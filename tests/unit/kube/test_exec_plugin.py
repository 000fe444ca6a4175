"""Plugins that log in: when they are run, what they are told, which answers count, and what is said of the others."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest
from torchx_pulumi.kube import KubernetesCluster, credentials, kinds
from torchx_pulumi.kube.credentials import ExecPlugin
from torchx_pulumi.model.errors import ClusterError

from tests.loopback import ApiServer, Asked, Certificates, Config

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


class Plugin:
    """A shell script that counts its runs and prints what a file holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "login"
        self.script("cat answer")

    def script(self, body: str) -> None:
        self.path.write_text(
            f'#!/bin/sh\ncd {self.folder}\necho run >> runs\necho "$KUBERNETES_EXEC_INFO" > told\n'
            f'echo "$REGION/$*" > given\n{body}\n'
        )
        self.path.chmod(0o755)

    def answers(self, version: str = V1, **status: Any) -> None:
        whole = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(whole))

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def user(self, **more: Any) -> Config:
        return {"exec": {"apiVersion": V1, "command": str(self.path), "interactiveMode": "Never", **more}}


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    made = Plugin(tmp_path)
    made.answers(token="one")
    return made


def connect(config: Config) -> KubernetesCluster:
    return KubernetesCluster.connect(json.dumps(config))


def look(config: Config) -> None:
    connect(config).get(kinds.POD, "n", "x")


def in_an_hour() -> str:
    return (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")


def test_a_plugin_is_run_once_until_its_answer_expires(
    api: ApiServer, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.answers(token="one", expirationTimestamp=in_an_hour())
    cluster = connect(api.config(plugin.user()))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cluster.get(kinds.POD, "n", "x"), range(8)))
    other_context = api.config(plugin.user()) | {"preferences": {}}
    look(other_context)
    assert (plugin.runs, {asked.authorization for asked in api.asked}) == (1, {"Bearer one"})
    plugin.answers(token="two", expirationTimestamp="2100-01-01T01:00:00+01:00")
    later = time.time() + 3601
    monkeypatch.setattr("time.time", lambda: later)
    cluster.get(kinds.POD, "n", "x")
    cluster.get(kinds.POD, "n", "x")
    assert (plugin.runs, api.asked[-1].authorization) == (2, "Bearer two")


def test_a_refused_token_is_renewed_and_the_request_sent_again(api: ApiServer, plugin: Plugin) -> None:
    valid = {"one"}

    def answer(asked: Asked) -> tuple[int, Any]:
        return (200, {}) if (asked.authorization or "")[7:] in valid else (401, {"message": "Unauthorized"})

    api.answer = answer
    cluster = connect(api.config(plugin.user()))
    cluster.get(kinds.POD, "n", "x")
    valid.clear()
    valid.add("two")
    plugin.answers(token="two")
    cluster.create(kinds.POD, "n", {"metadata": {"name": "x"}}, dry_run=True)
    assert plugin.runs == 2
    assert [(asked.method, asked.authorization) for asked in api.asked] == [
        ("GET", "Bearer one"),
        ("POST", "Bearer one"),
        ("POST", "Bearer two"),
    ]
    valid.clear()
    for _ in range(3):
        with pytest.raises(ClusterError, match="does not accept the credentials"):
            cluster.get(kinds.POD, "n", "x")
    # The same answer again is of no use: it is asked for once, and not for every request.
    assert (plugin.runs, len(api.asked)) == (3, 6)


def test_threads_that_are_refused_at_once_let_the_plugin_run_once(api: ApiServer, plugin: Plugin) -> None:
    api.answer = lambda asked: (200, {}) if asked.authorization == "Bearer two" else (401, {"message": "Unauthorized"})
    plugin.script("[ $(wc -l < runs) = 1 ] || { sed s/one/two/ answer > next; mv next answer; }\ncat answer")
    cluster = connect(api.config(plugin.user()))
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: cluster.get(kinds.POD, "n", "x"), range(8)))) == 8
    assert plugin.runs == 2


def test_threads_that_wait_for_a_plugin_share_its_failure(plugin: Plugin) -> None:
    plugin.script("until [ -e all ]; do sleep 0.01; done; exit 3")
    wanted, all_ask = ExecPlugin(plugin.user()["exec"], {}), threading.Barrier(17)

    def ask() -> str:
        with pytest.raises(ClusterError) as caught:
            wanted.credentials()
        return str(caught.value)

    def ask_together() -> str:
        all_ask.wait()
        return ask()

    with ThreadPoolExecutor(16) as threads:
        asked = [threads.submit(ask_together) for _ in range(16)]
        all_ask.wait()
        time.sleep(0.1)
        (plugin.folder / "all").touch()
        said = {done.result() for done in asked}
    assert len(said) == 1
    # A thread that began late asks once more.
    assert plugin.runs <= 2
    before = plugin.runs
    ask()
    assert plugin.runs == before + 1


@pytest.mark.parametrize("more", [{"args": ["a\0hush"]}, {"env": [{"name": "A=B", "value": "hush"}]}])
def test_what_no_program_can_be_given_is_refused(plugin: Plugin, more: Config) -> None:
    with pytest.raises(ClusterError, match="cannot be started") as caught:
        ExecPlugin(plugin.user(**more)["exec"], {}).credentials()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("mode", "talks"), [("IfAvailable", True), ("Always", True), ("Never", False)])
def test_a_plugin_talks_to_the_user_where_there_is_a_terminal(
    api: ApiServer, plugin: Plugin, mode: str, talks: bool
) -> None:
    plugin.script('echo "code?" >&2; read code; echo "$code" > heard; cat answer')
    program = (
        "import sys\n"
        "from torchx_pulumi.kube import kinds\n"
        "from torchx_pulumi.kube import KubernetesCluster\n"
        "KubernetesCluster.connect(sys.argv[1]).get(kinds.POD, 'n', 'x')\n"
    )
    given = json.dumps(api.config(plugin.user(interactiveMode=mode)))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"1234\n")
        command = [sys.executable, "-c", program, given]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=True, timeout=50)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (plugin.folder / "heard").read_text().strip() == ("1234" if talks else "")
    assert json.loads((plugin.folder / "told").read_text())["spec"] == {"interactive": talks}
    assert done.stderr == ("code?\n" if talks else "")


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_is_told_what_the_kubeconfig_wants(api: ApiServer, plugin: Plugin, version: str) -> None:
    plugin.answers(version, token="one")
    user = plugin.user(
        apiVersion=version, args=["get", "token"], env=[{"name": "REGION", "value": "eu"}], provideClusterInfo=True
    )
    authority = plugin.folder / "ca.crt"
    authority.write_bytes(b"certificates")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    look(api.config(user, extensions=[extension], **{"certificate-authority": str(authority)}))
    assert json.loads((plugin.folder / "told").read_text()) == {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": api.url(),
                "certificate-authority-data": base64.b64encode(b"certificates").decode(),
                "config": {"audience": "a"},
            },
        },
    }
    assert (plugin.folder / "given").read_text() == "eu/get token\n"


def test_a_plugin_is_not_told_of_the_cluster_unasked(api: ApiServer, plugin: Plugin) -> None:
    plugin.answers(V1BETA1, token="one")
    look(api.config(plugin.user(apiVersion=V1BETA1, interactiveMode=None)))
    assert json.loads((plugin.folder / "told").read_text())["spec"] == {"interactive": False}


def test_a_certificate_of_a_plugin_is_shown_and_renewed(
    tls_api: ApiServer, plugin: Plugin, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(name: str) -> None:
        certificates.make(name)
        plugin.answers(
            clientCertificateData=certificates.certificate(name).decode(),
            clientKeyData=certificates.key(name).decode(),
            expirationTimestamp=in_an_hour(),
        )

    authority = base64.b64encode(certificates.authority).decode()
    cluster = connect(tls_api.config(plugin.user(), **{"certificate-authority-data": authority}))
    answers("ann")
    cluster.get(kinds.POD, "n", "x")
    cluster.get(kinds.POD, "n", "x")
    answers("bob")
    later = time.time() + 3601
    monkeypatch.setattr("time.time", lambda: later)
    cluster.get(kinds.POD, "n", "x")
    assert [asked.name for asked in tls_api.asked] == ["ann", "ann", "bob"]
    assert (plugin.runs, tls_api.connections) == (2, 2)
    assert {asked.authorization for asked in tls_api.asked} == {None}


def test_what_the_user_itself_holds_wins_over_its_plugin(api: ApiServer, plugin: Plugin) -> None:
    look(api.config({"token": "own", **plugin.user()}))
    assert (plugin.runs, api.asked[0].authorization) == (0, "Bearer own")


def test_a_command_with_a_folder_is_beside_the_kubeconfig(api: ApiServer, plugin: Plugin) -> None:
    file = plugin.folder / "config"
    file.write_text(json.dumps(api.config(plugin.user(command="./login"))))
    KubernetesCluster.connect(str(file)).get(kinds.POD, "n", "x")
    assert (plugin.runs, api.asked[0].authorization) == (1, "Bearer one")


WRONG = [
    ({"command": ""}, "names no command"),
    ({"command": ""}, "without a name in env"),
    ({"args": "get token"}, "has args that is not a list"),
    ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, r"v1alpha1', must be .*/v1 or .*/v1beta1"),
    ({"interactiveMode": None}, "interactiveMode None, must be Never, IfAvailable, Always"),
    ({"interactiveMode": "Always"}, "standard input is no terminal"),
    (
        {"command": "no-such-login", "installHint": "get it at \x1b[1mexample.com\x1b[0m"},
        "is not there: get it at example.com$",
    ),
    ({"command": "no-such-login"}, "is not there; install it"),
]


@pytest.mark.parametrize(("more", "said"), WRONG)
def test_a_plugin_that_cannot_be_used_says_why(api: ApiServer, plugin: Plugin, more: Config, said: str) -> None:
    user = plugin.user(env=[{"value": "x"}] if "env" in said else [], **more)
    with pytest.raises(ClusterError, match=f"'lab' cannot be used: .*{said}") as caught:
        look(api.config(user))
    assert not caught.value.retryable
    assert not api.asked


def printing(status: Any, version: str = V1) -> str:
    return f"echo '{json.dumps({'kind': 'ExecCredential', 'apiVersion': version, 'status': status})}'"


BAD_ANSWERS = [
    ("echo hush", "without an ExecCredential"),
    ("echo '[\"hush\"]'", "without an ExecCredential"),
    (printing({"token": "hush"}, V1BETA1), r"in apiVersion '.*v1beta1'; the"),
    (printing(None), "without credentials"),
    (printing({"clientKeyData": "hush"}), "both are needed"),
    (printing({"token": "hush x"}), "no request can hold"),
    (printing({"token": "hush", "expirationTimestamp": "soon"}), "'soon', which is not a time"),
]


@pytest.mark.parametrize(("script", "said"), BAD_ANSWERS)
def test_an_answer_without_credentials_is_refused_and_not_shown(
    api: ApiServer, plugin: Plugin, script: str, said: str
) -> None:
    plugin.script(script)
    with pytest.raises(ClusterError, match=f"the plugin '.*login' of its kubeconfig answered .*{said}") as caught:
        look(api.config(plugin.user()))
    assert "hush" not in str(caught.value)


def test_what_a_failed_plugin_says_is_shown_without_secrets(
    api: ApiServer, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-1")
    secrets = ["planted-1", "planted-2", "planted-3", "planted-4", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.planted-5"]
    plugin.script(
        "echo planted-0\n"
        f"cat >&2 <<'END'\n\x1b[31mExpired\x1b[0m: log in with aws sso login; key {secrets[0]} or {secrets[1]}\n"
        f"client_secret={secrets[2]} https://me:{secrets[3]}@login.example.com {secrets[4]}\nEND\nexit 3"
    )
    user = plugin.user(env=[{"name": "CLIENT_SECRET", "value": "planted-2"}])
    with pytest.raises(ClusterError, match="ended with exit code 3: Expired: log in with aws sso login") as caught:
        look(api.config(user))
    assert caught.value.retryable
    assert "planted" not in str(caught.value)
    assert "login.example.com" in str(caught.value)


def ends(file: Path) -> None:
    """Wait until the process that a file names has ended; on a busy machine it may not have begun."""
    child = file.read_text().strip() if file.exists() else ""
    deadline = time.monotonic() + 30
    with suppress(psutil.NoSuchProcess):
        while child and psutil.Process(int(child)).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_plugin_that_does_not_end_is_stopped_with_all_that_it_started(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "LIMIT_S", 0.3)
    plugin.script("sleep 60 & echo $! > child\nwait")
    with pytest.raises(ClusterError, match=r"did not answer in 0\.3 s; run it by hand") as caught:
        ExecPlugin(plugin.user()["exec"], {}).credentials()
    assert caught.value.retryable
    ends(plugin.folder / "child")


def test_a_command_that_ends_leaves_no_plugin_behind(plugin: Plugin) -> None:
    plugin.script("sleep 60 & echo $! > child\necho started > ready\nwait")
    program = (
        "import json, pathlib, sys, threading, time\n"
        "from torchx_pulumi.kube.credentials import ExecPlugin\n"
        "made = ExecPlugin(json.loads(sys.argv[1]), {})\n"
        "threading.Thread(target=made.credentials, daemon=True).start()\n"
        "while not pathlib.Path(sys.argv[2]).exists():\n"
        "    time.sleep(0.01)\n"
    )
    given = [json.dumps(plugin.user()["exec"]), str(plugin.folder / "ready")]
    subprocess.run([sys.executable, "-c", program, *given], check=True, timeout=50)
    ends(plugin.folder / "child")


def oidc(**claims: Any) -> Config:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return {"auth-provider": {"name": "oidc", "config": {"id-token": f"eyJhbGciOiJub25lIn0.{payload}.hush"}}}


def test_the_token_of_an_auth_provider_is_sent_until_it_expires(api: ApiServer) -> None:
    user = oidc(exp=time.time() + 60)
    look(api.config(user))
    assert api.asked[0].authorization == f"Bearer {user['auth-provider']['config']['id-token']}"
    for stale in (oidc(exp=time.time() - 1), {"auth-provider": {"name": "oidc", "config": {"id-token": "hush"}}}):
        with pytest.raises(ClusterError, match=r"id-token of its auth-provider 'oidc' .*kubectl renews it") as caught:
            look(api.config(stale))
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "instead"), [("gcp", "gke-gcloud-auth-plugin"), ("azure", "kubelogin"), ("x", "exec")]
)
def test_auth_providers_that_kubernetes_removed_name_their_successors(api: ApiServer, name: str, instead: str) -> None:
    with pytest.raises(ClusterError, match=f"auth-provider '{name}', which Kubernetes 1.26 removed.*{instead}"):
        look(api.config({"auth-provider": {"name": name, "config": {"access-token": "hush"}}}))


def test_no_way_to_log_in_loads_the_official_client(api: ApiServer, plugin: Plugin) -> None:
    program = (
        "import sys\n"
        "from torchx_pulumi.kube import kinds\n"
        "from torchx_pulumi.kube import KubernetesCluster\n"
        "for given in sys.argv[1:]:\n"
        "    KubernetesCluster.connect(given).get(kinds.POD, 'n', 'x')\n"
        "sys.exit('kubernetes' in sys.modules)"
    )
    users: list[Config] = [{"token": "hush"}, plugin.user(), oidc(exp=time.time() + 60)]
    given = [json.dumps(api.config(user)) for user in users]
    done = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(api.asked) == 3
