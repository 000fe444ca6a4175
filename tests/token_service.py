"""A token service of a registry: what it grants, and signed tokens as the distribution project's registries read."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.loopback import LoopbackServer

SERVICE = "registry of a test"
Access = list[dict[str, Any]]


@dataclass
class TokenPolicy:
    """What a token service grants to its one user."""

    login: tuple[str, str]
    single_scopes: bool = False
    """It takes one scope per request, as some do."""
    forbidden: set[str] = field(default_factory=set)
    """Repositories of which nothing is granted."""
    exists: Callable[[str], bool] = lambda _: True
    """Whether a repository exists. `pull` alone is not granted of one that does not."""
    denial: int | None = None
    """Status where nothing is granted. None: 200 and a token without the access, as Docker Hub answers."""
    asked: list[list[str]] = field(default_factory=list)
    """Scopes of each token, in order."""

    def answer(self, authorization: str, asked: dict[str, list[str]]) -> tuple[int, Access]:
        """Return the status, and what a token for these parameters is good for."""
        scopes = [scope for each in asked.get("scope", []) for scope in each.split()]
        self.asked.append(scopes)
        basic = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        if authorization != basic and asked.get("refresh_token") != ["identity"]:
            return 401, []
        if self.single_scopes and len(scopes) > 1:
            return 400, []
        granted = [
            {"type": kind, "name": name, "actions": [] if self.denies(name, actions) else actions.split(",")}
            for kind, name, actions in (scope.split(":") for scope in scopes)
        ]
        return (200, granted) if all(each["actions"] for each in granted) else (self.denial or 200, granted)

    def denies(self, name: str, actions: str) -> bool:
        return name in self.forbidden or (actions == "pull" and not self.exists(name))


class TokenService:
    """A server that signs tokens. `auth` is the configuration of a registry that trusts it."""

    def __init__(self, folder: Path, policy: TokenPolicy) -> None:
        self._key, certificate = folder / "token.key", folder / "token.crt"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens"]
        subprocess.run([*command, "-keyout", self._key, "-out", certificate], check=True, capture_output=True)
        self._chain = ["".join(certificate.read_text().splitlines()[1:-1])]
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                status, access = policy.answer(self.headers.get("Authorization", ""), asked)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps({"token": service.token(access)} if status == 200 else {}).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = LoopbackServer(Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        realm = f"http://127.0.0.1:{self._server.server_port}/token"
        self.auth = {"realm": realm, "service": SERVICE, "issuer": "tests", "rootcertbundle": str(certificate)}

    def token(self, access: Access) -> str:
        """Return a token that is good for some access, for a minute."""

        def encoded(content: bytes) -> bytes:
            return base64.urlsafe_b64encode(content).rstrip(b"=")

        now = int(time.time())
        claims = {"iss": "tests", "aud": SERVICE, "nbf": now - 5, "exp": now + 60, "access": access}
        header = {"typ": "JWT", "alg": "RS256", "x5c": self._chain}
        signed = b".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", self._key]
        signature = subprocess.run(command, input=signed, capture_output=True, check=True).stdout
        return (signed + b"." + encoded(signature)).decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
