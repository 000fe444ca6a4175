"""Which cluster is meant, and what is said when none is."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube.kubeconfig import absolute_kubeconfig, cluster_and_user, find_access, namespace_of
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.whereabouts import ambient


def config(*contexts: str, current: str | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": {"token": "hush"}}],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in contexts],
        "current-context": current or contexts[0] if contexts else "",
    }


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


def write(path: Path, content: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_no_kubeconfig_says_where_it_was_looked_for(home: Path) -> None:
    with pytest.raises(ClusterError, match=r"no kubeconfig: looked for .*config") as caught:
        find_access()
    assert str(home / ".kube/config") in str(caught.value)


def test_a_named_file_that_is_absent_is_named(home: Path) -> None:
    with pytest.raises(ClusterError, match=r"nowhere\.yaml"):
        find_access(str(home / "nowhere.yaml"))


def test_the_default_file_is_found(home: Path) -> None:
    write(home / ".kube/config", config("a", "b", current="b"))
    assert find_access().context == "b"


def test_the_environment_beats_the_default_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".kube/config", config("a"))
    monkeypatch.setenv("KUBECONFIG", write(home / "other", config("z")))
    assert find_access().context == "z"


def test_several_files_are_merged_and_the_first_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = write(home / "one", config("a")), write(home / "two", config("b"))
    monkeypatch.setenv("KUBECONFIG", f"{one}:{home / 'absent'}:{two}")
    assert find_access().context == "a"
    assert find_access(context="b").context == "b"


@pytest.mark.parametrize("empty", ["", "\n \n"])
def test_an_empty_file_is_skipped_as_kubectl_does(home: Path, monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    (home / "empty").write_text(empty)
    full = write(home / "full", config("a"))
    for order in ([home / "empty", full], [full, home / "empty"]):
        monkeypatch.setenv("KUBECONFIG", ":".join(map(str, order)))
        assert find_access().context == "a"
    monkeypatch.setenv("KUBECONFIG", str(home / "empty"))
    for given in (None, str(home / "empty")):
        with pytest.raises(ClusterError, match=r"no kubeconfig: looked for .*/empty \(empty\);"):
            find_access(given)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_access().description == "the cluster of this pod"
    # An app that was launched so is not looked for in the empty file.
    assert ambient(None, None) == (None, None)


@pytest.mark.parametrize("name", ["1", "yes", "1e3", "0x10", "2026-01-01", "null-ish", "1.50"])
def test_a_name_without_quotes_is_the_text_that_it_is_written_as(home: Path, name: str) -> None:
    text = f"""
clusters: [{{name: {name}, cluster: {{server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}}}]
users: [{{name: {name}, user: {{token: hush}}}}]
contexts:
- {{name: other, context: {{cluster: c, user: u}}}}
- {{name: {name}, context: {{cluster: {name}, user: {name}, namespace: {name}}}}}
"""
    (home / "k").write_text(text)
    (home / "current").write_text(f"current-context: {name}{text}")
    for access in (find_access(str(home / "k"), name), find_access(str(home / "current"))):
        assert access.context == name
        assert namespace_of(access) == name
        cluster, user = cluster_and_user(access)
        # Other fields keep their type.
        assert (cluster["insecure-skip-tls-verify"], user["token"]) == (True, "hush")
    with pytest.raises(ClusterError, match=f"it has 'other', '{name}'"):
        find_access(str(home / "k"), "none")


def test_a_name_that_is_left_empty_is_no_name(home: Path) -> None:
    (home / "k").write_text("current-context:\ncontexts: [{name: a, context: {cluster: c, namespace: }}]\n")
    assert namespace_of(find_access(str(home / "k"), "a")) == "default"
    with pytest.raises(ClusterError, match="has no current context"):
        find_access(str(home / "k"))


def test_a_wrong_context_names_those_that_exist(home: Path) -> None:
    path = write(home / "k", config("prod", "dev"))
    with pytest.raises(ClusterError, match=r"no context 'staging'; it has 'prod', 'dev'"):
        find_access(path, "staging")


def test_no_current_context_names_those_that_exist(home: Path) -> None:
    path = write(home / "k", config("prod") | {"current-context": ""})
    with pytest.raises(ClusterError, match=r"no current context.*'prod'"):
        find_access(path)


def test_contents_serve_as_well_as_a_path() -> None:
    assert find_access(yaml.safe_dump(config("a"))).context == "a"
    assert find_access(json.dumps(config("a"))).context == "a"


@pytest.mark.parametrize("text", ["a: [\n  token: hush", "- a\n- token: hush"])
def test_what_is_no_kubeconfig_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        find_access(text)
    assert "hush" not in str(caught.value)


def test_an_access_never_shows_credentials() -> None:
    assert "hush" not in repr(find_access(json.dumps(config("a"))))


def test_files_named_by_a_kubeconfig_are_relative_to_it(home: Path) -> None:
    path = write(home / "deep/k", config("a", **{"certificate-authority": "ca.crt"}))
    assert str(home / "deep/ca.crt") in (find_access(path).config or "")


def test_inside_a_pod_its_own_account_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_access().description == "the cluster of this pod"
    with pytest.raises(ClusterError):
        find_access("nowhere")


def test_inside_a_pod_a_kubeconfig_wins_as_it_does_for_the_engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    write(home / ".kube/config", config("a"))
    assert find_access().context == "a"
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    assert find_access().description == "the cluster of this pod"


def test_equal_ways_to_a_cluster_are_equal(home: Path) -> None:
    path = write(home / "k", config("a", "b"))
    assert find_access(path) == find_access(path)
    assert find_access(path) != find_access(path, "b")


def test_a_kubeconfig_that_cannot_be_looked_at_is_not_absent(
    tmp_path: Path, unreadable: Callable[[Path, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    unreadable(tmp_path / "config", errno.EACCES)
    with pytest.raises(ClusterError, match="config cannot be read: Permission denied"):
        find_access()


def test_a_relative_kubeconfig_means_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/own")
    assert absolute_kubeconfig("kc.json") == f"{tmp_path}/kc.json"
    assert absolute_kubeconfig("~/kc.json") == "/own/kc.json"
    assert absolute_kubeconfig('{"clusters": []}') == '{"clusters": []}'


SECRET = "hunter22"
CONTENTS = {
    "one line": f"token: {SECRET}",
    "with escaped lines": f"apiVersion: v1\\nusers: [{{token: {SECRET}}}]",
    "long": f"apiVersion: v1\\nusers:\\n- token: {SECRET}" + " " * 300,
    "JSON": f'{{"token": "{SECRET}"}}',
    "a JSON list": f'["token", "{SECRET}"]',
    "YAML": f"apiVersion: v1\nusers:\n- token: {SECRET}\n",
    "with a zero byte": f"a\0{SECRET}",
}


@pytest.mark.parametrize("by", ["option", "KUBECONFIG"])
@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_contents_in_the_place_of_a_path_are_in_no_message(
    contents: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "KUBECONFIG":
        if "\0" in contents:
            pytest.skip("no variable can have it")
        monkeypatch.setenv("KUBECONFIG", contents)
    with pytest.raises(ClusterError) as refused:
        find_access(contents if by == "option" else None)
    assert SECRET not in str(refused.value)
