"""Trimming drops what nothing reads, keeps what refers to secrets, and shares equal texts."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.kube import trimming
from torchx_pulumi.kube.trimming import trim


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **container}]}}


def test_commands_probes_and_variables_are_dropped_in_every_template() -> None:
    whole = pod(command=["a"], args=["b"], livenessProbe={}, volumeMounts=[{}], env=[{"name": "A", "value": "b"}])
    for found in (whole, {"spec": {"tasks": [{"template": whole}]}}, {"items": [{"generictemplate": whole}]}):
        text = str(trim(found))
        assert "'name': 'c'" in text
        assert not any(word in text for word in ("command", "args", "Probe", "Mounts", "env"))


def test_managed_fields_and_the_last_applied_manifest_are_dropped() -> None:
    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    annotations = {last_applied: "{}", "mine": "yes"}
    whole = {"metadata": {"name": "a", "managedFields": [{}], "annotations": annotations}}
    assert trim(whole) == {"metadata": {"name": "a", "annotations": {"mine": "yes"}}}
    assert last_applied in annotations


def test_what_refers_to_a_secret_stays() -> None:
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    plain = {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    source, other = {"secretRef": {"name": "s"}}, {"configMapRef": {"name": "m"}}
    (container,) = trim(pod(env=[secret, plain], envFrom=[source, other]))["spec"]["containers"]
    assert container == {"name": "c", "env": [secret], "envFrom": [source]}
    volumes = [
        {"name": "a", "secret": {"secretName": "s"}},
        {"name": "b", "projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {"name": "s"}}]}},
        {"name": "c", "csi": {"driver": "secrets-store.csi.k8s.io"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "p"}},
        {"name": "e", "emptyDir": {}},
        {"name": "f", "projected": {"sources": [{"serviceAccountToken": {}}]}},
        {"name": "g", "hostPath": {"path": "/"}},
    ]
    kept = trim({"spec": {"volumes": volumes}})["spec"]["volumes"]
    assert [volume["name"] for volume in kept] == ["a", "b", "c", "d"]


def test_labels_and_data_with_the_names_of_dropped_fields_stay() -> None:
    whole = {"metadata": {"labels": {"args": "a", "env": "b", "command": "c"}}, "status": {"message": "m", "args": 1}}
    assert trim(whole) == whole


def test_an_event_keeps_what_it_says_about_what_and_when() -> None:
    kept = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Failed",
        "message": "m",
        "type": "Warning",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "eventTime": None,
        "count": 3,
    }
    assert trim({**kept, "source": {"component": "kubelet"}, "reportingInstance": "n"}) == kept
    assert trim({"source": 1, "count": 2}) == {"source": 1, "count": 2}


def test_objects_of_any_shape_are_trimmed() -> None:
    for strange in (None, "x", 1, [], [None], [[]], {"x": [1]}):
        whole = {"metadata": strange, "spec": {"containers": strange, "volumes": strange, "env": strange}}
        assert trim(whole) == whole
        trim(pod(env=strange, envFrom=strange, volumes=strange))


def test_equal_texts_are_stored_once_and_are_forgotten() -> None:
    first, second = ({"".join(["image", "ID"]): "".join(["docker", ".io/", "a"])} for _ in range(2))
    one, other = trim(first), trim(second)
    assert next(iter(one.values())) is next(iter(other.values()))
    assert next(iter(one)) is next(iter(other))
    for number in range(3 * trimming.MOST_SHARED):
        trim({"name": f"unique-{number}"})
    assert len(trimming._shared) <= trimming.MOST_SHARED + 2
