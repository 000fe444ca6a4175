"""Checks of this machine: packages, Pulumi, its provider, Docker, the registry, the state folder, the passphrase."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from torchx_pulumi.model.errors import ImageError, TorchxPulumiError
from torchx_pulumi.model.finding import Finding, ok, problem, skipped
from torchx_pulumi.model.fleet_package import CORE, FLEET
from torchx_pulumi.model.pulumi_pieces import examine_sdk
from torchx_pulumi.model.versions import (
    PROVIDER_ADVICE,
    SDK_ADVICE,
    VERSIONS,
    provider_problem,
    read_version,
    version_text,
)
from torchx_pulumi.storage.files import is_file, is_folder, path_exists

MIN_FREE_BYTES = 100_000_000
"""A state folder with less free space is a problem."""

Run = Callable[[str, str], str | None]
"""Runs a program with arguments separated by spaces. Returns its output; None: it is not on PATH, or failed."""

EXECUTABLE = "pulumi-resource-kubernetes"

_METHOD = "/pulumirpc.ResourceProvider/GetPluginInfo"


def run_program(program: str, arguments: str, *, timeout_s: float = 60.0) -> str | None:
    """Return the output of a program. None: it is not on PATH, or failed.

    Raises:
        TorchxPulumiError: It exceeded `timeout_s`.
    """
    found = shutil.which(program)
    if found is None:
        return None
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [found, *arguments.split()],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise TorchxPulumiError(
            f"`{program} {arguments}` did not answer in {timeout_s:g} s; run it by hand, or give it more time with "
            "--timeout"
        ) from error
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def check_packages(versions: Mapping[str, str]) -> Finding:
    """Check that the packages of this project, by their names, have one version."""
    name = "packages"
    core, fleet = versions.get(CORE), versions.get(FLEET)
    if core is not None and fleet not in (None, core):
        text = f"{FLEET} {fleet} needs {CORE} {fleet}, found {core}"
        return problem(name, text, f"run `pip install '{CORE}[fleet]=={core}'`")
    return ok(name, ", ".join(map(" ".join, versions.items())) or "a checkout that is not installed")


def check_pulumi(run: Run) -> Finding:
    """Check the Pulumi CLI and its version."""
    name, known = "pulumi", VERSIONS["pulumi"]
    wanted = version_text(known.oldest)
    printed = run("pulumi", "version")
    if printed is None:
        return problem(
            name,
            "the Pulumi CLI is not on PATH, or does not start",
            f"install version {wanted} or later as https://www.pulumi.com/docs/install says",
        )
    version = read_version(printed)
    if version is None:
        return problem(name, f"`pulumi version` printed {printed.strip()[:80]!r}", "install the CLI again")
    if version < known.oldest:
        return problem(name, f"version {version_text(version)} is too old", f"install version {wanted} or later")
    return ok(name, f"version {version_text(version)}", known.warning(version))


def check_sdk(version: str) -> Finding:
    """Check the version of the Python package `pulumi`, which jobs in a program need."""
    name, check = "pulumi-sdk", examine_sdk(version)
    return problem(name, check.problem, SDK_ADVICE) if check.problem else ok(name, f"version {version}", check.warning)


def check_provider(wanted: str, run: Run, ask_on_path: Callable[[], str | None]) -> Finding:
    """Check Pulumi's Kubernetes provider, on PATH or among the plugins.

    Args:
        wanted: Version that a launch takes, unless PATH has one.
        run: Runs the Pulumi CLI.
        ask_on_path: Returns the version of the provider on PATH. None: PATH has none.
    """
    name, known = "kubernetes-provider", VERSIONS["kubernetes-provider"]
    oldest = version_text(known.oldest)
    # A launch checks this version also if PATH has another one.
    version = read_version(wanted)
    if version and (refusal := provider_problem(version)):
        return problem(name, refusal, PROVIDER_ADVICE)
    printed = ask_on_path()
    if printed is None:
        if wanted not in plugins(run, "kubernetes"):
            return skipped(
                name,
                f"version {wanted} is not installed yet; Pulumi downloads it at the first launch, about 30 MB",
                f"without a way to get.pulumi.com: put {EXECUTABLE} {oldest} or later on PATH",
            )
        return ok(name, f"plugin version {wanted}", known.warning(version) if version else None)
    version = read_version(printed)
    if version is None:
        return problem(
            name, f"the provider on PATH gives {printed[:80]!r} as its version", f"install {oldest} or later"
        )
    if refusal := provider_problem(version):
        return problem(name, refusal, f"put {EXECUTABLE} {oldest} or later on PATH, or none")
    return ok(name, f"version {printed} on PATH", known.warning(version))


def check_docker(ping: Callable[[], None]) -> Finding:
    """Check the Docker daemon, which some patched images need."""
    name = "docker"
    try:
        ping()
    except ImageError as error:
        text = f"only patched images whose Dockerfile needs the builder `docker` need a daemon: {error}"
        return skipped(name, text, "`torchx-pulumi image plan` says which builder an image needs")
    return ok(name, "the daemon answers")


def check_registry(ask: Callable[[str], None], image_repo: str | None) -> Finding:
    """Check that the repository for patched images can be read."""
    name = "registry"
    if image_repo is None:
        return skipped(name, "image_repo is not set, so images are not pushed", "name one with --image-repo")
    try:
        ask(image_repo)
    except ImageError as error:
        return problem(name, str(error), "check the name, and that this machine may reach and use the registry")
    return ok(name, f"{image_repo} answers")


def check_state_folder(folder: Path, free_bytes: Callable[[Path], int] | None = None) -> Finding:
    """Check the folder with the records of this machine's launches."""
    name = "state-folder"
    try:
        there, is_one = path_exists(folder), is_folder(folder)
    except OSError as error:
        return problem(
            name, f"{folder} cannot be read: {error.strerror}", "change its permissions, or set XDG_STATE_HOME"
        )
    if not there:
        return ok(name, f"{folder} is made by the first launch")
    if not is_one:
        return problem(name, f"{folder} is not a folder", "move it away, or set XDG_STATE_HOME")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        return problem(name, f"{folder} has mode {mode:04o}: others may read it", f"run `chmod 700 {folder}`")
    if not os.access(folder, os.W_OK):
        return problem(name, f"{folder} cannot be written", f"run `chmod u+w {folder}`, or set XDG_STATE_HOME")
    free = (free_bytes or (lambda path: shutil.disk_usage(path).free))(folder)
    if free < MIN_FREE_BYTES:
        return problem(name, f"{folder} has {free / 1e6:.0f} MB left", "free space, or set XDG_STATE_HOME")
    return ok(name, f"{folder}, {free / 1e9:.1f} GB free")


def check_passphrase(folder: Path, environment: Mapping[str, str], backend: str) -> Finding:
    """Check that the passphrase of the state's secrets is set and that other users cannot read it."""
    name = "passphrase"
    if backend.startswith(("https://", "http://")):
        return skipped(name, f"{backend} keeps secrets by itself")
    if "PULUMI_CONFIG_PASSPHRASE" in environment:
        return ok(name, "PULUMI_CONFIG_PASSPHRASE is set")
    given = environment.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    # That of pathlib raises for `~` of an unknown user.
    file = Path(os.path.expanduser(given)) if given else folder / "passphrase"  # noqa: PTH111
    try:
        there = is_file(file)
    except OSError as error:
        return problem(
            name, f"{file} cannot be read: {error.strerror}", "change its permissions or those of its folder"
        )
    if not there:
        if given:
            return problem(name, f"PULUMI_CONFIG_PASSPHRASE_FILE is {given}: no such file", "write it, or unset it")
        return ok(name, f"{file} is made by the first launch")
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        return problem(name, f"{file} has mode {mode:04o}: others may read it", f"run `chmod 600 {file}`")
    if not os.access(file, os.R_OK):
        return problem(name, f"{file} cannot be read", f"run `chmod 600 {file}` as its owner")
    return ok(name, str(file))


def plugins(run: Run, name: str) -> list[str]:
    """Return the versions of an installed plugin of Pulumi."""
    try:
        listed = json.loads(run("pulumi", "plugin ls --json") or "[]")
    except ValueError:
        return []
    if not isinstance(listed, list):
        return []
    return [str(item.get("version")) for item in listed if isinstance(item, dict) and item.get("name") == name]


def provider_on_path(*, timeout_s: float = 4.0) -> str | None:
    """Start the provider on PATH, return its version, and end it. None: PATH has none.

    Args:
        timeout_s: Time limit of the start, and of the answer.

    Raises:
        TorchxPulumiError: It does not start or does not answer in time.
    """
    program = shutil.which(EXECUTABLE)
    if program is None:
        return None
    try:
        process = subprocess.Popen(
            [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise TorchxPulumiError(f"{program} does not start: {error.strerror}; install the provider again") from error
    end_late = threading.Timer(timeout_s, _end, [process])
    end_late.start()
    with process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            version = _ask(port, timeout_s) if port.isdecimal() else None
        finally:
            end_late.cancel()
            end_late.join()
            _end(process)
    if version is None:
        raise TorchxPulumiError(f"{program} does not answer as a Pulumi provider; install the provider again")
    return version


def _ask(port: str, timeout_s: float) -> str | None:
    import grpc
    from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
    from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

    # The answer, a PluginInfo, has the version as its first field, as a StringValue has its text.
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        ask = channel.unary_unary(_METHOD, Empty.SerializeToString, StringValue.FromString)
        try:
            return str(ask(Empty(), timeout=timeout_s).value)
        except grpc.RpcError:
            return None


def _end(process: subprocess.Popen[str]) -> None:
    # A wrapper on PATH may have started the provider in its place. PermissionError: macOS, of a group that has ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
