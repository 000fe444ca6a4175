"""Application: what a server serves. Every request passes the guard; every response has the headers and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from urllib.parse import parse_qs

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from torchx_pulumi_fleet.views.columns import summary
from torchx_pulumi_fleet.views.page import fleet_page, part
from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.access import ENTRANCES, Asked, PageAccess, Refusal
from torchx_pulumi_fleet.web.api import Api, json_response, to_json
from torchx_pulumi_fleet.web.bounds import Counted, CutError, Shared, Slots, UnreadError, bounded_send
from torchx_pulumi_fleet.web.page import login_page, message_page
from torchx_pulumi_fleet.web.site import Site

FORM = "application/x-www-form-urlencoded"

FRAMES = "frame-ancestors 'none'"
"""Rule of the security policies; it counts only in the header of a response."""

NO_LOGS = (
    "<p>Logs are not served: this controller was started with --no-auth, and a log may contain what only its owners "
    "should read. Start it with --token-file instead.</p>"
)
"""In the place of the view of a log."""


class Application:
    """An ASGI application over a site."""

    def __init__(self, site: Site, access: PageAccess) -> None:
        """Take what is shown, and who may see it."""
        self._site, self._access = site, access
        self._api = Api(site, secured=access.token is not None)
        self._shared_page = Shared(self._api.workers, self._page)
        requests = Middleware(Counted, slots=Slots(limits.REQUESTS, "requests"))
        # Of their own: a form that comes slowly needs no token.
        logins = Middleware(Counted, slots=Slots(limits.LOGINS, "logins"))
        packed = Middleware(GZipMiddleware, compresslevel=6)
        routes = [Route("/", self._entrance, methods=["GET"], middleware=[requests, packed])]
        routes += [Route("/login", self._login, methods=["GET", "POST"], middleware=[logins])]
        routes += [
            Route(each.path, each.respond, methods=["GET"], middleware=[requests, packed] if each.bounded else [])
            for each in self._api.operations
        ]
        self._routes = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
        # A redirect to the path without its last slash would name this server, not an ingress before it.
        self._routes.router.redirect_slashes = False

    def close(self) -> None:
        """End streams and logs. From any thread."""
        self._api.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        try:
            await self._guarded(scope, receive, bounded_send(scope, send))
        except (UnreadError, CutError, ClientDisconnect):
            return
        except Exception as error:
            text = f"{type(error).__name__}: {error}; please report this error"
            self._site.report(f"request {scope['path']}", f"a request of {scope['path']} failed: {text}")
            # The server ends the connection, so that half an answer is not taken for a whole one.
            raise

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope)
        allowed = self._access.may(asked)
        refusal = _head_refusal(scope) or self._access.refusal(asked) or _body_refusal(asked)
        if refusal is None and not allowed and asked.path not in ENTRANCES:
            refusal = Refusal(status=401, message=NO_TOKEN, headers={"WWW-Authenticate": "Bearer"})
        if refusal is not None:
            await _failure(asked.path, refusal.status, refusal.message, refusal.headers)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(allowed=allowed, may=lambda: self._access.may(asked))
        await self._routes(scope, receive, send)

    async def _entrance(self, request: Request) -> Response:
        token = request.query_params.get("token")
        if token is None or not self._access.is_token(token):
            if request.state.allowed:
                return _html(*await self._shared_page.get((self._site.fleet.version, self._site.remarks())))
            return _login_form(WRONG_TOKEN if token else "")
        # A redirect would belong to a navigation that another program began, for which browsers leave out cookies of
        # `SameSite=Strict`. This page begins one of its own.
        answer = _message(message_page("Logged in", "The apps are shown now.", forward=True))
        answer.headers["Set-Cookie"] = self._cookie(request)
        return answer

    def _page(self) -> tuple[bytes, str]:
        site, now = self._site, datetime.now(timezone.utc)
        # Read before the apps, so that the stream repeats a change and leaves none out.
        version = self._api.stream.name(site.fleet.version)
        page, policy = fleet_page(
            [summary(app.shown(now)) for app in site.fleet.apps()],
            title="TorchX apps",
            backends=site.backends,
            problems=site.remarks(),
            read_at=now,
            version=version,
            log=NO_LOGS if site.logs is None else part("log.html"),
        )
        return _encoded(page), policy

    async def _login(self, request: Request) -> Response:
        if request.state.allowed:
            return Response(status_code=303, headers={"Location": "./"})
        if request.method != "POST":
            return _login_form()
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise HTTPException(415, f"the form is sent as {FORM}")
        form = parse_qs((await _body(request)).decode(errors="replace"))
        if not self._access.is_token(form.get("token", [""])[0].strip()):
            return _login_form("This token is not valid.")
        return Response(status_code=303, headers={"Location": "./", "Set-Cookie": self._cookie(request)})

    def _cookie(self, request: Request) -> str:
        return self._access.cookie(secure=request.headers.get("x-forwarded-proto") == "https")


WRONG_TOKEN = "The token in the URL is not valid; the controller prints the valid one when it starts."  # noqa: S105
NO_TOKEN = "a token is needed: open the URL that the controller printed, or send `Authorization: Bearer TOKEN`"  # noqa: S105


def _asked(scope: Scope) -> Asked:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    server = scope.get("server")
    address = str(server[0]) if server else ""
    return Asked(method=scope["method"], path=scope["path"], headers=headers, address=address)


def _head_refusal(scope: Scope) -> Refusal | None:
    # The parser counts only what arrives in parts.
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    if fields + len(scope["raw_path"]) + len(scope["query_string"]) <= limits.HEAD_BYTES:
        return None
    text = f"first line and headers are too large, allowed are {limits.HEAD_BYTES} bytes"
    return Refusal(status=431, message=text, headers={"Connection": "close"})


def _body_refusal(asked: Asked) -> Refusal | None:
    has_body = asked.headers.get("content-length", "0") != "0" or "transfer-encoding" in asked.headers
    if not has_body or (asked.path, asked.method) == ("/login", "POST"):
        return None
    return Refusal(status=413, message="requests have no body here", headers={"Connection": "close"})


async def _body(request: Request) -> bytes:
    body = b""
    with anyio.move_on_after(limits.BODY_S):
        async for part in request.stream():
            body += part
            if len(body) > limits.BODY_BYTES:
                raise HTTPException(413, "the form is too large", headers={"Connection": "close"})
        return body
    raise HTTPException(408, "the form did not arrive in time", headers={"Connection": "close"})


async def _failed(request: Request, _error: Exception) -> Response:
    return _failure(request.url.path, 500, "the controller failed; its log says how")


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _failure(request.url.path, error.status_code, error.detail, error.headers)


def _failure(path: str, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a page for people who look at the page, and JSON for programs."""
    if path in ENTRANCES:
        response = _message(message_page(HTTPStatus(status).phrase, message))
    else:
        response = json_response(to_json({"error": {"status": status, "message": message}}))
    response.status_code = status
    response.headers.update(headers or {})
    return response


def _login_form(message: str = "") -> Response:
    response = _message(login_page(message))
    response.status_code = 401
    # Without it, browsers send the form with the origin "null".
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def _message(page: tuple[str, str]) -> Response:
    text, policy = page
    return _html(_encoded(text), policy)


def _html(page: bytes, policy: str) -> Response:
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": f"{policy}; {FRAMES}"})


def _encoded(page: str) -> bytes:
    return page.encode(errors="replace")
