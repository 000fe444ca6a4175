"""A registry in this process: manifests by repository and tag, logins, and answers that fail on purpose."""

from __future__ import annotations

import base64
import threading
from http.server import BaseHTTPRequestHandler

from tests.loopback import LoopbackServer


class FakeRegistry:
    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        """`path:version` to digest."""
        self.failures: list[int] = []
        """Codes that the next requests get."""
        self.retry_after: str | None = None
        self.login: tuple[str, str] | None = None
        self.bearer = False
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                registry.asked.append(f"{self.command} {self.path}")
                if registry.failures:
                    self.send_response(registry.failures.pop(0))
                    if registry.retry_after:
                        self.send_header("Retry-After", registry.retry_after)
                    return self.finish_answer()
                if self.path.startswith("/token"):
                    return self.answer_token()
                if registry.login and not self.allowed():
                    self.send_response(401)
                    kind = f'Bearer realm="{registry.url}/token",service="fake"' if registry.bearer else "Basic realm=x"
                    self.send_header("WWW-Authenticate", kind)
                    return self.finish_answer()
                path, _, version = self.path.removeprefix("/v2/").rpartition("/manifests/")
                digest = registry.digests.get(f"{path}:{version}")
                self.send_response(200 if digest else 404)
                if digest:
                    self.send_header("Docker-Content-Digest", digest)
                return self.finish_answer()

            do_GET = do_HEAD

            def allowed(self) -> bool:
                given = self.headers.get("Authorization", "")
                return given == "Bearer good" if registry.bearer else given == registry.basic()

            def answer_token(self) -> None:
                good = self.headers.get("Authorization") == registry.basic()
                self.send_response(200 if good else 401)
                self.finish_answer(b'{"token": "good"}' if good else b"{}")

            def finish_answer(self, body: bytes = b"") -> None:
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = LoopbackServer(Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def basic(self) -> str:
        assert self.login is not None
        return "Basic " + base64.b64encode(":".join(self.login).encode()).decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
