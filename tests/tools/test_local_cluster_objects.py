from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.local_cluster import fake_nodes, kueue, volcano, webhooks
from tools.local_cluster.__main__ import main
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.progress import Progress

ROOT = Path(__file__).resolve().parents[2]

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: judge
webhooks:
  - name: a.volcano.sh
    failurePolicy: Fail
    clientConfig: {service: {name: s, namespace: n, path: /jobs/validate, port: 443}}
  - name: b.volcano.sh
    clientConfig: {service: {name: s, namespace: n, path: /queues/validate, port: 443}}
---
kind: Deployment
"""


def test_webhooks_are_taken_out_of_the_manifest_and_point_to_an_address(tmp_path: Path) -> None:
    file = tmp_path / "volcano.yaml"
    file.write_text(MANIFEST)
    found = webhooks.read_webhooks(file, "local-")
    assert found[0]["metadata"] == {"name": "local-judge"}
    assert volcano.webhook_paths(found) == ["/jobs/validate", "/queues/validate"]
    (placed,) = webhooks.localised(found, "https://127.0.0.1:1", b"CA")
    first = placed["webhooks"][0]
    assert first["clientConfig"] == {"url": "https://127.0.0.1:1/jobs/validate", "caBundle": "Q0E="}
    assert first["failurePolicy"] == "Fail"
    assert "service" in found[0]["webhooks"][0]["clientConfig"]  # the input is left as it was


def test_a_manifest_without_webhooks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "volcano.yaml"
    file.write_text("kind: Deployment\n")
    with pytest.raises(LocalClusterError, match="no webhook configurations"):
        webhooks.read_webhooks(file)


def test_kueue_has_webhooks_for_what_it_admits_outside_system_namespaces() -> None:
    def hook(name: str, group: str) -> dict[str, object]:
        return {"name": f"{name}.kb.io", "rules": [{"apiGroups": [group]}]}

    given = [hook("vworkload", "kueue.x-k8s.io"), hook("vpod", ""), hook("vdeployment", "apps")]
    (found,) = kueue.of_frameworks([{"kind": "ValidatingWebhookConfiguration", "webhooks": given}])
    own, pods = found["webhooks"]
    assert own == given[0]
    assert pods["name"] == "vpod.kb.io"
    (namespaces,) = pods["namespaceSelector"]["matchExpressions"]
    assert (namespaces["operator"], namespaces["values"]) == ("NotIn", ["kube-system", "kueue-system"])


def test_fake_nodes_keep_pods_off_only_beside_a_real_one() -> None:
    assert fake_nodes.node("n", tainted=True)["spec"] == {"taints": [fake_nodes.TAINT]}
    assert fake_nodes.node("n", tainted=False)["spec"] == {}


@pytest.mark.parametrize(
    ("taints", "ready", "expected"),
    [
        ([], "True", True),
        ([fake_nodes.TAINT], "True", True),
        ([], "False", False),
        ([{"key": "node.kubernetes.io/not-ready"}], "True", False),
    ],
)
def test_a_node_is_ready_when_it_takes_pods(taints: list[dict[str, str]], ready: str, expected: bool) -> None:
    node = {"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    assert fake_nodes.node_ready(node) is expected
    assert fake_nodes.node_ready(None) is False


def test_the_stage_that_ends_fake_pods_is_valid_yaml() -> None:
    stage = yaml.safe_load(fake_nodes._ENDINGS.read_text())
    assert stage["kind"] == "Stage"
    assert all(annotation in str(stage) for annotation in fake_nodes.ENDING_ANNOTATIONS)


def test_a_log_gets_few_lines_and_a_terminal_one_that_changes() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    log, terminal = io.StringIO(), Terminal()
    for stream in (log, terminal):
        progress = Progress(stream)
        for tenth in range(120):
            progress.waiting(["etcd"], tenth / 10)
        progress.waiting([], 12)
        progress.say("done")
    assert log.getvalue().splitlines() == [
        "    5 s, waiting for etcd",
        "   10 s, waiting for etcd",
        "done",
    ]
    assert "\n" not in terminal.getvalue().removesuffix("done\n")
    assert terminal.getvalue().count("waiting for etcd") > 20


def test_a_mistake_is_one_line_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["up", "--name", "Bad Name"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: cluster name 'Bad Name'")
    assert "Traceback" not in captured.err


def test_status_and_down_of_nothing_say_so_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["status"]) == 1
    assert "cluster 'default': absent" in capsys.readouterr().out
    assert main(["down"]) == 0
    assert "there is no cluster 'default'" in capsys.readouterr().out
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_reader_that_has_enough_of_the_output_ends_the_command(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tools.local_cluster", "status"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT, env=environment, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
