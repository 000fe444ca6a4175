"""Queues for the page: what a cluster says of them, as far as it is watched."""

from __future__ import annotations

from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE
from torchx_pulumi_fleet.web.serving import queues_of

from tests.fleet.web.nodes import Site
from tests.fleet.web.site_server import served
from tests.fleet.web.test_requests import check
from tests.fleet.writer.world import wait_for

QUEUE = {
    "apiVersion": VOLCANO_QUEUE.api_version,
    "kind": "Queue",
    "metadata": {"name": "research"},
    "spec": {"capability": {"cpu": "2k", "memory": "1Ti"}},
    "status": {"allocated": {"cpu": "1500m", "nvidia.com/gpu": "8", "pods": "4"}},
}


def test_a_queue_has_what_it_may_use_and_was_given_and_one_that_is_not_watched_is_left_out() -> None:
    site = Site()
    site.cluster.put(QUEUE)
    assert [*queues_of([site.view])] == []
    with site.watched():
        wait_for(lambda: site.view.watched.is_synced(VOLCANO_QUEUE, None))
        found = [*queues_of([site.view])]
    given = {"capability": {"cpu": 2000.0}, "allocated": {"cpu": 1.5, "gpu": 8.0}}
    assert found == [{"cluster": "test", "name": "research", **given}]
    with served(queues=lambda: found) as server:
        document = server.ask("/api/v1/openapi.json").json
        answer = server.ask("/api/v1/queues").json
    assert answer == {"queues": found}
    check(answer, {"$ref": "#/components/schemas/Queues"}, document)
