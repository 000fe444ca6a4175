"""Api: the answers of `/api/v1`, and the table of everything that the server answers."""

from __future__ import annotations

import json
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.model.status import JobState
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.schedulers import scheduler_names

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp
from torchx_pulumi_fleet.views.columns import detail, searched_keys, summary
from torchx_pulumi_fleet.views.selection import read_selection
from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.answers import Apps, Queues
from torchx_pulumi_fleet.web.bounds import Shared, Slots, Workers
from torchx_pulumi_fleet.web.log_pipe import LogPipe
from torchx_pulumi_fleet.web.logs import NOTE, LogRequest, status_of
from torchx_pulumi_fleet.web.operations import Operation, Parameter, Values, openapi_document
from torchx_pulumi_fleet.web.schemas import reference
from torchx_pulumi_fleet.web.site import Site
from torchx_pulumi_fleet.web.stream import FleetStream

API = "/api/v1"

MOST_APPS = 5000
"""Apps on one page of the list."""

SEARCHED: Final = tuple(searched_keys())
"""Fields that `search` looks in."""

LIST_PARAMETERS: Final = (
    Parameter(
        name="state",
        text="States; `active` is every state that is not final. Without it: all.",
        repeated=True,
        allowed=(*(state.value for state in JobState), "active"),
    ),
    Parameter(name="namespace", text="Namespaces. Without it: all.", repeated=True),
    Parameter(name="scheduler", text="Schedulers. Without it: all.", repeated=True, allowed=tuple(scheduler_names())),
    Parameter(name="queue", text="Queues. Without it: all.", repeated=True),
    Parameter(name="user", text="Users who launched them. Without it: all.", repeated=True),
    Parameter(name="search", text=f"A part, in any case, of one of {', '.join(SEARCHED)}."),
    Parameter(name="limit", text=f"Apps of a page. Without it: {MOST_APPS}.", kind="integer", least=1, most=MOST_APPS),
    Parameter(name="cursor", text="`next` of the page before. Without it: the first page."),
)

STREAM_PARAMETERS: Final = (
    Parameter(name="since", text="Version that the client has. Without it, and without `Last-Event-ID`: all apps."),
)

LOG_PARAMETERS: Final = (
    Parameter(name="role", text="Name of the role.", required=True),
    Parameter(name="replica", text="Replica in the role, from 0.", kind="integer", required=True),
    Parameter(
        name="attempt",
        text="Number of the attempt, of those whose logs are kept. Without it: the present one.",
        kind="integer",
        least=1,
    ),
    Parameter(name="run", text="Uid of the run's job object, or its beginning. Without it: the present run."),
    Parameter(name="container", text="Name of a container. Without it: that of the role."),
    Parameter(name="tail", text="Lines at the end to begin with. Without it: all.", kind="integer"),
    Parameter(
        name="since",
        text="Leave out lines from before this time. Without it: none. Without `follow` and `attempt`, lines that the "
        "attempt before the present one wrote since come first.",
        kind="time",
    ),
    Parameter(name="follow", text="Go on until the app has ended. Without it: false.", kind="boolean"),
    Parameter(name="timestamps", text="Each line begins with its time. Without it: true.", kind="boolean"),
)

LIVE_HEADERS: Final = {"X-Accel-Buffering": "no"}
"""Headers of answers that go on: a proxy passes each part on at once."""


class Api:
    """The answers of one site."""

    def __init__(self, site: Site, *, secured: bool) -> None:
        """Take the site.

        Args:
            site: What is shown.
            secured: A token is needed.
        """
        self._site = site
        self.workers = Workers()
        self._shared_metrics = Shared(self.workers, site.metrics)
        self._shared_queues = Shared(self.workers, lambda: to_json(Queues(queues=site.queues())))
        self.stream = FleetStream(site, self.workers)
        self._streams = Slots(limits.STREAMS, "streams")
        self._log_slots = Slots(limits.LOGS, "logs")
        self._pipes: weakref.WeakSet[LogPipe] = weakref.WeakSet()
        self.operations = self._operations()
        self._document = to_json(openapi_document(self.operations, secured=secured))

    def close(self) -> None:
        """End streams and logs. From any thread."""
        self.stream.close()
        for pipe in [*self._pipes]:
            pipe.close()

    def _operations(self) -> Sequence[Operation]:
        return (
            Operation(
                path=f"{API}/apps",
                name="listApps",
                text="Apps, the youngest first.",
                answer=self._apps,
                schema=reference("Apps"),
                parameters=LIST_PARAMETERS,
            ),
            Operation(
                path=f"{API}/apps/{{id}}",
                name="getApp",
                text="Everything that is known of an app.",
                answer=self._app,
                schema=reference("App"),
                failures=(404,),
            ),
            Operation(
                path=f"{API}/stream",
                name="streamChanges",
                text="Changes as server-sent events: events of the type `fleet`, each with a `Fleet` as its data.",
                answer=self._stream,
                media_type="text/event-stream",
                parameters=STREAM_PARAMETERS,
                bounded=False,
            ),
            Operation(
                path=f"{API}/queues",
                name="listQueues",
                text="Queues of the watched clusters that can be read.",
                answer=self._queues,
                schema=reference("Queues"),
            ),
            Operation(
                path=f"{API}/apps/{{id}}/events",
                name="listEvents",
                text="Events of the app's objects in its cluster, the newest first.",
                answer=self._events,
                schema=reference("Events"),
                failures=(404, 502),
            ),
            Operation(
                path=f"{API}/apps/{{id}}/runs",
                name="listRuns",
                text="Runs of the app with their attempts, and the updates of its stack, the newest first.",
                answer=self._runs,
                schema=reference("Runs"),
                failures=(404,),
            ),
            Operation(
                path=f"{API}/apps/{{id}}/logs",
                name="readLog",
                text=f"The log of a replica. Lines that begin with `{NOTE.strip()}` are not of the log: the first one "
                "says where it is read from, and the last one why it goes no further.",
                answer=self._logs,
                media_type="text/plain",
                parameters=LOG_PARAMETERS,
                failures=(404, 409, 502),
                bounded=False,
            ),
            Operation(
                path="/metrics",
                name="getMetrics",
                text="Metrics for Prometheus.",
                answer=self._metrics,
                media_type="text/plain",
            ),
            Operation(
                path=f"{API}/openapi.json",
                name="getDocument",
                text="This document.",
                answer=self._openapi,
                schema={"type": "object"},
            ),
            Operation(
                path="/healthz",
                name="isAlive",
                text="The process answers.",
                answer=self._healthz,
                media_type="text/plain",
                open=True,
                bounded=False,
            ),
            Operation(
                path="/readyz",
                name="isReady",
                text="All backends and clusters have been read once.",
                answer=self._readyz,
                media_type="text/plain",
                open=True,
                failures=(503,),
                bounded=False,
            ),
        )

    async def _apps(self, _request: Request, values: Values) -> Response:
        return json_response(await self.workers.run(self._list, values))

    def _list(self, values: Values) -> str:
        site, now = self._site, datetime.now(timezone.utc)
        filters = ("state", "namespace", "scheduler", "queue", "user")
        selection = read_selection(**{name: values[name] for name in filters})
        version = site.fleet.version
        apps = (app.shown(now) for app in site.fleet.apps())
        found = [summary(app) for app in apps if selection.wants(app.row)]
        wanted = (values["search"] or "").casefold()
        found = [app for app in found if any(wanted in (app[name] or "").casefold() for name in SEARCHED)]
        total = len(found)
        # Two sorts: the youngest first, and of one second in the order of their ids.
        found.sort(key=lambda app: str(app["id"]))
        found.sort(key=lambda app: app["launched_at"] or "", reverse=True)
        if values["cursor"] is not None:
            found = [app for app in found if _comes_after(app, values["cursor"])]
        shown = found[: values["limit"] or MOST_APPS]
        answer: Apps = {
            "version": self.stream.name(version),
            "read_at": format_time(now),
            "backends": list(site.backends),
            "problems": list(site.remarks()),
            "total": total,
            "apps": shown,
            "next": f"{shown[-1]['launched_at'] or ''}_{shown[-1]['id']}" if len(shown) < len(found) else None,
        }
        return to_json(answer)

    async def _app(self, request: Request, _values: Values) -> Response:
        app, now = self._find(request), datetime.now(timezone.utc)
        return json_response(to_json({**detail(app.shown(now)), "logs": self._site.logs is not None}))

    def _find(self, request: Request) -> LiveApp:
        app = self._site.fleet.find(request.path_params["id"])
        if app is None:
            raise HTTPException(404, "there is no app of this id; its stack may have been removed")
        return app

    async def _stream(self, request: Request, values: Values) -> Response:
        if request.method == "HEAD":
            return Response(headers=LIVE_HEADERS, media_type="text/event-stream")
        since = self.stream.read_name(request.headers.get("last-event-id") or values["since"])
        events = self.stream.events(since, request.state.may)
        self._streams.take()
        return OpenResponse(events, "text/event-stream", self._streams.give)

    async def _events(self, request: Request, _values: Values) -> Response:
        app = self._find(request)
        try:
            events = await self.workers.run(self._site.events, app)
        except TorchxPulumiError as error:
            raise _failure_of(error) from error
        return json_response(to_json({"events": list(events)}))

    async def _queues(self, _request: Request, _values: Values) -> Response:
        return json_response(await self._shared_queues.get())

    async def _runs(self, request: Request, _values: Values) -> Response:
        app = self._find(request)
        return json_response(to_json(await self.workers.run(self._site.runs, app)))

    async def _logs(self, request: Request, values: Values) -> Response:
        app, opened = self._find(request), self._site.logs
        if opened is None:
            raise HTTPException(403, "logs are not served without a token: the controller was started with --no-auth")
        if request.method == "HEAD":
            return PlainTextResponse(headers=LIVE_HEADERS)
        wanted = LogRequest(**{name: value for name, value in values.items() if value is not None})
        self._log_slots.take()
        pipe = LogPipe(partial(opened, app, wanted), self._log_slots.give)
        self._pipes.add(pipe)
        try:
            await pipe.begun()
        except TorchxPulumiError as error:
            raise _failure_of(error) from error
        except BaseException:
            pipe.close()
            raise
        return OpenResponse(pipe.parts(request.state.may), "text/plain", pipe.close)

    async def _metrics(self, _request: Request, _values: Values) -> Response:
        text, media_type = await self._shared_metrics.get()
        return Response(text, media_type=media_type)

    async def _openapi(self, _request: Request, _values: Values) -> Response:
        return json_response(self._document)

    async def _healthz(self, _request: Request, _values: Values) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request, _values: Values) -> Response:
        # Without a token, so that it does not say which backend or cluster is missing.
        if self._site.not_ready():
            return PlainTextResponse("not everything has been read yet\n", 503)
        return PlainTextResponse("ok\n")


class OpenResponse(StreamingResponse):
    """A response that goes on, and a function that is called when it ends, also where nothing of it was sent."""

    def __init__(self, content: AsyncIterator[bytes], media_type: str, ended: Callable[[], None]) -> None:
        """Take what is sent, and the function."""
        super().__init__(content, headers=LIVE_HEADERS, media_type=media_type)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _failure_of(error: TorchxPulumiError) -> HTTPException:
    status = status_of(error)
    headers = {"Retry-After": str(limits.RETRY_AFTER_S)} if status == 503 else {}
    return HTTPException(status, str(error), headers=headers)


def to_json(values: object) -> str:
    """Return JSON without blanks."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def json_response(text: str) -> Response:
    """Return an answer in JSON."""
    # A lone surrogate, which UTF-8 cannot encode, may be in any name.
    return Response(text.encode(errors="replace"), media_type="application/json")


def _comes_after(app: dict[str, Any], cursor: str) -> bool:
    launched, _, name = cursor.rpartition("_")
    own = app["launched_at"] or ""
    return own < launched or (own == launched and app["id"] > name)
