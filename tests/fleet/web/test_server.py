"""The server as clients meet it: over real sockets on loopback."""

from __future__ import annotations

import pytest

from tests.fleet.web.site_server import app, served


def test_apps_are_listed_the_youngest_first() -> None:
    with served() as server:
        server.fleet.put_stack(app("old", second=1))
        server.fleet.put_stack(app("new", second=2))
        listed = server.ask("/api/v1/apps")
        assert listed.status == 200
        assert [each["name"] for each in listed.json["apps"]] == ["new", "old"]
        assert (listed.json["total"], listed.json["next"]) == (2, None)
        one = server.ask(f"/api/v1/apps/{listed.json['apps'][0]['id']}").json
        assert (one["ready"], one["wanted"], one["gpus"], one["user"]) == (2, 2, 4, "ann")
        assert one["roles"][0]["replicas"] == [{"id": 0, "pod": "new-0", "state": "RUNNING"}]
        assert one["ui_url"] is None


def test_a_list_is_filtered_and_paged() -> None:
    with served() as server:
        for number in range(5):
            server.fleet.put_stack(app(f"train-{number}", second=number, user="bob" if number % 2 else "ann"))
        server.fleet.put_stack(app("ended", state="SUCCEEDED", namespace="other"))
        names, cursor = [], ""
        while cursor is not None:
            page = server.ask(f"/api/v1/apps?limit=2&search=TRAIN{f'&cursor={cursor}' if cursor else ''}")
            assert page.json["total"] == 5
            names += [each["name"] for each in page.json["apps"]]
            cursor = page.json["next"]
        assert names == [f"train-{number}" for number in (4, 3, 2, 1, 0)]

        def found(query: str) -> set[str]:
            return {each["name"] for each in server.ask(f"/api/v1/apps?{query}").json["apps"]}

        assert found("user=bob") == {"train-1", "train-3"}
        assert found("state=succeeded") == found("namespace=other") == {"ended"}
        assert len(found("state=active")) == 5
        assert found("queue=none") == set()


def test_all_wrong_parameters_are_said_at_once() -> None:
    with served() as server:
        refused = server.ask("/api/v1/apps?state=dancing&limit=0&limits=1")
        assert refused.status == 400
        for part in (
            "state: is 'dancing', must be one of",
            "limit: is '0', must be a number",
            "unknown parameter limits; this endpoint takes ",
        ):
            assert part in refused.message


@pytest.mark.parametrize(("path", "status"), [("/api/v1/apps/0000", 404), ("/nothing", 404)])
def test_errors_are_json(path: str, status: int) -> None:
    with served() as server:
        refused = server.ask(path)
        assert (refused.status, refused.json["error"]["status"]) == (status, status)


def test_other_methods_are_refused() -> None:
    with served() as server:
        refused = server.ask("/api/v1/apps", "DELETE")
        assert (refused.status, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
        assert server.ask("/api/v1/apps", "HEAD").body == b""


def test_it_is_ready_when_everything_was_read() -> None:
    with served() as server:
        server.not_ready = "backend s3://secret-bucket is not read yet"
        answer = server.ask("/readyz", token=False)
        assert (answer.status, b"bucket" in answer.body) == (503, False)
        assert server.ask("/healthz", token=False).status == 200
        server.not_ready = ""
        assert server.ask("/readyz", token=False).status == 200
