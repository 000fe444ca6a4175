"""Whatever is wrong with a job, its error does not repeat what may be a secret."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi import render
from torchx_pulumi.inputs.appfile import read_app_file
from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.model.errors import ClusterError, InvalidJobError

SECRET = "hunter22hunter22"

APP: dict[str, Any] = {
    "name": "train",
    "metadata": {"note": "a"},
    "roles": [
        {
            "name": "trainer",
            "image": "app:1",
            "entrypoint": "python",
            "args": ["-m", "train"],
            "env": {"TOKEN": "a"},
            "secret_env": {"KEY": {"name": "store", "key": "password", "optional": True}},
            "num_replicas": 2,
            "max_retries": 1,
            "resource": {"cpu": 1, "gpu": 1, "memory_mb": 100, "devices": {"a.b/c": 1}, "capabilities": {"a": "b"}},
            "port_map": {"c10d": 29500},
            "mounts": [{"kind": "bind", "src": "/a", "dst": "/b", "read_only": True}],
            "metadata": {"a": "b"},
            "node_selector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "pod_overlay": {"spec": {"hostNetwork": True, "containers": [{"name": "x"}]}},
        }
    ],
}

OPTIONS: dict[str, Any] = {
    "queue": "default",
    "namespace": "ml",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "plugins": {"svc": []},
    "image_secrets": ["a"],
    "network_topology": {"mode": "hard"},
    "priority_class": "high",
}

CONTAINERS: tuple[Any, ...] = ({"password": SECRET}, [SECRET], [{"a": [SECRET]}], (SECRET,), {SECRET}, object())
TEXTS: tuple[Any, ...] = (SECRET + "!", f"[FIELD_PATH]{SECRET}", f"{SECRET}: {{", f"{{{SECRET}", 1.5)
PATHS = ("pod_overlay",)
"""A text here is the path of a file, and paths are shown."""


MAY_BE_SECRET = ("args", "env", "secret_env", "pod_overlay", "metadata", "annotations", "plugins")


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*place, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    owner = changed
    for part in place[:-1]:
        owner = owner[part]
    owner[place[-1]] = new
    return changed


def message_of(action: Callable[[], Any]) -> str:
    """Return the error of an action. Empty: there was none."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def test_no_error_of_a_job_repeats_a_value_that_may_be_secret() -> None:
    refused = 0
    for source, is_app in ((APP, True), (OPTIONS, False)):
        for place in places(source):
            whole = place[-1] in MAY_BE_SECRET or any(part in MAY_BE_SECRET for part in place)
            for wrong in (*CONTAINERS, *(TEXTS if whole and place[-1] not in PATHS else ())):
                app, options = (put(APP, place, wrong), OPTIONS) if is_app else (APP, put(OPTIONS, place, wrong))
                said = message_of(lambda app=app, options=options: render(app, "volcano", options, app_id="train-1"))
                refused += bool(said)
                assert SECRET not in said, (place, wrong)
    assert refused > 200


@pytest.mark.parametrize(
    "text",
    [
        f"name: a\nroles: [*{SECRET}]",
        f"name: a\npassword: &{SECRET} &x 1",
        f"token: {SECRET}\n  bad: [",
        f"token: '{SECRET}",
        f"a: !{SECRET} b",
        f"token: {SECRET}\x00",
        SECRET,
        f"[{SECRET}]",
        f"token: {SECRET}\ntoken: 2",
    ],
)
def test_no_error_of_a_file_repeats_what_stands_in_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(text)
    with pytest.raises(InvalidJobError) as caught:
        read_app_file(file)
    assert SECRET not in str(caught.value)
    # A word alone is a path, and paths are shown.
    for given in (str(file), *([text] if text != SECRET else []), f"s3://me:{SECRET}@bucket/x.yaml"):
        assert SECRET not in message_of(lambda given=given: read_overlay_file(given)), given
    for given in (
        str(file),
        text,
        f"{{{text}",
        "apiVersion: v1\n" + text,
        f"users: [{{token: {SECRET}}}]",
        SECRET * 400,
    ):
        with pytest.raises(ClusterError) as refused:
            find_access(given)
        assert SECRET not in str(refused.value).replace(f"looked for {SECRET}", ""), given
