"""Images that no Docker daemon builds: preview shows the digest, pods name it, and a running job keeps it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, Project, changes
from tests.e2e.stack_project import StackProject
from tests.e2e.test_multi_language import yaml_project

__all__ = ["yaml_project"]

pytestmark = pytest.mark.e2e

NO_DAEMON = "unix:///nonexistent/docker.sock"


@pytest.fixture
def base(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    return str(cluster.images["busybox"])


@pytest.fixture
def no_daemon(e2e_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of programs on a machine without a Docker daemon."""
    e2e_env |= {
        "DOCKER_HOST": NO_DAEMON,
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return e2e_env


@pytest.fixture
def stack(tmp_path: Path, no_daemon: dict[str, str], namespace: str) -> StackProject:
    root = tmp_path / "root"
    root.mkdir()
    return StackProject(root, no_daemon, namespace, config_dir="stacks")


def reference_in(text: str, repository: str) -> str:
    """Return the name of an image with its digest, as the text has it."""
    found = re.search(rf"{re.escape(repository)}:patched-[0-9a-f]{{40}}@sha256:[0-9a-f]{{64}}", text)
    assert found is not None, text
    return found[0]


def digest_of(reference: str) -> str | None:
    return RegistryClient().digest(parse_reference(reference))


def images_of(job: Any) -> set[str]:
    """Return the images in a job's pods and their environment."""
    containers = [task["template"]["spec"]["containers"][0] for task in job["spec"]["tasks"]]
    named = {item["value"] for each in containers for item in each["env"] if item["name"] == "TORCHX_IMAGE"}
    return named | {each["image"] for each in containers}


def test_the_digest_of_the_preview_runs_and_another_builder_changes_nothing(
    stack: StackProject, look: KubernetesCluster, base: str, cluster: Any
) -> None:
    repository = f"{cluster.registry}/{stack.namespace}"
    code = stack.root / "code"
    code.mkdir()
    (code / "train.sh").write_text("trap exit TERM; sleep 600 & wait\n")
    role = {"name": "trainer", "image": base, "entrypoint": "sh", "args": ["/train.sh"]}
    (stack.root / "app.yaml").write_text(yaml.safe_dump({"name": "train", "roles": [role]}))

    def configure(builder: str) -> None:
        stack.configure(
            appFile="app.yaml",
            options={"queue": "default", "namespace": stack.namespace},
            workspace="code",
            imageRepo=repository,
            builder=builder,
            waitFor="running",
            timeout=180,
        )

    def job() -> Any:
        return look.get(VOLCANO_JOB, stack.namespace, stack.output("app_id").partition(":")[2])

    configure("registry")
    text = stack.run("preview")
    reference = reference_in(text, repository)
    assert f"image {reference}: is pushed by up, without a Docker daemon" in text
    tag, _, digest = reference.partition("@")
    assert digest_of(tag) is None
    stack.up()
    assert digest_of(tag) == digest
    before = job()
    assert images_of(before) == {reference}
    assert json.loads(before["metadata"]["annotations"]["torchx-pulumi/image-digests"]) == {"trainer": digest}
    (pod,) = look.list(POD, stack.namespace)
    (status,) = pod["status"]["containerStatuses"]
    assert "running" in status["state"]
    assert digest in status["imageID"]
    (declared,) = stack.output("torchx")["declared"]["roles"]
    assert (declared["image"], declared["digest"]) == (reference, digest)
    for builder in ("registry", "docker"):
        configure(builder)
        assert changes(stack.up()).keys() == {"unchanged"}
        assert job()["metadata"]["uid"] == before["metadata"]["uid"]
        assert stack.output("torchx")["declared"]["roles"] == [declared]


YAML = """\
name: yaml
runtime: yaml
resources:
  image:
    type: torchx:index:PatchedImage
    properties:
      base: {base}
      workspace: ./code
      repository: {repository}
      buildArgs: {{TOKEN: {{fn::secret: s3cret-4711}}}}
      builder: {builder}
"""
JOB = """\
  {name}:
    type: torchx:index:VolcanoTrainingJob
    properties:
      queue: default
      namespace: {namespace}
      roles:
        - name: trainer
          image: ${{image.reference}}
          entrypoint: sleep
          args: [600]
          nodeSelector: {selector}
          tolerations: {tolerations}
"""
OUTPUTS = """\
outputs:
  reference: ${image.reference}
  digest: ${image.digest}
  one: ${one.jobName}
  two: ${two.jobName}
"""


def test_jobs_of_a_yaml_program_share_an_image_that_is_pushed_before_them(
    no_daemon: dict[str, str], yaml_project: Project, look: KubernetesCluster, base: str, cluster: Any
) -> None:
    project, repository = yaml_project, f"{cluster.registry}/{yaml_project.namespace}"
    code = project.folder / "code"
    code.mkdir()
    (code / "train.sh").write_text("echo one\n")

    def write(builder: str) -> None:
        fake = {"selector": FAKE_NODE["node_selector"], "tolerations": FAKE_NODE["tolerations"]}
        jobs = [JOB.format(name=name, namespace=project.namespace, **fake) for name in ("one", "two")]
        text = YAML.format(base=base, repository=repository, builder=builder)
        (project.folder / "Pulumi.yaml").write_text(text + "".join(jobs) + OUTPUTS)

    def jobs() -> list[Any]:
        return [look.get(VOLCANO_JOB, project.namespace, project.output(name)) for name in ("one", "two")]

    write("auto")
    reference = reference_in(project.run("preview"), repository)
    tag, _, digest = reference.partition("@")
    assert digest_of(tag) is None
    project.up()
    assert (project.output("reference"), project.output("digest")) == (reference, digest)
    assert digest_of(tag) == digest
    before = jobs()
    assert [images_of(job) for job in before] == [{reference}] * 2
    assert changes(project.up()).keys() == {"unchanged"}
    write("docker")
    assert changes(project.up()).keys() == {"unchanged"}
    assert [job["metadata"]["uid"] for job in jobs()] == [job["metadata"]["uid"] for job in before]
    assert (project.output("reference"), project.output("digest")) == (tag, digest)
    assert "s3cret-4711" not in json.dumps(project.resources())
    (code / "train.sh").write_text("echo two\n")
    write("podman")
    text = project.preview(fails=True)
    assert "image 'image': builder is 'podman', must be one of auto, registry, docker" in text
    assert ".py" not in text
