"""Images that the Docker daemon builds: the name, what is built and pushed, and what is said if it does not work."""

from __future__ import annotations

import gc
import json
import re
import socket
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from torchx_pulumi import images
from torchx_pulumi.images.building.daemon import Daemon
from torchx_pulumi.images.patching import ImageBuilder
from torchx_pulumi.images.plan import ImagePlan
from torchx_pulumi.images.planning import plan_patch
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.retries import Retries
from torchx_pulumi.model.errors import ImageError, ImageOptionError

from tests.unit.images.fake_docker import FakeDocker

BASE_DIGEST = "sha256:" + "1" * 64
PUSHED = "sha256:" + "e" * 64


class KnownRegistry:
    """Knows what it is told."""

    def __init__(self, **digests: str) -> None:
        self.digests = {"base:1": BASE_DIGEST, **digests}
        self.down = False

    def digest(self, reference: Reference) -> str | None:
        if self.down:
            raise ImageError(f"registry {reference.registry}: cannot be reached", retryable=True)
        return self.digests.get(f"{reference.name}:{reference.version}")

    def manifest(self, reference: Reference) -> None:
        """It has digests only."""


@pytest.fixture
def registry_() -> KnownRegistry:
    return KnownRegistry()


@pytest.fixture
def told() -> list[str]:
    return []


def plan(workspace: Path, registry: KnownRegistry, **given: Any) -> ImagePlan:
    base, repository = given.pop("base", "base:1"), given.pop("repository", "reg.example.com/app")
    return plan_patch(base, str(workspace), repository, registry=registry, **{"builder": "docker", **given})  # type: ignore[arg-type]


@pytest.fixture
def workshop(registry_: KnownRegistry, docker: FakeDocker, told: list[str]) -> ImageBuilder:
    docker.remote["base:1"] = BASE_DIGEST
    retries = Retries(tries=3, first_wait_s=1.0, pause=lambda _: None)
    return ImageBuilder(registry=registry_, report=told.append, client=docker, retries=retries)


def test_a_reference_is_known_without_a_daemon(workspace: Path, registry_: KnownRegistry) -> None:
    first = plan(workspace, registry_)
    assert first.reference.startswith("reg.example.com/app:")
    assert re.fullmatch("patched-[0-9a-f]{40}", first.tag)
    assert plan(workspace, registry_).reference == first.reference


@pytest.mark.parametrize(
    "change",
    [
        {"build_args": {"A": "1"}},
        {"labels": {"a": "1"}},
        {"platform": "linux/s390x"},
        {"base": f"base@sha256:{'2' * 64}"},
        {"file": ("train.py", "print('two')")},
        {"file": ("new.py", "")},
        {"file": ("Dockerfile.torchx", "FROM base:1\nRUN true")},
        {"mode": 0o755},
    ],
    ids=str,
)
def test_whatever_makes_another_image_makes_another_tag(
    workspace: Path, registry_: KnownRegistry, change: dict[str, Any]
) -> None:
    first = plan(workspace, registry_)
    if "file" in change:
        name, text = change.pop("file")
        (workspace / name).write_text(text)
    if "mode" in change:
        (workspace / "train.py").chmod(change.pop("mode"))
    assert plan(workspace, registry_, **change).tag != first.tag


def test_a_base_that_moved_makes_another_tag(workspace: Path, registry_: KnownRegistry) -> None:
    first = plan(workspace, registry_)
    registry_.digests["base:1"] = "sha256:" + "2" * 64
    assert plan(workspace, registry_).tag != first.tag


def test_a_pinned_base_has_the_tag_of_its_name(workspace: Path, registry_: KnownRegistry) -> None:
    assert plan(workspace, registry_).tag == plan(workspace, registry_, base=f"base@{BASE_DIGEST}").tag


def test_a_base_that_is_not_used_is_not_asked_for(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    (workspace / "Dockerfile.torchx").write_text("FROM scratch\nCOPY . /")
    made = workshop.build([plan(workspace, registry_, base="no.such/base:1")])
    assert made[0].pushed
    assert docker.pulled == []


def test_an_unknown_base_is_refused_with_what_everybody_said(workspace: Path, registry_: KnownRegistry) -> None:
    with pytest.raises(ImageError) as caught:
        plan(workspace, registry_, base="gone:1")
    assert "does not have gone:1" in str(caught.value)
    assert "Docker daemon cannot be reached" in str(caught.value)


def test_a_base_of_the_daemon_alone_goes_by_its_id(
    workspace: Path, registry_: KnownRegistry, docker: FakeDocker, workshop: ImageBuilder
) -> None:
    docker.images["mine:1"] = {"Id": "sha256:" + "c" * 64, "RepoDigests": []}
    made = plan(workspace, registry_, base="mine:1", client=docker)
    assert [base.digest for base in made.bases] == ["sha256:" + "c" * 64]
    assert workshop.build([made])[0].built
    docker.images["mine:1"] = {"Id": "sha256:" + "d" * 64, "RepoDigests": []}
    docker.images.pop(made.reference)
    with pytest.raises(ImageError, match="changed on the daemon since it was planned"):
        workshop.build([made])


def test_triggers_of_a_base_that_the_tag_does_not_cover_are_refused(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    known = {"Id": "sha256:" + "c" * 64, "RepoDigests": [f"base@{BASE_DIGEST}"]}
    docker.images["base:1"] = {**known, "Config": {"OnBuild": ["ARG IMAGE", "ENV ON=$IMAGE"]}}
    with pytest.raises(ImageError, match="its ONBUILD instructions use IMAGE"):
        workshop.build([plan(workspace, registry_)])
    # With the registry down, the daemon says what the base has.
    registry_.down = True
    covered = plan(workspace, registry_, client=docker)
    docker.images["base:1"] = {**known, "Config": {"OnBuild": ["RUN true"]}}
    assert plan(workspace, registry_, client=docker).tag != covered.tag


def test_with_the_registry_down_a_pulled_base_keeps_its_tag(
    workspace: Path, registry_: KnownRegistry, docker: FakeDocker
) -> None:
    first = plan(workspace, registry_)
    docker.images["base:1"] = {"Id": "sha256:" + "c" * 64, "RepoDigests": [f"base@{BASE_DIGEST}"]}
    registry_.down = True
    assert plan(workspace, registry_, client=docker).tag == first.tag


def test_an_image_is_built_once_and_pushed_under_its_content(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    one = plan(workspace, registry_, build_args={"A": "x"}, labels={"team": "vision"})
    (made,) = workshop.build([one, plan(workspace, registry_, build_args={"A": "x"}, labels={"team": "vision"})])
    assert (made.reference, made.digest, made.built, made.pushed) == (one.reference, PUSHED, True, True)
    (built,) = docker.built
    assert built["buildargs"] == {"IMAGE": "base:1", "WORKSPACE": "workspace", "A": "x"}
    assert built["names"] == ["Dockerfile.torchx", "train.py"]
    assert (built["labels"]["team"], built["labels"]["torchx-pulumi/content"]) == ("vision", one.address)
    assert docker.pushed == [one.reference]
    assert docker.pulled == ["base:1"]


def test_the_platform_of_the_tag_is_what_is_pulled_and_built(
    workspace: Path,
    registry_: KnownRegistry,
    workshop: ImageBuilder,
    docker: FakeDocker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    ours = plan(workspace, registry_)
    assert ours.platform == "linux/amd64"
    assert ours.tag == plan(workspace, registry_, platform="linux/amd64").tag
    other = {"Os": "linux", "Architecture": "arm64", "RepoDigests": [f"base@{BASE_DIGEST}"]}
    docker.images["base:1"] = {"Id": "sha256:" + "a" * 64, **other}
    # What an earlier release built of it, and did not come to push.
    docker.images[ours.reference] = {"Id": "x", **other, "Config": {"Labels": {"torchx-pulumi/content": ours.address}}}
    assert workshop.build([ours])[0].built
    assert docker.pulled_for == ["linux/amd64"]
    assert docker.built[0]["platform"] == "linux/amd64"


def test_an_image_from_scratch_is_not_taken_from_the_cache_of_another_platform(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    (workspace / "Dockerfile.torchx").write_text("FROM scratch\nCOPY . /\n")
    docker.cached_for = "linux/s390x"
    workshop.build([plan(workspace, registry_, platform="linux/arm64")])
    assert [each["nocache"] for each in docker.built] == [False, True]


def test_a_base_of_another_platform_that_only_the_daemon_has_is_refused(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    docker.images["mine:1"] = {"Id": "sha256:" + "c" * 64, "Os": "linux", "Architecture": "s390x"}
    with pytest.raises(ImageError, match=r"only the daemon has it, for linux/s390x.*set platform to linux/s390x"):
        workshop.build([plan(workspace, registry_, base="mine:1", platform="linux/arm64", client=docker)])
    made = plan(workspace, registry_, base="mine:1", platform="linux/s390x", client=docker)
    assert workshop.build([made])[0].built


def test_the_dockerfile_may_be_named_from_the_folder(workspace: Path, registry_: KnownRegistry) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub/Dockerfile").write_text("FROM base:1\nCOPY . /\n")
    tags = [plan(workspace, registry_, dockerfile=name).tag for name in ("sub/Dockerfile", "./sub//Dockerfile")]
    assert tags[0] == tags[1]


@pytest.mark.parametrize("every_line", [True, False])
def test_all_lines_of_a_build_are_told_if_asked_for(
    workspace: Path,
    registry_: KnownRegistry,
    workshop: ImageBuilder,
    docker: FakeDocker,
    told: list[str],
    every_line: bool,
) -> None:
    docker.build_events = [{"stream": "Step 1/1 : RUN make\n"}, *({"stream": f"line {n}\n\n"} for n in range(9))]
    replace(workshop, every_line=every_line).build([plan(workspace, registry_)])
    lines = [line.partition(": ")[2] for line in told if ": line " in line]
    assert lines == ([f"line {n}" for n in range(9)] if every_line else [])


def test_an_image_says_which_torchx_it_was_built_with(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    import torchx

    workshop.build([plan(workspace, registry_)])
    assert docker.built[0]["labels"]["torchx.pytorch.org/version"] == torchx.__version__


def test_what_the_registry_has_is_neither_built_nor_pushed(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    one = plan(workspace, registry_)
    registry_.digests[one.reference] = PUSHED
    (made,) = workshop.build([one])
    assert (made.digest, made.built, made.pushed, docker.built, docker.pushed) == (PUSHED, False, False, [], [])


def test_after_a_push_that_broke_off_only_the_push_is_done_again(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    one = plan(workspace, registry_)
    docker.push_events = [[{"status": "Pushing", "id": "layer"}]] * 3
    with pytest.raises(ImageError, match="ended before the registry"):
        workshop.build([one])
    assert len(docker.pushed) == 3
    (made,) = workshop.build([one])
    assert (made.built, made.pushed, len(docker.built)) == (False, True, 1)


def test_a_push_that_stumbles_is_tried_again(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker, told: list[str]
) -> None:
    docker.push_events = [[{"error": "received unexpected HTTP status: 503 Service Unavailable"}]]
    assert workshop.build([plan(workspace, registry_)])[0].pushed
    assert any("trying again" in line for line in told)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("denied: requested access to the resource is denied", "docker login"),
        ("unauthorized: authentication required", "docker login"),
        ("write /data: no space left on device", "docker system prune"),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", "the registry runs"),
    ],
)
def test_a_push_that_fails_says_what_to_do(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker, said: str, hint: str
) -> None:
    docker.push_events = [[{"error": said}]] * 3
    with pytest.raises(ImageError, match=hint) as caught:
        workshop.build([plan(workspace, registry_)])
    assert said in str(caught.value)


def test_a_failing_step_is_named_with_its_last_lines(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    docker.build_events = [
        {"stream": "Step 1/2 : FROM $IMAGE\n"},
        {"stream": "before\n"},
        {"stream": "Step 2/2 : RUN make\n"},
        *({"stream": f"line {number}\n"} for number in range(30)),
        {"error": "The command '/bin/sh -c make' returned a non-zero code: 2"},
    ]
    with pytest.raises(ImageError) as caught:
        workshop.build([plan(workspace, registry_)])
    text = str(caught.value)
    assert "failed in step 2/2: RUN make" in text
    assert "non-zero code: 2" in text
    assert "line 29" in text
    assert "line 9\n" not in text
    assert "before" not in text
    assert docker.pushed == []
    assert not [name for name in docker.images if name.startswith("reg.example.com")]


def test_values_of_build_arguments_are_told_nowhere(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker, told: list[str]
) -> None:
    secret = "hunter2-token"
    docker.build_events = [
        {"stream": f"Step 1/1 : RUN curl -H {secret}\n"},
        {"stream": f"got {secret}\n"},
        {"error": f"curl {secret} failed"},
    ]
    one = plan(workspace, registry_, build_args={"TOKEN": secret})
    with pytest.raises(ImageError) as caught:
        workshop.build([one])
    everything = f"{caught.value} {told} {one!r} {docker.built[0]['labels']} {one.reference}"
    assert secret not in everything
    assert "***" in str(caught.value)


@pytest.mark.parametrize(
    "secret",
    [
        "pa$$word-Xk3v9Qz7Lm2p",
        "tok-${app_id}-Xk3v9Qz7Lm2p",
        "918273645546372819",
        "Xk3v9Qz7Lm2p-\u2603\u65e5",
        "line one Xk3v9Qz7\nline two Lm2pQz7\n",
        '{"password": "Xk3v9Qz7Lm2p"}',
        "it's \"quoted\" 'Xk3v9Qz7Lm2p'",
        "100%25 %s Xk3v9Qz7Lm2p",
        "WGszdjlRejdMbTJwWGszdjlR",
        "`id`; $(true) | Xk3v9Qz7Lm2p",
    ],
)
def test_build_arguments_of_hostile_shapes_are_told_nowhere(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker, told: list[str], secret: str
) -> None:
    forms = (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret), secret.encode().hex())
    docker.build_events = [
        *({"stream": f"Step 1/1 : RUN curl -H {form}\ngot {form}\n"} for form in forms),
        {"error": f"curl {' '.join(forms)} failed"},
    ]
    one = plan(workspace, registry_, build_args={"TOKEN": secret})
    with pytest.raises(ImageError) as caught:
        workshop.build([one])
    everything = f"{caught.value} {told} {one!r} {docker.built[0]['labels']} {one.reference}"
    assert not [form for form in forms if form in everything]


def test_a_base_that_moved_between_plan_and_build_is_refused(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    docker.remote["base:1"] = "sha256:" + "9" * 64
    with pytest.raises(ImageError, match="is another image now"):
        workshop.build([plan(workspace, registry_)])
    assert docker.built == []


def test_a_pull_that_is_limited_is_tried_again(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    docker.pull_errors = ["toomanyrequests: You have reached your pull rate limit"] * 2
    assert workshop.build([plan(workspace, registry_)])[0].built
    assert docker.pulled == ["base:1"] * 3
    docker.images.clear()
    docker.pull_errors = ["toomanyrequests: You have reached your pull rate limit"] * 3
    with pytest.raises(ImageError, match="cannot be pulled: toomanyrequests"):
        workshop.build([plan(workspace, registry_)])


def test_a_stale_base_on_the_daemon_is_pulled_anew(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    docker.images["base:1"] = {"Id": "sha256:" + "0" * 64, "RepoDigests": [f"base@sha256:{'0' * 64}"]}
    workshop.build([plan(workspace, registry_)])
    assert docker.pulled == ["base:1"]
    docker.pulled.clear()
    (workspace / "more.py").touch()
    workshop.build([plan(workspace, registry_)])
    assert docker.pulled == []


def test_all_images_that_fail_are_in_one_message(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    registry_.digests["other:1"] = BASE_DIGEST
    docker.remote.clear()
    with pytest.raises(ImageError, match=r"(?s)2 images cannot be built.*base:1.*other:1"):
        workshop.build([plan(workspace, registry_), plan(workspace, registry_, base="other:1", build_args={"A": "1"})])


def test_without_a_repository_an_image_stays_here(
    workspace: Path, registry_: KnownRegistry, workshop: ImageBuilder, docker: FakeDocker
) -> None:
    one = plan(workspace, registry_, repository=None)
    assert one.repository is None
    assert one.reference.startswith("torchx-pulumi-local:")
    assert [(made.built, made.pushed) for made in workshop.build([one])] == [(True, False)]
    assert [(made.built, made.pushed) for made in workshop.build([one])] == [(False, False)]
    assert docker.pushed == []
    with pytest.raises(ImageOptionError, match="set image_repo"):
        images.refuse_local_only([one.reference], shared_daemon=False)
    images.refuse_local_only([one.reference], shared_daemon=True)
    images.refuse_local_only(["busybox:1"], shared_daemon=False)


def test_local_images_are_pushed_as_torchx_names_them(workshop: ImageBuilder, docker: FakeDocker) -> None:
    image = "sha256:" + "5" * 64
    docker.images[image] = {"Id": image}
    repository, tag = images.plan_push(image, "reg.example.com:5000/app")
    assert (repository, tag) == ("reg.example.com:5000/app", "5" * 64)
    assert workshop.push_local({image: (repository, tag)}) == {f"{repository}:{tag}": PUSHED}
    with pytest.raises(ImageError, match="does not have it"):
        workshop.push_local({"sha256:" + "6" * 64: (repository, "6" * 64)})


def test_a_local_image_without_a_repository_is_the_error_that_torchx_raises() -> None:
    with pytest.raises(KeyError, match="must specify the image repository via `image_repo`"):
        images.plan_push("sha256:" + "5" * 64, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"build_args": {"IMAGE": "x"}}, "IMAGE is set by torchx-pulumi"),
        ({"build_args": {"A": 1}}, "a value must be text"),
        ({"dockerfile": "sub/Dockerfile"}, "is not a file of the workspace"),
        ({"dockerfile": ""}, "dockerfile is empty; give its path"),
        ({"repository": "reg.example.com/app:1"}, "has a tag"),
        ({"repository": ""}, "is empty"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    workspace: Path, registry_: KnownRegistry, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ImageError, match=said):
        plan(workspace, registry_, **given)


def test_without_a_daemon_the_build_says_so(workspace: Path, registry_: KnownRegistry) -> None:
    with pytest.raises(ImageError, match="Docker daemon cannot be reached"):
        ImageBuilder(registry=registry_, report=print).build([plan(workspace, registry_)])


def test_a_socket_without_a_daemon_is_said_and_none_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind("ended")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/ended")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ImageError, match=r"cannot be reached \(.*/ended: Connection refused\); start it"):
            Daemon.connect()
        gc.collect(1)  # what this test made is young
    assert not caught


def test_importing_costs_neither_docker_nor_requests() -> None:
    import subprocess
    import sys

    code = "import sys, torchx_pulumi.images; sys.exit(any(m in sys.modules for m in ('docker', 'requests', 'fsspec')))"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "sdk"}, cwd=Path(__file__).parents[3])
