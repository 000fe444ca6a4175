"""A server for git repositories by HTTPS on loopback: Pulumi's CLI takes plugins from no other kind of URL."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from email.parser import BytesHeaderParser
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.loopback import Certificates, LoopbackServer


@contextlib.contextmanager
def serve_git(repositories: Path, certificates: Certificates, host: str, port: int) -> Iterator[None]:
    """Serve the bare repositories below a folder with git's own program for servers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(repositories),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            answer = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=True)
            head, _, content = answer.stdout.partition(b"\r\n\r\n")
            headers = BytesHeaderParser().parsebytes(head)
            self.send_response(int(headers.get("Status", "200").split()[0]))
            self.send_header("Content-Type", headers["Content-Type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with LoopbackServer(Handler, port, host) as server:
        server.socket = certificates.context(clients=False).wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()
