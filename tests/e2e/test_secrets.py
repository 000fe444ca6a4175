"""Secrets of hostile shapes are planted wherever one may be; afterwards every byte that is left is searched."""

from __future__ import annotations

import base64
import json
import random
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.redaction import encodings
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, SIGNATURE, Project, changes, eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e

PROGRAM = """\
import json
import logging
import os
import pathlib

logging.basicConfig(level=logging.DEBUG)

import pulumi
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob

def hidden(value):
    if isinstance(value, dict):
        if set(value) == {"$secret"}:
            return pulumi.Output.secret(value["$secret"])
        return {key: hidden(item) for key, item in value.items()}
    return [hidden(item) for item in value] if isinstance(value, list) else value

leaf = os.environ.get("LEAF_BY_LEAF")
if leaf:
    from torchx_pulumi_components.places import Marks

    def marked(value):
        if isinstance(value, dict):
            return {key: marked(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [marked(item) for item in value]
        return pulumi.Output.secret(value) if isinstance(value, str) and leaf in value else value

    Marks.of_object = lambda self, manifest: {**manifest, "spec": marked(manifest["spec"])}

given = json.loads(pathlib.Path(os.environ["PLANTED"]).read_text())
for kind, jobs in (("volcano", VolcanoTrainingJob), ("mcad", MCADTrainingJob)):
    for name, args in given[kind].items():
        job = jobs(name, hidden(args))
        for output in ("job_name", "uid", "images", "declared", "observed", "pod_names", "service"):
            pulumi.export(f"{name}_{output}", getattr(job, output))
"""


class Planted:
    """Secrets with a random core, by which they are found whatever was done to the rest."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()
        self.cores: list[str] = []

    def core(self, letters: str = string.ascii_letters + string.digits, size: int = 16) -> str:
        core = "".join(self._random.choices(letters, k=size))
        self.cores.append(core)
        return core

    def texts(self) -> dict[str, str]:
        """Return one text of every shape."""
        return {
            "dollars": f"pa$$word-{self.core()}$$",
            "macro": f"tok-${{app_id}}-{self.core()}",
            "replica": f"${{replica_id}}{self.core()}${{rank0_env}}",
            "expansion": f"$(PATH)-{self.core()}",
            "digits": self.core("123456789", 18),
            "fraction": f"{self.core('123456789', 12)}.0",
            "unicode": f"pässwörd-☃-{self.core()}-日本",
            "lines": f"-----BEGIN KEY-----\n{self.core()}\n{self.core()}\n-----END KEY-----\n",
            "json": json.dumps({"user": "me", "password": self.core(), "q": 'a"b\\c'}),
            "yaml": f"password: {self.core()}  # &anchor *alias",
            "quotes": f"it's \"quoted\" '{self.core()}'",
            "percent": f"100%25 %s %(x)s %{self.core()}",
            "base64": base64.b64encode(self.core().encode()).decode(),
            "shell": f"`id`; $(cat /etc/passwd) | tee {self.core()} > /dev/null",
            "blank": f"  {self.core()}  ",
            "tabs": f"a\t{self.core()}\tb\r\n",
            "backslash": f"\\x41\\n{self.core()}\\",
            "html": f"<b>&amp;{self.core()}</b>",
            "true": f"True{self.core()}",
            "marks": f"<{{%reset%}}>{self.core()}***[secret]",
        }

    def name(self) -> str:
        """Return a text that is a valid name and label value."""
        return f"s{self.core(string.ascii_lowercase + string.digits)}"

    def found_in(self, data: bytes) -> list[bytes]:
        """Return the secrets in some bytes, with the text around them."""
        forms = {form.encode() for core in self.cores for form in encodings(core)}
        places = [data.find(form) for form in forms if form in data]
        return [data[max(place - 150, 0) : place + 60] for place in sorted(places)]


def hidden(value: Any) -> Any:
    return {"$secret": value}


def job_args(planted: Planted, namespace: str, kubeconfig: str) -> dict[str, Any]:
    """Return arguments with a secret in every field where the job still runs."""
    texts = planted.texts()
    node = {**FAKE_NODE["node_selector"]}
    return {
        "namespace": namespace,
        "rerun": hidden(texts["dollars"]),
        "kubeconfig": hidden(kubeconfig),
        "roles": [
            {
                "name": "trainer",
                "image": "registry.example.com/app:1",
                "entrypoint": hidden(f"/bin/{planted.name()}"),
                "args": [hidden(text) for text in texts.values()],
                "env": {f"VALUE_{name}": hidden(text) for name, text in texts.items()},
                "secret_env": {
                    "KEY": {"name": hidden(planted.name()), "key": hidden(planted.name()), "optional": True}
                },
                "num_replicas": 2,
                "port_map": {"c10d": 23456},
                "mounts": [
                    {"kind": "bind", "src": hidden(f"/tmp/{planted.name()}"), "dst": hidden(f"/mnt/{planted.name()}"),
                     "read_only": hidden(True)},
                    {"kind": "secret", "src": hidden(planted.name()), "dst": "/mnt/keys"},
                ],
                "metadata": {"note": hidden(texts["json"])},
                "resource": {"cpu": 0.125, "memory_mb": 1537},
                "node_selector": node,
                "tolerations": FAKE_NODE["tolerations"],
                "pod_overlay": {
                    "spec": {
                        "terminationGracePeriodSeconds": hidden(7),
                        "hostAliases": [{"ip": "10.1.2.3", "hostnames": [hidden(planted.name())]}],
                    },
                },
            }
        ],
    }  # fmt: skip


@contextmanager
def command_lines() -> Iterator[set[bytes]]:
    """Collect the arguments of every process that lives meanwhile."""
    found: set[bytes] = set()
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.02):
            # A glob for the files looks at each one, which raises if its process has ended.
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    found.add((folder / "cmdline").read_bytes())
                except OSError:
                    continue

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def leaks(planted: Planted, folder: Path, *, but: tuple[Path, ...] = ()) -> dict[str, list[bytes]]:
    """Search every file of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and path not in but]
    assert len(files) > 5
    return {str(path): found for path in files if (found := planted.found_in(path.read_bytes()))}


def is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and SIGNATURE in value


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def secret_kubeconfig(kubeconfig: Path, planted: Planted) -> str:
    """The cluster's kubeconfig with further users in it, whose credentials are secrets of hostile shapes."""
    config = yaml.safe_load(kubeconfig.read_text())
    users = [{"name": f"user-{name}", "user": {"token": text}} for name, text in planted.texts().items()]
    return json.dumps({**config, "users": [*config["users"], *users]})


@pytest.mark.mcad
def test_components_leave_no_secret_anywhere(
    make_project: Callable[..., Project],
    look: KubernetesCluster,
    planted: Planted,
    secret_kubeconfig: str,
    tmp_path: Path,
) -> None:
    project = make_project(program=PROGRAM)
    source = project.folder.parent / "planted.json"
    project.env |= {"PLANTED": str(source), "PULUMI_DEBUG_COMMANDS": "true"}
    logs = tmp_path / "logs"
    logs.mkdir()
    args = job_args(planted, project.namespace, secret_kubeconfig)
    volcano = {**args, "queue": "default"}
    without_ports = {**volcano["roles"][0]}
    jobs = {
        "volcano": {"train": volcano, "gang": {**volcano, "gang": "pods", "roles": [without_ports]}},
        "mcad": {"wrapped": {**args, "priority": 77, "suspend": False}},
    }

    def write(**changed: Any) -> None:
        source.write_text(json.dumps({**jobs, **changed}))

    def logged(name: str, *words: str) -> list[str]:
        return [*words, "--event-log", str(logs / f"{name}.jsonl")]

    said: list[str] = []
    with command_lines() as lines:
        write()
        said.append(project.run(*logged("preview", "preview", "--diff")))
        said.append(project.run(*logged("up", "up", "--yes", "--skip-preview", "--diff")))
        uid = project.output("train_uid")
        assert uid
        job = look.get(VOLCANO_JOB, project.namespace, project.output("train_job_name"))
        assert job is not None
        assert job["metadata"]["uid"] == uid
        # The cluster's own object has the values in plain, where the pods read them.
        env = {item["name"]: item.get("value") for item in container(job)["env"]}
        assert env["VALUE_base64"] == args["roles"][0]["env"]["VALUE_base64"]["$secret"]
        text = project.run(*logged("again", "up", "--yes", "--skip-preview"))
        assert changes(text).keys() <= {"unchanged", "updated"}
        said.append(text)
        said.append(project.refresh())
        said.append(project.run("stack", "export"))
        said.append(project.run("stack", "output", "--json"))
        said.append(project.run("stack", "history"))
        role = volcano["roles"][0]
        write(volcano={**jobs["volcano"], "train": {**volcano, "roles": [{**role, "args": [hidden(planted.core())]}]}})
        said.append(project.run(*logged("refused", "up", "--yes", "--skip-preview"), fails=True))
        assert "roles[trainer].args would relaunch" in said[-1]
        wrong = {**role, "port_map": {"c10d": hidden(planted.core())}, "env": {"A": hidden([planted.core()])},
                 "image": hidden(f" {planted.core()}")}  # fmt: skip
        write(volcano={**jobs["volcano"], "train": {**volcano, "roles": [wrong]}})
        said.append(project.run(*logged("wrong", "preview"), fails=True))
        assert "has 3 problems" in said[-1]
        write()
        for words in ([], ["--json"], ["--prometheus"], ["--html", "-"], ["--live", "--json"]):
            said.append(ours(project.env, "fleet", *words))
        checked_by_path(project)
    found = {str(number): there for number, text in enumerate(said) if (there := planted.found_in(text.encode()))}
    found |= {f"arguments {line!r}": there for line in lines if (there := planted.found_in(line))}
    assert {**found, **leaks(planted, tmp_path, but=(source,))} == {}


def container(job: Mapping[str, Any]) -> Any:
    return job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]


def checked_by_path(project: Project) -> None:
    """Short values, numbers and booleans are too short to be searched for: all of a `spec` is secret."""
    resources = {item["urn"].rpartition("::")[2]: item for item in project.resources() if "Stash" not in item["type"]
                 and "torchx:" not in item["type"]}  # fmt: skip
    for values in (resources["train"]["inputs"], resources["train"]["outputs"]):
        assert is_secret(values["spec"])
    assert is_secret(resources["train"]["outputs"]["metadata"])
    assert is_secret(resources["wrapped"]["inputs"]["spec"])


def ours(env: Mapping[str, str], *words: str, fails: bool | None = False) -> str:
    """Run `torchx-pulumi` with everything logged."""
    program = "import logging, sys; logging.basicConfig(level=logging.DEBUG); " \
              "from torchx_pulumi_stacks.console import main; sys.exit(main())"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=dict(env), text=True, capture_output=True, check=False, timeout=240
    )
    assert fails is None or (done.returncode != 0) is fails, done.stderr
    return done.stdout + done.stderr


def test_no_command_leaves_the_password_of_a_backend(
    e2e_env: dict[str, str], kubeconfig: Path, planted: Planted, tmp_path: Path
) -> None:
    """Nobody listens there: what is left and said by a launch that fails, and by all that reads, is searched."""
    cli = TorchxCli(e2e_env, tmp_path, kubeconfig)
    (tmp_path / "b").mkdir()
    run = ("run", "-s", "pulumi_volcano", "-cfg", "queue=default", "--workspace", "", "utils.echo", "--image", "app:1")
    said: list[str] = []
    shapes = planted.texts()
    urls = [f"postgres://me:{quote(shapes[name], safe='')}@127.0.0.1:1/x" for name in ("dollars", "json", "unicode")]
    urls.append(f"postgres://me:{planted.core()}/{planted.core()}@x@127.0.0.1:1/x?sslmode=disable")
    urls.append(f"postgres://me@127.0.0.1:1/x?sslmode=disable&password={planted.core()}")
    with command_lines() as lines:
        for url in urls:
            cli.env["PULUMI_BACKEND_URL"] = url
            launched = cli.torchx(*run, code=None)
            assert launched.code != 0
            said.append(launched.text)
            for words in (["fleet"], ["fleet", "--json"], ["fleet", "--html", "-"], ["doctor"]):
                said.append(cli.ours(*words, code=None).text)
        cli.env.pop("PULUMI_BACKEND_URL")
        handle = cli.torchx(*run).handle
        app_id = handle.rpartition("/")[2]
        (entry,) = (tmp_path / "state/torchx-pulumi/runs/volcano").glob(f"{app_id}@*.json")
        value = json.loads(entry.read_text())
        whole = value["place"]["backend"]
        # As an app is whose backend has a password.
        value["place"]["backend"] = "postgres://me:***@127.0.0.1:1/x"
        entry.write_text(json.dumps(value))
        said.append(cli.ours("program", handle, "--to", str(tmp_path / "program")).text)
        refused = cli.ours("delete", handle, code=None)
        said.append(refused.text)
        assert "without its credentials" in refused.text
        value["place"]["backend"] = whole
        entry.write_text(json.dumps(value))
        said.append(cli.torchx("status", handle).text)
        cli.ours("delete", handle)
    text = "\n".join(said)
    assert "postgres://me:***@127.0.0.1:1/x" in text
    assert not planted.found_in(text.encode())
    assert not planted.found_in(b"\n".join(lines))
    assert leaks(planted, tmp_path) == {}


def test_the_contents_of_a_kubeconfig_do_not_reach_the_index(
    e2e_env: dict[str, str], kubeconfig: Path, planted: Planted, secret_kubeconfig: str, tmp_path: Path
) -> None:
    cli = TorchxCli(e2e_env, tmp_path, kubeconfig)
    (tmp_path / ".torchxconfig").write_text(
        f"[pulumi_volcano]\nqueue=default\nkubeconfig={secret_kubeconfig.replace('%', '%%')}\n"
    )
    run = ("run", "-s", "pulumi_volcano", "--workspace", "", "utils.echo", "--image", "app:1")
    refused = cli.torchx(*run, code=None)
    assert refused.code != 0
    assert not planted.found_in(refused.text.encode())
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not [path for path in files if planted.found_in(path.read_bytes())]


def test_what_the_engine_itself_logs_is_as_documented(project: Project, planted: Planted) -> None:
    """docs/secrets.md: `-v=9` is the engine's own log of every request, where nothing of ours has a say."""
    text = planted.texts()["base64"]
    (project.folder / "__main__.py").write_text(PROGRAM)
    source = project.folder.parent / "planted.json"
    project.env |= {"PLANTED": str(source)}
    role = {"name": "trainer", "image": "app:1", "entrypoint": "sh", "env": {"TOKEN": hidden(text)}}
    jobs = {"train": {"queue": "default", "namespace": project.namespace, "roles": [role]}}
    source.write_text(json.dumps({"volcano": jobs, "mcad": {}}))
    assert not planted.found_in(project.run("preview", "-v=3", "--logtostderr", "--diff").encode())
    loud = project.run("preview", "-v=9", "--logtostderr", "--logflow")
    assert planted.found_in(loud.encode())


@pytest.mark.mcad
def test_a_run_whose_state_has_secret_texts_in_its_spec_is_kept(
    project: Project, look: KubernetesCluster, planted: Planted
) -> None:
    """Builds before the first release marked texts in a `spec`, and not the `spec`."""
    (project.folder / "__main__.py").write_text(PROGRAM)
    source, core = project.folder.parent / "planted.json", planted.core()
    project.env |= {"PLANTED": str(source), "LEAF_BY_LEAF": core}
    role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2,
            "env": {"TOKEN": hidden(f"pa$$word-{core}")}, **FAKE_NODE}  # fmt: skip
    wrapped: dict[str, Any] = {"namespace": project.namespace, "roles": [role]}
    train = {**wrapped, "queue": "default"}

    def write(**labels: str) -> None:
        jobs = {"train": {**train, "labels": labels}, "gang": {**train, "gang": "pods"}}
        source.write_text(json.dumps({"volcano": jobs, "mcad": {"wrapped": wrapped}}))

    def specs() -> dict[str, Any]:
        found = [item for item in project.resources() if item["type"].startswith("kubernetes:")]
        return {item["urn"].rpartition("::")[2]: item["inputs"]["spec"] for item in found}

    write()
    said = [project.up("--diff")]
    launched = specs()
    assert SIGNATURE in json.dumps(launched["train"])
    assert not any(map(is_secret, launched.values()))
    uids = [project.output(f"{name}_uid") for name in ("train", "gang", "wrapped")]
    eventually(lambda: phase_of(job_of(look, project)) == "Running")
    del project.env["LEAF_BY_LEAF"]
    for words in (["preview", "--diff"], ["up", "--yes", "--skip-preview"], ["up", "--yes", "--refresh", "--diff"]):
        said.append(project.run(*words))
        assert changes(said[-1]).keys() == {"unchanged"}, said[-1]
    assert is_secret(specs()["train"])
    write(team="vision")
    said.append(project.up("--diff"))
    assert [project.output(f"{name}_uid") for name in ("train", "gang", "wrapped")] == uids
    job = job_of(look, project)
    assert (job["metadata"]["uid"], job["metadata"]["labels"]["team"]) == (uids[0], "vision")
    said.append(project.run("stack", "export"))
    assert not planted.found_in("\n".join(said).encode())


def job_of(look: KubernetesCluster, project: Project) -> Any:
    (job,) = look.list(VOLCANO_JOB, project.namespace)
    return job


def phase_of(job: Mapping[str, Any]) -> Any:
    return ((job.get("status") or {}).get("state") or {}).get("phase")
