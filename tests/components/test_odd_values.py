"""H2: arguments of odd types are refused by name, never taken apart and never written as Python shows them."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob
from torchx_pulumi_components.patched_image import PatchedImage

from tests.components.test_identity import NEEDED

ROLE = {"name": "trainer", "image": "app:1", "entrypoint": "python"}

ODD: dict[str, tuple[dict[str, Any], str]] = {
    "bytes as a list": ({"plugins": {"svc": b"--x"}}, "plugins[svc]: must be a list of texts, found bytes"),
    "bytes as names": ({"image_secrets": b"ab"}, "image_secrets: must be a list, found bytes"),
    "a set as text": ({"plugins": {"svc": [{"a", "b"}]}}, "plugins[svc]: must be a text, found set"),
    "a set as a name": ({"queue": frozenset("a")}, "queue: must be a text, found frozenset"),
    "bytes in a mapping": ({"labels": {"team": b"a"}}, "labels[team]: must be a text, found bytes"),
    "an endless number": ({"efa_device_count": 10**400}, "efa_device_count: must be a whole number, found int"),
    "a number as an image": ({"roles": [{**ROLE, "image": 5.0}]}, "roles[0].image: must be a text, found float"),
    "a number as a name": ({"roles": [{**ROLE, "name": 5}]}, "roles[0].name: must be a text, found int; write it in"),
    "a text of too many digits": ({"labels": {"a": 10**5000}}, "labels[a]: must be a text, found int of thousands"),
    "an argument of too many digits": ({"roles": [{**ROLE, "args": [10**5000]}]}, "roles[0].args: must be a text"),
    "two spellings": (
        {"wait_for": "running", "waitFor": "created"},
        "wait_for: is given twice, as wait_for and waitFor",
    ),
    "two spellings in a role": (
        {"roles": [{**ROLE, "minReplicas": 1, "min_replicas": 1}]},
        "roles[0].min_replicas: is given twice, as min_replicas and minReplicas; give one of them",
    ),
    "a number of too many digits": ({"efa_device_count": 10**5000}, "efa_device_count: must be a whole number"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_argument_of_an_odd_type_is_refused_by_name(engine: Any, name: str) -> None:
    args, message = ODD[name]
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", {"queue": "default", "roles": [ROLE], **args}))
    assert message in str(caught.value)
    assert engine.mocks.resources == []


NUMBERS: list[tuple[Any, str]] = [
    (80, "80"),
    (80.0, "80"),
    (80.5, "80.5"),
    (3e5, "300000"),
    (2**60, "1152921504606846976"),
    ("80.0", "80.0"),
    # As in YAML and JSON, and as other languages write it.
    (True, "true"),
    (False, "false"),
]


@pytest.mark.parametrize("is_output", [False, True])
@pytest.mark.parametrize(("given", "text"), NUMBERS)
def test_a_number_in_a_field_of_text_is_written_in_one_way(
    engine: Any, given: Any, text: str, *, is_output: bool
) -> None:
    def program() -> None:
        value = pulumi.Output.from_input(given) if is_output else given
        role = {**ROLE, "args": ["-p", value], "env": {"PORT": value}, "node_selector": {"a": value}}
        more = {"labels": {"a": value}, "annotations": {"a": value}}
        with cluster_for_tests(FakeCluster(NEEDED)):
            VolcanoTrainingJob("train", {"queue": "default", "roles": [role], **more})

    engine.run(program)
    job = engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job").inputs
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    (container,) = pod["containers"]
    found = [container["command"][-1], container["env"][0]["value"], pod["nodeSelector"]["a"]]
    found += [job["metadata"][part]["a"] for part in ("labels", "annotations")]
    assert found == [text] * 5


# Without a value, which would belong to the event loop of no test.
OUTPUT: Any = object.__new__(pulumi.Output)
TYPESCRIPT = "Calling [toString] on an [Output<T>] is not supported.\n\nTo get the value of an Output<T> as ..."
MADE = {
    "Python": f"--n={OUTPUT}",
    "Python, in a list": f"{[OUTPUT]}",
    "TypeScript": f"a-{TYPESCRIPT}",
    "TypeScript, JSON": TYPESCRIPT.replace("toString", "toJSON"),
    ".NET": TYPESCRIPT.replace("toString", "ToString"),
    "Go": "a-{0xc000498180}",
    "Go, %s": "a-{%!s(*internal.OutputState=0xc000498180)}",
    "Java": "a-com.pulumi.core.internal.OutputInternal@1b2c3d",
}


@pytest.mark.parametrize("text", MADE.values(), ids=MADE)
def test_a_text_that_was_made_of_an_output_is_refused_wherever_it_is(engine: Any, text: str) -> None:
    roles: dict[str, dict[str, Any]] = {
        ".name: ": {"name": text},
        ".image: ": {"image": text},
        ".entrypoint: ": {"entrypoint": text},
        ".args[1]: ": {"args": ["a", text]},
        ".env.A: ": {"env": {"A": text}},
        ".env: has a key that ": {"env": {text: "a"}},
        ".secret_env.A.name: ": {"secret_env": {"A": {"name": text, "key": "k"}}},
        ".num_replicas: ": {"num_replicas": text},
        ".retry_policy: ": {"retry_policy": text},
        ".resource.cpu: ": {"resource": {"cpu": text}},
        ".mounts[0].src: ": {"mounts": [{"kind": "volume", "src": text, "dst": "/a"}]},
        ".tolerations[0].key: ": {"tolerations": [{"key": text}]},
        ".node_selector.a: ": {"node_selector": {"a": text}},
        ".pod_overlay: ": {"pod_overlay": text},
        ".pod_overlay.spec.nodeName: ": {"pod_overlay": {"spec": {"nodeName": text}}},
    }
    options = ("queue", "namespace", "job_name", "priority_class", "rerun", "wait_for", "log_archive", "kubeconfig")
    args: Any = {
        **dict.fromkeys(options, text),
        "labels": {"a": text},
        "annotations": {"a": text},
        "plugins": {"svc": [text]},
        "image_secrets": [text],
        "roles": [{**ROLE, **changes} for changes in roles.values()],
    }
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", args))
    paths = [f"{name}: " for name in (*options, "labels.a", "annotations.a", "plugins.svc[0]", "image_secrets[0]")]
    paths += [f"roles[{index}]{path}" for index, path in enumerate(roles)]
    lines = [line.strip().removeprefix("- ") for line in str(caught.value).splitlines()[1:]]
    for path in paths:
        (line,) = [line for line in lines if line.startswith(path)]
        assert "is the text of an Output" in line
        assert "pulumi.Output.concat" in line
    assert text not in str(caught.value)
    assert engine.mocks.resources == []


def test_an_output_in_the_text_of_an_app_or_a_name_is_refused(engine: Any) -> None:
    app = JobSpec(name="app", roles=[RoleSpec(name="a", image="i", entrypoint="e", env={"A": f"{OUTPUT}"})])
    with pytest.raises(pulumi.RunError, match=r"roles\[0\]\.env\.A: is the text of an Output"):
        engine.run(lambda: VolcanoTrainingJob.from_app("train", app, queue="default"))
    with pytest.raises(pulumi.RunError, match="name: is the text of an Output"):
        engine.run(lambda: VolcanoTrainingJob(f"a-{OUTPUT}", {"queue": "default", "roles": [ROLE]}))


def test_an_output_in_the_text_of_an_image_is_refused(engine: Any) -> None:
    with pytest.raises(pulumi.RunError, match=r"labels\.a: is the text of an Output"):
        engine.run(lambda: PatchedImage("i", {"base": "a:1", "workspace": ".", "labels": {"a": f"{OUTPUT}"}}))


def test_all_problems_of_a_job_that_can_be_read_are_in_one_message(engine: Any) -> None:
    wrong = {**ROLE, "image": "A B:1", "num_replicas": 0, "args": ["${app_idd}"], "resource": {"cpu": -2, "gpu": -3}}
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", {"queue": "No Queue", "roles": [wrong]}))
    for path in ("image", "num_replicas", "args[0]", "resource.cpu", "resource.gpu"):
        assert f"roles[0].{path}: " in str(caught.value)
    assert "queue: " in str(caught.value)
