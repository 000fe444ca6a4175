"""Api: the answers of `/api/v1`, and the table of everything that the server answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from torchx_pulumi.controller.live_fleet import LiveApp
from torchx_pulumi.fleet.collect.selection import read_selection
from torchx_pulumi.model.status import JobState
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.schedulers import scheduler_names
from torchx_pulumi.web import limits
from torchx_pulumi.web.bounds import Slots, Workers
from torchx_pulumi.web.openapi import openapi_document
from torchx_pulumi.web.operations import Operation, Parameter, read_parameters
from torchx_pulumi.web.schemas import reference
from torchx_pulumi.web.site import Site
from torchx_pulumi.web.stream import FleetStream
from torchx_pulumi.web.values import detail, summary

API = "/api/v1"

MOST_APPS = 5000
"""Apps on one page of the list."""

SEARCHED: Final = ("app_id", "name", "stack", "user", "queue", "reason", "cause")
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
        self.stream = FleetStream(site, self.workers)
        self._streams = Slots(limits.STREAMS, "streams")
        self.operations = self._operations()
        self._document = to_json(openapi_document(self.operations, secured=secured))

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

    async def _apps(self, request: Request) -> Response:
        values = read_parameters(request.query_params, LIST_PARAMETERS)
        return json_response(await self.workers.run(self._list, values))

    def _list(self, values: dict[str, Any]) -> str:
        site, now = self._site, datetime.now(timezone.utc)
        filters = ("state", "namespace", "scheduler", "queue", "user")
        selection = read_selection(**{name: values[name] for name in filters})
        version = site.fleet.version
        found = [summary(app, now) for app in site.fleet.apps() if selection.wants(app.row(now))]
        wanted = (values["search"] or "").casefold()
        found = [app for app in found if any(wanted in (app[name] or "").casefold() for name in SEARCHED)]
        total = len(found)
        # Two sorts: the youngest first, and of one second in the order of their ids.
        found.sort(key=lambda app: str(app["id"]))
        found.sort(key=lambda app: app["launched_at"] or "", reverse=True)
        if values["cursor"] is not None:
            found = [app for app in found if _comes_after(app, values["cursor"])]
        shown = found[: values["limit"] or MOST_APPS]
        return to_json(
            {
                "version": self.stream.name(version),
                "read_at": format_time(now),
                "backends": list(site.backends),
                "problems": list(site.remarks()),
                "total": total,
                "apps": shown,
                "next": _cursor(shown[-1]) if len(shown) < len(found) else None,
            }
        )

    async def _app(self, request: Request) -> Response:
        read_parameters(request.query_params, ())
        app, now = self._find(request), datetime.now(timezone.utc)
        return json_response(to_json(detail(app, now, logs=self._site.serves_logs)))

    def _find(self, request: Request) -> LiveApp:
        app = self._site.fleet.find(request.path_params["id"])
        if app is None:
            raise HTTPException(404, "there is no app of this id; its stack may have been removed")
        return app

    async def _stream(self, request: Request) -> Response:
        values = read_parameters(request.query_params, STREAM_PARAMETERS)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        since = self.stream.read_name(request.headers.get("last-event-id") or values["since"])
        events = self.stream.events(since, request.state.may)
        return CountedStream(self._streams, events, headers=headers, media_type="text/event-stream")

    async def _openapi(self, request: Request) -> Response:
        read_parameters(request.query_params, ())
        return json_response(self._document)

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        # Without a token, so that it does not say which backend or cluster is missing.
        if self._site.not_ready():
            return PlainTextResponse("not everything has been read yet\n", 503)
        return PlainTextResponse("ok\n")


class CountedStream(StreamingResponse):
    """A stream that counts while it is sent."""

    def __init__(self, slots: Slots, content: Any, **more: Any) -> None:
        """Count it.

        Raises:
            HTTPException: 503; there are as many as may be.
        """
        super().__init__(content, **more)
        self._slots = slots
        slots.take()

    async def __call__(self, *call: Any) -> None:
        """Send it."""
        try:
            await super().__call__(*call)
        finally:
            self._slots.give()


def to_json(values: object) -> str:
    """Return JSON without blanks."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def json_response(text: str) -> Response:
    """Return an answer in JSON."""
    # A lone surrogate, which UTF-8 cannot encode, may be in any name.
    return Response(text.encode(errors="replace"), media_type="application/json")


def _cursor(app: dict[str, Any]) -> str:
    return f"{app['launched_at'] or ''}_{app['id']}"


def _comes_after(app: dict[str, Any], cursor: str) -> bool:
    launched, _, name = cursor.rpartition("_")
    own = app["launched_at"] or ""
    return own < launched or (own == launched and app["id"] > name)
