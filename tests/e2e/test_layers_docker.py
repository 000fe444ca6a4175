"""Images that are composed without a daemon, next to what dockerd builds of the same workspaces and Dockerfiles.

Ours are unpacked by a real containerd, as a node does. `TORCHX_PULUMI_LAYER_CASES` sets how many cases are tried, and
`TORCHX_PULUMI_SEED_FROM` which ones.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import ImagePlan, plan_patch
from torchx_pulumi.images.building.build import build
from torchx_pulumi.images.building.daemon import Daemon
from torchx_pulumi.images.building.progress import Progress
from torchx_pulumi.images.content.archive import stream
from torchx_pulumi.images.dockerfile import DEFAULT
from torchx_pulumi.images.layers import BaseImage, UnsupportedError, compose, read_base
from torchx_pulumi.images.oci import Descriptor, LayeredImage
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import ImageError

from tests.e2e.containerd_daemon import LocalContainerd, containerd
from tests.e2e.docker_daemon import docker_environment, docker_host
from tests.e2e.image_trees import FOLDER, Tree, tree_of_archive, tree_of_folder
from tests.e2e.layer_cases import Case, make_case
from tools.local_registry import LocalRegistry

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("TORCHX_PULUMI_LAYER_CASES", "20"))
SEED = int(os.environ.get("TORCHX_PULUMI_SEED_FROM", "0"))
PLATFORM = "linux/amd64"
LABELS = {"torchx-pulumi/case": "x"}
COMPARED = ("Env", "WorkingDir", "Entrypoint", "Cmd", "User", "Labels", "ExposedPorts")
OF_THE_DAEMON = (".dockerenv", "dev", "proc", "sys", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")
"""What dockerd adds to a container, not to the image."""
BASE_FOLDERS = {
    "etc": (0o755, 0),
    "usr": (0o755, 0),
    "usr/bin": (0o755, 0),
    "tmp": (0o1777, 0),
    "var": (0o755, 0),
    "app": (0o711, 5),
    "app/sub": (0o700, 6),
    "srv": (0o755, 0),
    "srv/data": (0o750, 33),
    "var/lib": (0o755, 0),
    "var/user": (0o700, 1000),
    "var/log": (0o2775, 4),
    "opt": (0o751, 0),
    "opt/real": (0o555, 9),
    "base": (0o755, 0),
    "base/in": (0o770, 12),
    "base/in/lib": (0o500, 3),
    "lib64": (0o755, 0),
}
BASE_LINKS = {"bin": "usr/bin", "link": "opt/real", "app/link": "../opt/real", "base/in/m.py": "/etc/passwd"}
BASE_FILES = ("etc/passwd", "usr/bin/sh", "app/a.py", "app/x", "srv/data/b.py", "base/in/src", "base/in/train.py")


@dataclass(frozen=True, kw_only=True)
class World:
    """The real parts."""

    daemon: Daemon
    containerd: LocalContainerd
    base: str
    """Pinned reference of the base."""
    client: RegistryClient
    folder: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="txl-"))
    changed = pytest.MonkeyPatch()
    try:
        with docker_host() as host, LocalRegistry(folder) as registry, containerd() as node:
            for name, value in docker_environment(host, folder).items():
                changed.setenv(name, value)
            daemon, client = Daemon.connect(), RegistryClient()
            try:
                yield World(
                    daemon=daemon,
                    containerd=node,
                    base=push_base(daemon, registry.address),
                    client=client,
                    folder=folder,
                )
            finally:
                daemon.close()
                client.close()
    finally:
        changed.undo()
        shutil.rmtree(folder)


def push_base(daemon: Daemon, address: str) -> str:
    """Push a base with folders of several modes and owners, links and files; return its pinned reference."""
    repository = f"{address}/base"
    settings = ["ENV PATH=/usr/bin", "ENV MODE=base", "WORKDIR /base/in", 'CMD ["sh"]', "LABEL of=base", "EXPOSE 1"]
    daemon.api.import_image_from_data(base_archive(), repository=repository, tag="1", changes=settings)
    for event in daemon.api.push(repository, tag="1", stream=True, decode=True):
        assert "error" not in event, event
    return str(daemon.api.inspect_image(f"{repository}:1")["RepoDigests"][0])


def base_archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path, (mode, owner) in BASE_FOLDERS.items():
            add(archive, path, tarfile.DIRTYPE, mode, owner)
        for path, target in BASE_LINKS.items():
            add(archive, path, tarfile.SYMTYPE, 0o777, 0, target=target)
        for path in BASE_FILES:
            add(archive, path, tarfile.REGTYPE, 0o640, 7, content=b"of the base")
    return made.getvalue()


def add(
    archive: tarfile.TarFile, path: str, kind: bytes, mode: int, owner: int, *, target: str = "", content: bytes = b""
) -> None:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.linkname, info.size = kind, mode, target, len(content)
    info.uid = info.gid = owner
    archive.addfile(info, io.BytesIO(content))


def plan_case(world: World, case: Case, workspace: Path) -> ImagePlan:
    return plan_patch(
        world.base,
        str(workspace),
        "registry.example.com/case",
        dockerfile=case.dockerfile,
        build_args=case.build_args,
        platform=PLATFORM,
        builder="docker",
        registry=world.client,
    )


def composed(world: World, plan: ImagePlan, case: Case, workspace: Path) -> tuple[LayeredImage, BaseImage | None]:
    base = None if case.is_scratch else read_base(world.client, plan.bases[0], PLATFORM)
    image = compose(
        base,
        text=DEFAULT if case.dockerfile is None else (workspace / case.dockerfile).read_text(),
        where=plan.dockerfile,
        build_args=plan.build_args,
        labels=LABELS,
        platform=PLATFORM,
        entries=plan.entries,
    )
    return image, base


def ours(world: World, image: LayeredImage, base: BaseImage | None) -> tuple[Tree, dict[str, Any]]:
    """Return the files that containerd makes of an image, and its configuration."""
    blobs = {blob.digest: b"".join(blob.read()) for blob in image.new_blobs}
    for layer in image.base_layers:
        assert base is not None
        found = Descriptor(media_type=layer.media_type, digest=layer.digest, size=layer.size)
        blobs[layer.digest] = world.client.read_blob(base.reference, found)
    with world.containerd.mounted(image.manifest, blobs) as root:
        tree = tree_of_folder(root)
    return tree, json.loads(blobs[image.new_blobs[-1].digest])["config"]


def theirs(world: World, plan: ImagePlan) -> tuple[Tree, dict[str, Any]]:
    """Return the files that the daemon builds, and its configuration."""
    api = world.daemon.api
    image = build(
        world.daemon,
        stream([*plan.sent_only, *plan.entries]),
        dockerfile=plan.dockerfile,
        build_args=plan.build_args,
        labels=LABELS,
        platform=PLATFORM,
        progress=Progress(lambda line: None, "case", {}),
        every_line=False,
    )
    container = api.create_container(image, command=["x"])["Id"]
    try:
        return tree_of_archive(io.BytesIO(b"".join(api.export(container)))), api.inspect_image(image)["Config"]
    finally:
        api.remove_container(container, force=True)


def difference(world: World, number: int) -> str | None:
    """Return how the images of a case differ. None: they are equal. Empty: it is refused, by both or for its links."""
    workspace = world.folder / f"case-{number}"
    workspace.mkdir()
    case = make_case(number, workspace)
    plan = plan_case(world, case, workspace)
    try:
        image, base = composed(world, plan, case, workspace)
    except UnsupportedError as error:
        # A folder of the workspace would hide a link of the base, or replaces a link of an earlier copy.
        return "" if all("in the place of" in reason for reason in error.reasons) else str(error)
    except ImageError as error:
        try:
            theirs(world, plan)
        except ImageError:
            return ""
        return f"only ours refuses it: {error}"
    found, config = ours(world, image, base)
    wanted, wanted_config = theirs(world, plan)
    folder = str(config.get("WorkingDir") or "/")
    for path in [each for each in wanted if each not in found]:
        # The runtime makes the working directory when a container starts.
        is_above = f"{os.path.normpath(folder)}/".startswith(f"/{path}/")
        if (is_above and wanted[path] == (FOLDER, 0o755, 0, 0, "")) or is_of_the_daemon(path, case):
            del wanted[path]
    paths = sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path))
    lines = [f"{path!r}: ours {found.get(path)}, dockerd's {wanted.get(path)}" for path in paths]
    for key in COMPARED:
        if (config.get(key) or None) != (wanted_config.get(key) or None):
            lines.append(f"{key}: ours {config.get(key)!r}, dockerd's {wanted_config.get(key)!r}")
    return "\n".join(lines) or None


def is_of_the_daemon(path: str, case: Case) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in OF_THE_DAEMON) or (
        case.is_scratch and path == "etc"
    )


@pytest.mark.extended
def test_the_same_files_and_configuration_as_of_dockerd(world: World) -> None:
    different, refused = {}, 0
    for number in range(SEED, SEED + CASES):
        workspace = world.folder / f"case-{number}"
        try:
            found = difference(world, number)
        except Exception as error:  # noqa: BLE001  a case that cannot be compared is a failure, and the others are tried
            found = f"{type(error).__name__}: {error}"
        refused += found == ""
        if found:
            text = (workspace / "Dockerfile.torchx").read_text() if (workspace / "Dockerfile.torchx").exists() else ""
            different[number] = f"{text}\n{found}"
        shutil.rmtree(workspace)
    assert not different, "\n\n".join(f"case {number}:\n{text}" for number, text in different.items())
    # Most cases are built, or little would have been compared.
    assert refused <= CASES / 10


def test_a_link_of_the_base_is_followed_by_dockerd_and_replaced_by_a_node(world: World, tmp_path: Path) -> None:
    """What decision 0020 says of destinations behind links, which the base alone knows."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY a.txt /link/\n")
    case = Case(dockerfile="Dockerfile.torchx")
    plan = plan_case(world, case, tmp_path)
    found, _ = ours(world, *composed(world, plan, case, tmp_path))
    wanted, _ = theirs(world, plan)
    assert wanted["link"][0] == "link"
    assert wanted["opt/real/a.txt"] == found["link/a.txt"]
    assert found["link"][0] == FOLDER


def test_a_folder_in_the_place_of_a_link_of_the_base_replaces_it_on_dockerd_and_on_a_node(
    world: World, tmp_path: Path
) -> None:
    """What docs/image-builders.md says of a workspace with `bin/` on a base whose `/bin` is a link."""
    for folder in ("bin", "link"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("a")
    (tmp_path / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY . /\n")
    case = Case(dockerfile="Dockerfile.torchx")
    plan = plan_case(world, case, tmp_path)
    with pytest.raises(UnsupportedError, match="puts 'bin' of the workspace in the place of /bin") as caught:
        composed(world, plan, case, tmp_path)
    assert "The builder docker replaces such a link as well" in caught.value.warnings[0]
    wanted, _ = theirs(world, plan)
    assert (wanted["bin"][0], wanted["link"][0]) == (FOLDER, FOLDER)
    # A link that only this base has is not known before.
    shutil.rmtree(tmp_path / "bin")
    found, _ = ours(world, *composed(world, plan_case(world, case, tmp_path), case, tmp_path))
    assert (found["bin"][0], found["link"], found["link/a.txt"]) == ("link", wanted["link"], wanted["link/a.txt"])


def test_a_daemon_that_pulls_a_layer_without_parents_makes_the_parents(world: World, tmp_path: Path) -> None:
    """dockerd's storage does not look at the layers below, as containerd does."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "Dockerfile.torchx").write_text(
        "ARG IMAGE\nFROM $IMAGE\nCOPY a.txt /app/sub/\nCOPY a.txt /new/deep/\nCOPY a.txt /srv/data/x/y/\n"
    )
    case = Case(dockerfile="Dockerfile.torchx")
    plan = plan_case(world, case, tmp_path)
    image, base = composed(world, plan, case, tmp_path)
    target = parse_reference(f"{world.base.partition('/')[0]}/pulled:1")
    assert push_image(world.client, image, target, progress=lambda line: None) == image.manifest.digest
    for event in world.daemon.api.pull(f"{target.name}", tag="1", stream=True, decode=True):
        assert "error" not in event, event
    container = world.daemon.api.create_container(f"{target.name}:1", command=["x"])["Id"]
    try:
        pulled = tree_of_archive(io.BytesIO(b"".join(world.daemon.api.export(container))))
    finally:
        world.daemon.api.remove_container(container, force=True)
    found, _ = ours(world, image, base)
    different = {path: pulled.get(path) for path, file in found.items() if pulled.get(path) != file}
    assert different == dict.fromkeys(("app", "app/sub", "srv/data"), (FOLDER, 0o755, 0, 0, ""))
