from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.inputs.appfile import read_app_file, read_app_mapping
from torchx_pulumi.inputs.json_values import write_value
from torchx_pulumi.inputs.rendering import render_app
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import MountSpec, ResourceSpec, SecretRef

from tests.doc_blocks import block
from tests.unit.typed_checks import check_job

FULL = """\
name: app
metadata: {team: x}
roles:
- name: trainer
  image: img:1
  entrypoint: main
  args: [--lr, 1e-4, --on, yes, 0.10]
  env: {COUNTRY: no, NUMBER: 010, EMPTY: ""}
  secret_env: {TOKEN: {name: s, key: k, optional: true}}
  num_replicas: 4
  min_replicas: 2
  max_retries: 1
  retry_policy: REPLICA
  resource: {cpu: 1.5, gpu: 1, memory_mb: 1500, devices: {a.io/b: 1}, capabilities: {c: d}}
  port_map: {http: 80}
  mounts:
  - {kind: bind, src: /a, dst: /b, read_only: true}
  - {kind: device, src: /dev/a, dst: /dev/b, permissions: r}
  - {type: volume, src: claim, dst: /c}
  node_selector: {zone: a}
  tolerations: [{operator: Exists}]
  pod_overlay: {spec: {hostNetwork: true}, metadata: {labels: {a: b}}}
"""


def write(tmp_path: Path, text: str, name: str = "app.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(InvalidJobError) as error:
        read_app_file(path)
    return [str(problem) for problem in error.value.problems]


def test_every_field_is_read(tmp_path: Path) -> None:
    spec = read_app_file(write(tmp_path, FULL))
    (made,) = spec.roles
    assert (spec.name, spec.metadata) == ("app", {"team": "x"})
    assert made.secret_env == {"TOKEN": SecretRef(name="s", key="k", optional=True)}
    assert (made.num_replicas, made.min_replicas, made.max_retries, made.retry_policy) == (4, 2, 1, "REPLICA")
    assert made.resource == ResourceSpec(cpu=1.5, gpu=1, memory_mb=1500, devices={"a.io/b": 1}, capabilities={"c": "d"})
    assert made.mounts == [
        MountSpec(kind="bind", src="/a", dst="/b", read_only=True),
        MountSpec(kind="device", src="/dev/a", dst="/dev/b", permissions="r"),
        MountSpec(kind="volume", src="claim", dst="/c"),
    ]
    assert made.pod_overlay == {"spec": {"hostNetwork": True}, "metadata": {"labels": {"a": "b"}}}
    assert list(check_job(spec)) == []


def test_arguments_and_environment_are_text_as_written(tmp_path: Path) -> None:
    (made,) = read_app_file(write(tmp_path, FULL)).roles
    assert made.args == ["--lr", "1e-4", "--on", "yes", "0.10"]
    assert made.env == {"COUNTRY": "no", "NUMBER": "010", "EMPTY": ""}


def test_json_with_tabs_is_read(tmp_path: Path) -> None:
    data = {"name": "app", "roles": [{"name": "a", "image": "i", "entrypoint": "m"}]}
    path = write(tmp_path, json.dumps(data, indent="\t"), "app.json")
    assert read_app_file(path).roles[0].image == "i"


LETTERS = ["\U0001f600", "a\u2028b\x85c", "\x7f\ufffe", "\u00e9", "a/b"]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_is_read_as_json_whatever_its_letters(tmp_path: Path, ascii_only: bool, indent: Any) -> None:
    role = {"name": "a", "image": "i", "entrypoint": "m", "args": LETTERS, "env": {"k" * 2000: "<<"}}
    text = json.dumps({"name": "app", "roles": [role]}, ensure_ascii=ascii_only, indent=indent)
    (made,) = read_app_file(write(tmp_path, text.replace("a/b", "a\\/b"), "app.json")).roles
    assert made.args == LETTERS
    assert made.env == {"k" * 2000: "<<"}


def test_numbers_in_json_are_numbers_and_where_text_is_wanted_as_written(tmp_path: Path) -> None:
    text = """{"name": 1.50, "roles": [{"name": "a", "image": "i", "entrypoint": "m", "args": [1e5, 0.10, true],
        "resource": {"cpu": 1e0, "gpu": -0, "memMB": 1E3}, "pod_overlay": {"spec": {"a": [1e5, -7, 0.5, "1e5"]}}}]}"""
    spec = read_app_file(write(tmp_path, text, "app.json"))
    (made,) = spec.roles
    assert (spec.name, list(made.args)) == ("1.50", ["1e5", "0.10", "true"])
    assert made.resource == ResourceSpec(cpu=1.0, gpu=0, memory_mb=1000)
    assert made.pod_overlay == {"spec": {"a": [100000.0, -7, 0.5, "1e5"]}}
    (found,) = problems_of(write(tmp_path, '{"name": "a", "roles": [], "metadata": {"a": %s}}' % ("1" * 5000)))
    assert "metadata.a: the value cannot be read" in found


def test_a_null_where_text_is_wanted_is_refused(tmp_path: Path) -> None:
    role = {"name": "a", "image": "i", "entrypoint": "m", "args": ["x", None], "env": {"A": None}}
    found = problems_of(write(tmp_path, json.dumps({"name": "app", "roles": [role]}), "app.json"))
    assert [problem.partition(":")[0] for problem in found] == ["roles[0].args[1]", "roles[0].env['A']"]


def test_problems_of_json_have_lines_where_yaml_can_read_it(tmp_path: Path) -> None:
    role = {"name": "a", "image": "i", "entrypoint": "m", "replicas": 2}
    (found,) = problems_of(write(tmp_path, json.dumps({"name": "app", "roles": [role]}, indent="\t"), "app.json"))
    assert found.startswith("roles[0].replicas")
    assert found.endswith("(line 8)")
    role["args"] = ["\x7f"]
    (found,) = problems_of(write(tmp_path, json.dumps({"name": "app", "roles": [role]}, ensure_ascii=False)))
    assert found.startswith("roles[0].replicas")


def test_json_with_comments_and_trailing_commas_is_read_as_yaml(tmp_path: Path) -> None:
    text = '{"name": "a", # mine\n"roles": [{"name": "a", "image": "i", "entrypoint": "m",}],}'
    assert read_app_file(write(tmp_path, text)).roles[0].image == "i"


def test_what_json_has_no_form_for_is_read_by_its_marks(tmp_path: Path) -> None:
    overlay = {"spec": {"tolerations": ({"operator": "Exists"},), "__del__:nodeSelector": None}, "metadata": {7: "x"}}
    role = {"name": "a", "image": "i", "entrypoint": "m", "metadata": write_value({"kubernetes": {"V1Pod": overlay}})}
    text = json.dumps({"name": "app", "roles": [role]})
    assert read_app_file(write(tmp_path, text, "app.json")).roles[0].pod_overlay == overlay


def test_what_asdict_makes_of_a_torchx_app_is_read(tmp_path: Path) -> None:
    specs = pytest.importorskip("torchx.specs")
    mounts = [specs.BindMount("/a", "/b"), specs.VolumeMount("c", "/d"), specs.DeviceMount("/dev/a", "/dev/a")]
    resource = specs.Resource(cpu=1, gpu=2, memMB=3)
    app = specs.AppDef("app", [specs.Role("a", "i", entrypoint="m", mounts=mounts, resource=resource, max_retries=2)])
    spec = read_app_file(write(tmp_path, json.dumps(dataclasses.asdict(app)), "app.json"))
    assert [mount.kind for mount in spec.roles[0].mounts] == ["bind", "volume", "device"]
    assert spec.roles[0].resource.memory_mb == 3
    assert list(check_job(spec)) == []


def test_unknown_keys_are_refused_with_path_and_line(tmp_path: Path) -> None:
    text = "name: app\nrole: x\nroles:\n- name: a\n  image: i\n  entrypoint: m\n  replicas: 2\n  resource: {cpus: 2}\n"
    found = problems_of(write(tmp_path, text))
    assert [problem.partition(":")[0] for problem in found] == ["role", "roles[0].replicas", "roles[0].resource.cpus"]
    assert "(line 2)" in found[0]
    assert "(line 7)" in found[1]
    assert "did you mean 'num_replicas'?" in found[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "line 1: not valid YAML"),
        ("name: a\nname: b\n", "line 2: the key 'name' stands twice"),
        ("roles:\n- env:\n    A: 1\n    A: 2\n", "line 4: the key 'A' stands twice"),
        ('{"name": "a",\n"name": "b"}', "the key 'name' stands twice"),
        ('{"name": "\x7f", "name": "b"}', "the key 'name' stands twice"),
        ("[" * 5000, "nested too deep"),
        ('{"a":' * 100000, "nested too deep"),
        ("name: a\n\troles: []", "line 2: not valid YAML"),
        ("? [a]\n: b", "a key must be text"),
        ("a: &x [*x]", "nested too deep"),
        ("- a\n- b", "must be a mapping with name and roles"),
        (
            "apiVersion: batch/v1\nkind: Job\nspec: {}",
            "is a Kubernetes object (batch/v1 Job), not an AppDef; write name",
        ),
        ("apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper", "(workload.codeflare.dev/v1beta2 AppWrapper)"),
        ("", "is not set, must be a mapping"),
        ("just text", "must be a mapping"),
        ("name: a\n---\nname: b", "not valid YAML"),
        ("a: !!python/object:os.system x", "cannot be read"),
    ],
)
def test_file_that_holds_no_app_says_where(tmp_path: Path, text: str, said: str) -> None:
    (found,) = problems_of(write(tmp_path, text))
    assert said in found


def test_missing_file_folder_and_binary_are_clear(tmp_path: Path) -> None:
    assert "No such file" in problems_of(tmp_path / "none.yaml")[0]
    assert "Is a directory" in problems_of(tmp_path)[0]
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in problems_of(binary)[0]


def test_merge_keys_are_followed(tmp_path: Path) -> None:
    text = "name: a\nroles:\n- &r {name: a, image: i, entrypoint: m}\n- {<<: *r, name: b}\n"
    assert [role.name for role in read_app_file(write(tmp_path, text)).roles] == ["a", "b"]


def test_numbers_from_other_languages_are_taken() -> None:
    spec = read_app_mapping(
        {
            "name": "a",
            "roles": [
                {
                    "name": "a",
                    "image": "i",
                    "entrypoint": "m",
                    "args": [1, 2.0, 0.5, True],
                    "env": {"A": 3.0},
                    "num_replicas": 2.0,
                    "resource": {"gpu": 1.0, "memory_mb": 5.0},
                    "port_map": {"http": 80.0},
                }
            ],
        }
    )
    (made,) = spec.roles
    assert made.args == ["1", "2", "0.5", "true"]
    assert made.env == {"A": "3"}
    assert (made.num_replicas, made.resource.gpu, made.port_map) == (2, 1, {"http": 80})
    assert list(check_job(spec)) == []


def test_null_is_the_same_as_absent() -> None:
    absent = dict.fromkeys(("args", "env", "num_replicas", "resource", "mounts", "pod_overlay", "tolerations"))
    spec = read_app_mapping({"name": "a", "roles": [{"name": "a", "image": "i", "entrypoint": "m", **absent}]})
    assert list(check_job(spec)) == []


@pytest.mark.parametrize("field", ["base_image", "workspace", "overrides"])
def test_torchx_fields_without_effect_are_refused_where_set(field: str) -> None:
    app: dict[str, Any] = {"name": "a", "roles": [{"name": "a", "image": "i", "entrypoint": "m", field: None}]}
    assert list(check_job(read_app_mapping(app))) == []
    app["roles"][0][field] = {"x": 1}
    with pytest.raises(InvalidJobError, match="has no effect here"):
        read_app_mapping(app)


def test_overlay_of_a_role_may_be_a_file(tmp_path: Path) -> None:
    overlay = write(tmp_path, "spec: {hostNetwork: true}", "overlay.yaml")
    role = {"name": "a", "image": "i", "entrypoint": "m", "pod_overlay": str(overlay)}
    assert read_app_mapping({"name": "a", "roles": [role]}).roles[0].pod_overlay == {"spec": {"hostNetwork": True}}
    role["pod_overlay"] = str(tmp_path / "none")
    with pytest.raises(InvalidJobError, match="cannot be read"):
        read_app_mapping({"name": "a", "roles": [role]})


@pytest.mark.parametrize(
    "role",
    [
        {"node_selector": {"zone": 1}},
        {"secret_env": {"TOKEN": {"name": 5, "key": "k"}}},
        {"retry_policy": True},
        {"metadata": {"torchx_pulumi": {"secret_mounts": [{"src": 5, "dst": "/s"}]}}},
    ],
)
def test_numbers_are_text_only_where_the_documentation_says_so(role: dict[str, Any]) -> None:
    with pytest.raises(InvalidJobError):
        read_app_mapping({"name": "a", "roles": [{"name": "r", "image": "i", "entrypoint": "e", **role}]})


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [("volcano", {"queue": "q", "layout": "replica"}), ("volcano", {"queue": "q", "layout": "role"}), ("mcad", {})],
)
def test_the_documented_overlay_reaches_the_container_of_every_replica(
    tmp_path: Path, scheduler: str, options: dict[str, Any]
) -> None:
    app = read_app_file(write(tmp_path, block("docs/pod-fields.md", "rdma")))
    job = render_app(app, scheduler, options, app_id="rdma-1")
    pods = (
        [task["template"] for task in job["spec"]["tasks"]]
        if scheduler == "volcano"
        else [item["generictemplate"] for item in job["spec"]["resources"]["GenericItems"][:-1]]
    )
    assert len(pods) == (2 if options.get("layout") == "role" else 4)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert container["workingDir"] == "/workspace"
        assert pod["spec"]["volumes"] == [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]
