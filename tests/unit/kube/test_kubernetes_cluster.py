"""How the real client asks and what it makes of answers: against an HTTP server of this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.loopback import LoopbackServer, closed_port

pytest.importorskip("kubernetes")

Answer = tuple[int, Any]


class Server:
    """An API server that answers what a test wants and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[str] = []
        self.calls: list[str] = []
        self.bodies: list[Any] = []
        self.connections = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.calls.append(f"{self.command} {self.headers.get('Content-Type') or ''}".strip())
                length = int(self.headers.get("Content-Length") or 0)
                if length:
                    server.bodies.append(json.loads(self.rfile.read(length)))
                code, body = server.answers.pop(0)
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_DELETE = do_PATCH = do_PUT = do_GET

            def log_message(self, *args: Any) -> None:
                """Stay silent."""

        self.http = LoopbackServer(Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def kubeconfig(self) -> str:
        return contents(self.http.server_port)


def contents(port: int) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "hush"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "lab",
        }
    )


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def status(code: int, message: str, **more: Any) -> Answer:
    return code, {"kind": "Status", "code": code, "message": message, **more}


def test_an_unreachable_cluster_is_said_at_once_and_may_be_tried_again() -> None:
    with closed_port() as port:
        cluster = KubernetesCluster.connect(contents(port))
        started = time.monotonic()
        with pytest.raises(ClusterError, match=r"'lab' cannot be reached: .*refused") as caught:
            cluster.get(kinds.POD, "default", "x")
    assert caught.value.retryable
    assert time.monotonic() - started < 5


def test_forbidden_passes_on_what_the_server_said(server: Server) -> None:
    server.answers = [status(403, 'User "u" cannot get pods')]
    with pytest.raises(ClusterError, match=r'forbids it: User "u" cannot get pods') as caught:
        KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "default", "x")
    assert not caught.value.retryable


def test_refused_credentials_are_told_from_missing_rights(server: Server) -> None:
    # The second is a proxy's answer.
    for answer in (status(401, "Unauthorized"), (401, "<html>log in</html>")):
        server.answers = [answer]
        with pytest.raises(ClusterError, match="does not accept the credentials") as caught:
            KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "default", "x")
        assert "hush" not in str(caught.value)
        assert caught.value.reason == "Unauthorized"


def test_an_absent_object_is_told_from_an_absent_kind(server: Server) -> None:
    cluster = KubernetesCluster.connect(server.kubeconfig)
    server.answers = [status(404, "not found", details={"name": "x"}), (404, "404 page not found\n")]
    assert cluster.get(VOLCANO_JOB, "default", "x") is None
    with pytest.raises(ClusterError, match=r"does not serve Job \(batch.volcano.sh/v1alpha1\).*Volcano"):
        cluster.get(VOLCANO_JOB, "default", "x")


@pytest.mark.parametrize(("code", "retryable"), [(429, True), (500, True), (503, True), (422, False)])
def test_what_may_pass_by_itself_is_marked(server: Server, code: int, retryable: bool) -> None:
    server.answers = [status(code, "so it is")]
    with pytest.raises(ClusterError, match=f"answered {code}: so it is") as caught:
        KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "default", "x")
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    "answer",
    [
        status(410, "too old resource version", reason="Gone"),
        status(504, "Too large resource version: 9, current: 3", reason="Timeout"),
    ],
)
def test_a_version_that_the_cluster_does_not_have_is_expired(server: Server, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(ClusterError, match="resource version") as caught:
        KubernetesCluster.connect(server.kubeconfig).watch(kinds.POD, "n", version="7")
    assert (caught.value.reason, caught.value.retryable) == ("Expired", True)


def test_long_lists_come_in_pages(server: Server) -> None:
    def page(name: str, token: str) -> Answer:
        return 200, {"metadata": {"continue": token}, "items": [{"metadata": {"name": name, "namespace": "n"}}]}

    server.answers = [page("b", "next"), page("a", "")]
    found = KubernetesCluster.connect(server.kubeconfig).list(kinds.POD, "n", {"app": "x"})
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert found[0]["kind"] == "Pod"
    assert server.asked[0] == "/api/v1/namespaces/n/pods?limit=500&labelSelector=app%3Dx"
    assert server.asked[1].endswith("&continue=next")


def test_a_container_that_has_not_started_may_be_asked_again(server: Server) -> None:
    server.answers = [status(400, 'container "c" in pod "p" is waiting to start: ContainerCreating')]
    with pytest.raises(ClusterError, match="ContainerCreating") as caught:
        list(KubernetesCluster.connect(server.kubeconfig).logs("n", "p"))
    assert caught.value.retryable


def test_names_cannot_leave_their_place_in_a_path(server: Server) -> None:
    server.answers = [status(404, "not found", details={"name": "x"})]
    KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "a/../b", "x?y")
    assert server.asked == ["/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy"]


def test_one_client_serves_all_who_ask_for_the_same_cluster(server: Server) -> None:
    for cluster in (KubernetesCluster.connect(server.kubeconfig) for _ in range(2)):
        server.answers = [status(404, "not found", details={"name": "x"}), (200, {"kind": "Pod"})]
        assert cluster.get(kinds.POD, "n", "x") is None
        assert cluster.get(kinds.POD, "n", "x") == {"kind": "Pod"}
    assert server.connections == 1


def test_a_forked_process_connects_anew(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KubernetesCluster.connect(server.kubeconfig)
    server.answers = [(200, {"kind": "Pod"})] * 2
    cluster.get(kinds.POD, "n", "x")
    monkeypatch.setattr("os.getpid", lambda: -1)
    cluster.get(kinds.POD, "n", "x")
    assert server.connections == 2


def test_what_is_created_and_deleted_is_asked_with_care(server: Server) -> None:
    cluster = KubernetesCluster.connect(server.kubeconfig)
    absent = status(404, 'namespaces "n" not found', reason="NotFound", details={"name": "n"})
    server.answers = [absent, status(409, "uid is another", reason="Conflict"), absent]
    with pytest.raises(ClusterError, match='answered 404: namespaces "n" not found'):
        cluster.create(kinds.POD, "n", {"kind": "Pod"}, dry_run=True)
    assert cluster.delete(kinds.POD, "n", "x", uid="u") is False
    assert cluster.delete(kinds.POD, "n", "x") is False
    assert server.asked == ["/api/v1/namespaces/n/pods?dryRun=All", *["/api/v1/namespaces/n/pods/x"] * 2]
    assert server.bodies == [
        {"kind": "Pod"},
        {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}},
        {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"},
    ]


def test_an_answer_that_is_no_json_is_told_as_such(server: Server) -> None:
    server.answers = [(200, "<html>welcome</html>")]
    with pytest.raises(ClusterError, match=r"is not JSON; check that http://127.0.0.1:"):
        KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "n", "x")


@pytest.mark.parametrize("body", ["null", "[]", '"x"', "7"])
def test_json_that_is_no_object_is_not_taken_for_absence(server: Server, body: str) -> None:
    cluster = KubernetesCluster.connect(server.kubeconfig)
    questions: list[Callable[[], object]] = [
        lambda: cluster.get(kinds.POD, "n", "x"),
        lambda: cluster.list(kinds.POD, "n"),
        lambda: cluster.serves(kinds.POD),
        lambda: cluster.delete(kinds.POD, "n", "x"),
        cluster.version,
    ]
    for ask in questions:
        server.answers = [(200, body)]
        with pytest.raises(ClusterError, match=r"is not an object; check that http://127\.0\.0\.1:"):
            ask()


def test_a_page_of_a_proxy_is_not_shown_whole(server: Server) -> None:
    server.answers = [(403, "<html>" + "x" * 100_000)]
    with pytest.raises(ClusterError, match="forbids it: <html>x") as caught:
        KubernetesCluster.connect(server.kubeconfig).get(kinds.POD, "n", "x")
    assert len(str(caught.value)) < 1000


def test_a_kubeconfig_that_cannot_be_used_is_named() -> None:
    broken = json.loads(contents(1)) | {"clusters": []}
    with pytest.raises(ClusterError, match="'lab' cannot be used"):
        KubernetesCluster.connect(json.dumps(broken))


def test_the_identity_is_one_request_which_is_kept_for_a_moment(server: Server) -> None:
    server.answers = [(200, {"metadata": {"name": "kube-system", "uid": "u1"}})]
    cluster = KubernetesCluster.connect(server.kubeconfig)
    assert server.asked == []
    assert (cluster.identify().uid, cluster.identify().uid) == ("u1", "u1")
    assert server.asked == ["/api/v1/namespaces/kube-system"]
    assert cluster.identify().name == f"the cluster of context 'lab' at {cluster.api_server}"


@pytest.mark.parametrize("body", [{"reason": "Forbidden", "message": "no"}, "a proxy says no"])
def test_who_may_not_read_the_home_namespace_does_not_know_the_uid(server: Server, body: Any) -> None:
    server.answers = [(403, body)]
    assert KubernetesCluster.connect(server.kubeconfig).identify().uid is None


def test_credentials_that_are_not_accepted_are_an_error_and_no_identity(server: Server) -> None:
    server.answers = [(401, {"reason": "Unauthorized", "message": "no"})]
    with pytest.raises(ClusterError, match="does not accept the credentials"):
        KubernetesCluster.connect(server.kubeconfig).identify()


def vcjob(phase: str, uid: str = "u", **status: Any) -> Answer:
    meta = {"name": "x", "namespace": "n", "uid": uid, "resourceVersion": "7"}
    return 200, {"metadata": meta, "spec": {"queue": "q"}, "status": {"state": {"phase": phase}, **status}}


FORBIDDEN = (403, {"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"})
CONFLICT = (409, {"kind": "Status", "code": 409, "message": "changed", "reason": "Conflict"})
MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("action", "before", "after"), [("suspend", "Running", "Aborting"), ("resume", "Aborted", "Restarting")]
)
@pytest.mark.parametrize("refused", [[], [CONFLICT], [FORBIDDEN]])
def test_an_order_that_may_not_be_given_is_written_into_the_status(
    server: Server, action: str, before: str, after: str, refused: list[Answer]
) -> None:
    again = [item for answer in refused for item in (answer, vcjob(before, retryCount=2))]
    server.answers = [FORBIDDEN, vcjob(before, retryCount=2), *again, (200, {})]
    getattr(CONTROL, action)(KubernetesCluster.connect(server.kubeconfig), "n", "x", "u")
    assert server.answers == []
    body = server.bodies[-1]
    assert body["status"] == {"state": {"phase": after}, "retryCount": 3 if action == "resume" else 2}
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("u", "7")
    by_update = refused == [FORBIDDEN]
    assert server.calls[-1] == ("PUT application/json" if by_update else f"PATCH {MERGE}")
    assert ("spec" in body) is by_update
    assert server.asked[-1].endswith("/jobs/x/status")


@pytest.mark.parametrize(
    "found", [status(404, "gone", details={"name": "x"}), vcjob("Running", uid="another"), vcjob("Completed")]
)
def test_a_job_that_is_another_or_has_ended_is_not_aborted(server: Server, found: Answer) -> None:
    server.answers = [FORBIDDEN, found]
    CONTROL.suspend(KubernetesCluster.connect(server.kubeconfig), "n", "x", "u")
    assert server.answers == []


def test_a_cancellation_that_is_not_allowed_in_any_way_names_the_ways(server: Server) -> None:
    server.answers = [FORBIDDEN, vcjob("Running"), FORBIDDEN, vcjob("Running"), FORBIDDEN]
    with pytest.raises(ClusterError, match=r"create commands\.bus\.volcano\.sh, patch jobs/status.*delete") as caught:
        CONTROL.suspend(KubernetesCluster.connect(server.kubeconfig), "n", "x", "u")
    assert caught.value.reason == "Forbidden"
    server.answers = [FORBIDDEN, *[vcjob("Running"), CONFLICT] * 8]
    with pytest.raises(ClusterError, match="changed during each attempt") as caught:
        CONTROL.suspend(KubernetesCluster.connect(server.kubeconfig), "n", "x", "u")
    assert caught.value.retryable


COLUMNS = [{"name": name} for name in ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")]


def test_many_pods_are_read_as_pages_of_a_table(server: Server) -> None:
    pods = [{"metadata": {"name": f"p{number}", "namespace": "a"}, "spec": {}} for number in range(3)]
    first = {
        "columnDefinitions": COLUMNS,
        "rows": [{"cells": ["p1", "0/2", "Error", "3 (5m ago)", "1h", "<none>", "<none>"]}],
    }
    second = {
        "columnDefinitions": COLUMNS,
        "rows": [{"cells": ["p0", "1/1", "Running", "0", "1h", "10.0.0.1", "n0"]}, {}],
    }
    server.answers += [
        (200, {"items": pods, "metadata": {"continue": "more"}}),
        (200, {**first, "metadata": {"continue": "next"}}),
        (200, second),
    ]
    found = KubernetesCluster.connect(server.kubeconfig).list_pods("a", {"job": "x"}, whole=2, phase="Failed")
    assert [pod["metadata"]["name"] for pod in found.pods] == ["p0", "p1"]
    assert found.rows is not None
    assert [(row.name, row.status, row.phase, row.ready, row.containers, row.restarts) for row in found.rows] == [
        ("p0", "Running", "Failed", 1, 1, 0),
        ("p1", "Error", "Failed", 0, 2, 3),
    ]
    assert [(row.address, row.node) for row in found.rows] == [("10.0.0.1", "n0"), (None, None)]
    assert "limit=3&" in server.asked[0]
    assert all("labelSelector=job%3Dx&fieldSelector=status.phase%3DFailed" in asked for asked in server.asked)
    assert ["includeObject=None" in asked for asked in server.asked] == [False, True, True]
    assert server.asked[2].endswith("continue=next")


def test_normal_events_of_pods_are_left_out_of_large_namespaces(server: Server) -> None:
    def event(name: str, about: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "a"}, "involvedObject": {"name": about}}

    server.answers += [
        (200, {"items": [event("e9", "other")], "metadata": {"continue": "more"}}),
        (200, {"items": [event("e2", "job"), event("e3", "other")]}),
        (200, {"items": [event("e1", "pod")]}),
    ]
    assert [
        one["metadata"]["name"] for one in KubernetesCluster.connect(server.kubeconfig).events("a", {"job", "pod"})
    ] == ["e1", "e2"]
    assert [asked.rpartition("fieldSelector=")[2] for asked in server.asked[1:]] == [
        "involvedObject.kind%21%3DPod",
        "involvedObject.kind%3DPod%2Ctype%3DWarning",
    ]
