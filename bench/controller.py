"""A controller of 1,000 apps: its memory, its cost while nothing happens, and the delay from an end to the stack.

Real: the command `torchx-pulumi controller` with its page, which is not opened here; the running local cluster (one
is started where none runs), and in it 1,000 Volcano Jobs of one replica on fake nodes. One app is launched through the
engine; the stacks of the others are copies of its checkpoint with names, uid and launch label of their own, because
1,000 launches take half an hour. A proxy counts the requests to the API server. With TORCHX_PULUMI_BENCH_BASELINE,
another build takes turns with this one. Wants: see `WANTED`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import verdict
from bench._cluster import own_namespace, running_cluster

APPS = int(os.environ.get("TORCHX_PULUMI_BENCH_APPS", "1000"))
ENDS = min(200, APPS // 2)
"""Apps that are ended to measure the delay of a build."""
ENDS_PER_S = 5
IDLE_S = 60.0
SETTLE_S = 75.0
"""After the first writes, the next listing reads all stacks once more."""
START_S = 15.0
"""Time in which a controller looks at all apps."""
TIMEOUT_S = 900.0
BASELINE = os.environ.get("TORCHX_PULUMI_BENCH_BASELINE")
"""Folder of another build with its `.venv`. None: this one is measured alone."""
WANTED = {
    "memory_mb": 200.0, "idle_cpu_percent": 1.0, "requests_per_minute": 60.0, "p99_s": 1.0,
    "memory_to_baseline": 1.0, "idle_cpu_to_baseline": 0.7,
}  # fmt: skip
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
PODS = "/api/v1/namespaces/{}/pods"


def main() -> int:
    """Measure, print a line per figure and one at the end; 1 where a want is missed."""
    from tools.bootstrap import pulumi_environment

    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        os.environ.update(pulumi_environment())
        os.environ.update({"KUBECONFIG": str(cluster.kubeconfig), "XDG_STATE_HOME": folder})
        for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
            os.environ.pop(name, None)
        with (
            own_namespace(cluster.kubeconfig) as namespace,
            counting_proxy(cluster.kubeconfig) as (requests, config),
            Fleet(Path(folder), config, namespace) as apps,
        ):
            return measure(apps, requests)


def measure(fleet: Fleet, requests: Counter) -> int:
    """Run the controllers of the builds in turns; print what they need."""
    began = time.monotonic()
    fleet.make()
    print(f"controller: {APPS} apps run after {time.monotonic() - began:.0f} s")
    others = {} if BASELINE is None else {"baseline ": Path(BASELINE) / ".venv"}
    builds = {**others, "": Path(sys.prefix)}
    idle = {name: measure_idle(fleet, requests, name, venv) for name, venv in builds.items()}
    ends = {name: measure_ends(fleet, name, venv) for name, venv in builds.items()}
    found, before = {**idle[""], **ends[""]}, idle.get("baseline ")
    if before is not None:
        found["memory_to_baseline"] = found["memory_mb"] / before["memory_mb"]
        found["idle_cpu_to_baseline"] = found["idle_cpu_percent"] / before["idle_cpu_percent"]
    return verdict("controller", found, {name: most for name, most in WANTED.items() if name in found})


def measure_idle(fleet: Fleet, requests: Counter, name: str, venv: Path) -> dict[str, float]:
    """Run a controller that writes all stacks once, and then has nothing to do."""
    fleet.forget_states()
    controller = Running(fleet.folder, fleet.namespace, venv)
    try:
        began, first = time.monotonic(), requests.count
        wait_until(lambda: fleet.count("RUNNING") == APPS, controller.check)
        first_s, first = time.monotonic() - began, requests.count - first
        time.sleep(SETTLE_S)
        cpu_s, asked, began = controller.cpu_s(), requests.count, time.monotonic()
        time.sleep(IDLE_S)
        idle_s = time.monotonic() - began
        found = {
            "idle_cpu_percent": 100 * (controller.cpu_s() - cpu_s) / idle_s,
            "requests_per_minute": 60 * (requests.count - asked) / idle_s,
            "memory_mb": controller.most_mb(),
        }
    finally:
        controller.stop()
    print(f"{name}controller: {APPS} stacks current {first_s:.1f} s after its start, with {first} requests")
    print(
        f"{name}controller: idle, {found['idle_cpu_percent']:.2f} % of a core, {found['requests_per_minute']:.0f} "
        f"requests a minute; at most {found['memory_mb']:.0f} MB"
    )
    return found


def measure_ends(fleet: Fleet, name: str, venv: Path) -> dict[str, float]:
    """Run a controller while apps end."""
    controller = Running(fleet.folder, fleet.namespace, venv)
    try:
        time.sleep(START_S)
        cpu_s, delays = controller.cpu_s(), fleet.end_some(controller.check)
        cpu_s, p99_s = controller.cpu_s() - cpu_s, statistics.quantiles(delays, n=100)[98]
    finally:
        controller.stop()
    print(
        f"{name}controller: {len(delays)} ends, {ENDS_PER_S} a second, {cpu_s:.1f} s of CPU: in the stack after "
        f"{statistics.median(delays):.2f} s (median), {p99_s:.2f} s (99 of 100), {max(delays):.2f} s (the last)"
    )
    return {"p99_s": p99_s}


class Counter:
    """Counts requests."""

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def counting_proxy(kubeconfig: Path) -> Iterator[tuple[Counter, Path]]:
    """Run a proxy on loopback that counts requests; gives the counter and a kubeconfig whose server is the proxy."""
    import base64

    whole = json.loads(kubeconfig.read_text())
    cluster = whole["clusters"][0]["cluster"]
    server = urlsplit(cluster.pop("server"))
    authority = base64.b64decode(cluster.pop("certificate-authority-data")).decode()
    context, counter = ssl.create_default_context(cadata=authority), Counter()
    listener = socket.create_server(("127.0.0.1", 0))
    cluster["server"] = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                plain = socket.create_connection((str(server.hostname), int(server.port or 443)))
                behind = context.wrap_socket(plain, server_hostname=server.hostname)
                threading.Thread(target=forward, args=(client, behind, counter), daemon=True).start()
                threading.Thread(target=forward, args=(behind, client, None), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(json.dumps(whole))
        try:
            yield counter, config
        finally:
            listener.close()


def forward(source: socket.socket, sink: socket.socket, counter: Counter | None) -> None:
    """Pass bytes on until an end closes; count the requests among them."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if counter is not None:
                counter.count += data.count(b" HTTP/1.1\r\n")
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Fleet:
    """The apps: their jobs and their stacks."""

    def __init__(self, folder: Path, config: Path, namespace: str) -> None:
        self.folder, self.namespace, self._config = folder, namespace, config
        self._stacks = folder / "torchx-pulumi" / "backend" / ".pulumi" / "stacks" / "torchx"
        self._direct = os.environ["KUBECONFIG"]
        self._texts: dict[Path, str] = {}
        """The stacks as they were launched."""
        self._ended = 0

    def __enter__(self) -> Fleet:
        from kubernetes import client, config
        from torchx_pulumi_stacks.entrypoints import create_volcano

        self._api = client.ApiClient(config.new_client_from_config(self._direct).configuration, pool_threads=1)
        self._scheduler = create_volcano("torchx")
        return self

    def __exit__(self, *_: object) -> None:
        self._scheduler.close()
        self._api.close()

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Send a request to the API server, past the proxy."""
        headers = {"Content-Type": kind, "Accept": "application/json"}
        return self._api.call_api(
            path, method, header_params=headers, body=body, auth_settings=["BearerToken"],
            response_type="object", _return_http_data_only=True,
        )  # fmt: skip

    def make(self) -> None:
        """Launch one app, then copy its job and stack; wait until all run."""
        app_id = self._launch()
        (path,) = self._stacks.glob("*.json")
        text = self._texts[path] = path.read_text()
        # Only the controller goes through the proxy.
        os.environ["KUBECONFIG"] = str(self._config)
        name = app_id.partition(":")[2]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: self._copy(text, name, path.stem, number), range(1, APPS)))
        wait_until(lambda: self._phases().count("Running") == APPS)

    def _launch(self) -> str:
        from torchx.specs import AppDef, Resource, Role

        overlay = {
            "spec": {
                "nodeSelector": {"torchx-pulumi/node": "fake"},
                "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            }
        }
        role = Role(
            name="trainer", image="app:1", entrypoint="sleep", args=["600"], num_replicas=1,
            resource=Resource(cpu=1, gpu=0, memMB=64), metadata={"kubernetes": overlay},
        )  # fmt: skip
        options = {"queue": "default", "namespace": self.namespace, "reserved_millicpu": 980, "reserved_memmb": 48}
        return str(self._scheduler.submit(AppDef(name="train", roles=[role]), options))

    def _copy(self, text: str, name: str, stack: str, number: int) -> None:
        from torchx_pulumi.planning.names import owner_digest

        other = f"{name[:-5]}-{number:04d}"
        changed = text.replace(name, other)
        renamed = stack.replace(name, other)
        resources = json.loads(changed)["checkpoint"]["latest"]["resources"]
        component = next(item for item in resources if item["type"] == "torchx:index:VolcanoTrainingJob")
        job = next(item for item in resources if item["type"].startswith("kubernetes:batch.volcano.sh"))
        label = "torchx-pulumi/launch"
        old = job["inputs"]["metadata"]["labels"][label]
        launch = owner_digest("organization", "torchx", renamed, component["urn"])
        changed = changed.replace(old, launch)
        manifest = json.loads(json.dumps(job["inputs"]).replace(old, launch))
        made = self.ask("POST", JOBS.format(self.namespace), manifest)
        changed = changed.replace(component["outputs"]["uid"], made["metadata"]["uid"])
        self._texts[self._stacks / f"{renamed}.json"] = changed

    def forget_states(self) -> None:
        """Make all stacks as they were launched."""
        for path, text in self._texts.items():
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)

    def _phases(self) -> list[str]:
        items = self.ask("GET", JOBS.format(self.namespace))["items"]
        return [((item.get("status") or {}).get("state") or {}).get("phase", "") for item in items]

    def count(self, state: str) -> int:
        """Return how many stacks have a state in their output of that name."""
        states = [outputs_of(path)["state"] for path in self._stacks.glob("*.json")]
        return states.count(state)

    def end_some(self, check: Callable[[], None]) -> list[float]:
        """End some apps one after the other; return the seconds from each end to its stack."""
        listed = self.ask("GET", PODS.format(self.namespace))["items"]
        pods = [pod for pod in listed if pod["status"].get("phase") == "Running"][:ENDS]
        done = Ends(self._direct, self.namespace)
        body = {"metadata": {"annotations": {"torchx-pulumi/fake-exit-code": "0"}}}
        for pod in pods:
            self.ask(
                "PATCH",
                f"{PODS.format(self.namespace)}/{pod['metadata']['name']}",
                body,
                "application/merge-patch+json",
            )
            time.sleep(1 / ENDS_PER_S)
        names = {pod["metadata"]["labels"]["volcano.sh/job-name"] for pod in pods}
        self._ended += len(names)
        wait_until(lambda: names <= done.at.keys() and self.count("SUCCEEDED") == self._ended, check)
        files = {name: next(self._stacks.glob(f"*{name}*.json")) for name in names}
        return [max(files[name].stat().st_mtime - done.at[name], 0.0) for name in names]


def outputs_of(path: Path) -> Any:
    """Return the outputs of a stack."""
    resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
    return next(item["outputs"] for item in resources if item["type"] == "pulumi:pulumi:Stack")


class Ends:
    """When each job of a namespace completed, by a watch that uses no code of the product."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        from kubernetes import client, config, watch

        api = client.CustomObjectsApi(config.new_client_from_config(kubeconfig))
        self.at: dict[str, float] = {}
        where = ("batch.volcano.sh", "v1alpha1", namespace, "jobs")
        version = api.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]

        def follow() -> None:
            for event in watch.Watch().stream(api.list_namespaced_custom_object, *where, resource_version=version):
                one = event["object"]
                if ((one.get("status") or {}).get("state") or {}).get("phase") == "Completed":
                    self.at.setdefault(one["metadata"]["name"], time.time())

        threading.Thread(target=follow, daemon=True).start()


class Running:
    """A controller process."""

    def __init__(self, folder: Path, namespace: str, venv: Path) -> None:
        self._log = folder / "controller.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [venv / "bin" / "torchx-pulumi", "controller", "--namespace", namespace, "--listen", "0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def check(self) -> None:
        """Raise what it said, if it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(self._log.read_text())

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used."""
        # The CPU clock of another process, as clock_getcpuclockid(3) names it: /proc counts whole ticks of 10 ms.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def most_mb(self) -> float:
        """Return the most resident memory that it had."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(timeout=30)


def wait_until(claim: Callable[[], bool], check: Callable[[], None] = lambda: None) -> None:
    """Wait until a claim holds."""
    end = time.monotonic() + TIMEOUT_S
    while not claim():
        check()
        if time.monotonic() > end:
            raise RuntimeError(f"not so within {TIMEOUT_S:.0f} s")
        # Reading all stacks takes half a second of a core.
        time.sleep(2.0)
