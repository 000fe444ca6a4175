"""A registry in this process: blobs, manifests and uploads by repository, logins, and faults on purpose."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchx_pulumi.images.oci import OCI_MANIFEST, sha256_digest

from tests.loopback import LoopbackServer
from tests.token_service import SERVICE, Access, TokenPolicy


@dataclass
class Stored:
    """A repository."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Digest to media type and content."""
    tags: dict[str, str] = field(default_factory=dict)


class FakeRegistry:
    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        """`path:version` to digest, of manifests without content."""
        self.stored: dict[str, Stored] = {}
        self.uploads: set[str] = set()
        self.failures: list[int] = []
        """Codes that the next requests get."""
        self.failure_body = b""
        self.refuse_uploads: int | None = None
        """Code that uploads get, with `failure_body`."""
        self.refusals: int | None = None
        """How often. None: always."""
        self.retry_after: str | None = None
        self.login: tuple[str, str] | None = None
        """Asked for by Basic authentication. None: by the tokens of `policy`, or not at all."""
        self.policy: TokenPolicy | None = None
        """Its token service. None: it has none."""
        self.token_lives = 1_000_000
        """Requests that a token is good for."""
        self.cut_uploads: list[int | None] = []
        """Bytes of the next bodies after which the connection is dropped. None: not at all."""
        self.cut_downloads: list[int | None] = []
        """The same for the next blobs that are read."""
        self.lost_answers: set[str] = set()
        """Methods whose next request is done, and not answered."""
        self.storage: FakeRegistry | None = None
        """Blobs are there, and reads are redirected to it."""
        self.redirects_heads = False
        self.mounts = self.ranges = True
        self.lost_uploads = 0
        """How many of the next uploads are gone once they were begun."""
        self.quota: int | None = None
        """Bytes that may be uploaded in all."""
        self.recompresses = False
        """Manifests are stored as something else."""
        self.forgets: set[str] = set()
        """Digests of blobs that are gone when the next manifest arrives."""
        self.asked: list[str] = []
        self.realm: str | None = None
        """Address of the token service. None: the registry."""
        self.connections = 0
        self.names: list[str | None] = []
        """Common name in the certificate of the client of each request."""
        self.bodies = 0
        """Bytes of all bodies that arrived."""
        self.authorizations: list[str] = []
        """What requests other than those for tokens brought, in order."""
        self._tokens: dict[str, tuple[int, Access]] = {}
        self._guard = threading.Lock()
        self._server = LoopbackServer(type("Handler", (_Handler,), {"registry": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def secure(self, context: ssl.SSLContext) -> None:
        """Use TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def repository(self, path: str) -> Stored:
        return self.stored.setdefault(path, Stored())

    def use_tokens(self, **more: Any) -> TokenPolicy:
        """Ask for tokens of a service that knows which repositories exist. Return its policy."""
        self.policy = TokenPolicy(("me", "right"), exists=lambda path: bool(self.repository(path).tags), **more)
        return self.policy

    def basic(self) -> str:
        assert self.login is not None
        return "Basic " + base64.b64encode(":".join(self.login).encode()).decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _name(connection: Any) -> str | None:
    shown = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    return dict(pair[0] for pair in shown["subject"])["commonName"] if shown else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: FakeRegistry
    body = b""

    def setup(self) -> None:
        self.registry.connections += 1
        super().setup()

    def handle_any(self) -> None:
        registry = self.registry
        with registry._guard:
            registry.names.append(_name(self.connection))
            registry.asked.append(f"{self.command} {self.path.partition('?')[0]}")
            cut = registry.cut_uploads.pop(0) if registry.cut_uploads and self.command == "PUT" else None
        self.parts = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(self.parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length if cut is None else min(cut, length))
        self.made: tuple[int, bytes, dict[str, str], int | None] | None = None
        with registry._guard:
            registry.bodies += len(self.body)
            if cut is None or cut >= length:
                self.decide()
        # Not under the lock: the client may ask for more before it reads on.
        self.send()

    def decide(self) -> None:
        registry = self.registry
        if registry.failures:
            headers = {"Retry-After": registry.retry_after} if registry.retry_after else {}
            self.answer(registry.failures.pop(0), registry.failure_body, headers)
            return
        if self.parts.path == "/token":
            self.answer_token()
            return
        registry.authorizations.append(self.headers.get("Authorization", ""))
        if challenge := self.challenge():
            self.answer(401, b"", {"WWW-Authenticate": challenge})
            return
        self.serve()
        if self.command in registry.lost_answers:
            registry.lost_answers.remove(self.command)
            self.made = None

    do_HEAD = do_GET = do_POST = do_PUT = handle_any

    def serve(self) -> None:
        path = self.parts.path.removeprefix("/v2/")
        for word in ("/blobs/uploads/", "/manifests/", "/blobs/"):
            name, found, rest = path.partition(word)
            if found:
                getattr(self, {"/blobs/uploads/": "upload", "/manifests/": "manifest"}.get(word, word.strip("/")))(
                    name, rest
                )
                return
        self.refuse(404, "NAME_UNKNOWN")

    def manifest(self, name: str, version: str) -> None:
        registry, known = self.registry, self.registry.digests.get(f"{name}:{version}")
        stored = registry.repository(name)
        if self.command in ("HEAD", "GET"):
            if known:
                return self.answer(200, b"", {"Docker-Content-Digest": known})
            digest = stored.tags.get(version, version)
            if digest not in stored.manifests:
                return self.refuse(404, "MANIFEST_UNKNOWN")
            media_type, content = stored.manifests[digest]
            return self.answer(200, content, {"Docker-Content-Digest": digest, "Content-Type": media_type})
        content = self.body
        described = json.loads(content)
        stored.blobs = {each: blob for each, blob in stored.blobs.items() if each not in registry.forgets}
        registry.forgets.clear()
        missing = [
            each["digest"]
            for each in [described["config"], *described["layers"]]
            if each["digest"] not in stored.blobs and not each.get("urls")
        ]
        if missing:
            return self.refuse(404, "MANIFEST_BLOB_UNKNOWN", missing[0])
        if registry.recompresses:
            content += b"\n"
        digest = sha256_digest(content)
        stored.manifests[digest] = (self.headers.get("Content-Type", OCI_MANIFEST), content)
        if not version.startswith("sha256:"):
            stored.tags[version] = digest
        return self.answer(201, b"", {"Docker-Content-Digest": digest})

    def blobs(self, name: str, digest: str) -> None:
        content = self.registry.repository(name).blobs.get(digest)
        if content is None:
            return self.refuse(404, "BLOB_UNKNOWN", digest)
        if self.registry.storage is not None and (self.command == "GET" or self.registry.redirects_heads):
            there = f"{self.registry.storage.url}/v2/{name}/blobs/{digest}"
            return self.answer(307, b"", {"Location": there})
        code, headers, begin = 200, {"Content-Type": "application/octet-stream"}, 0
        asked = self.headers.get("Range")
        if asked and self.registry.ranges:
            begin = int(asked.removeprefix("bytes=").partition("-")[0])
            code, headers["Content-Range"] = 206, f"bytes {begin}-{len(content) - 1}/{len(content)}"
        cuts = self.registry.cut_downloads
        cut = cuts.pop(0) if cuts and self.command == "GET" else None
        return self.answer(code, content[begin:], headers, cut)

    def upload(self, name: str, number: str) -> None:
        registry, stored = self.registry, self.registry.repository(name)
        if registry.refuse_uploads and registry.refusals != 0:
            registry.refusals = registry.refusals and registry.refusals - 1
            return self.answer(registry.refuse_uploads, registry.failure_body)
        if self.command == "POST":
            digest, source = self.query.get("mount", ""), self.query.get("from", "")
            content = registry.stored.get(source, Stored()).blobs.get(digest)
            if registry.mounts and content is not None:
                stored.blobs[digest] = content
                return self.answer(201, b"", {"Location": f"/v2/{name}/blobs/{digest}"})
            number = uuid.uuid4().hex
            registry.uploads.add(number)
            if registry.lost_uploads:
                registry.lost_uploads -= 1
                registry.uploads.clear()
            return self.answer(202, b"", {"Location": f"/v2/{name}/blobs/uploads/{number}"})
        if number not in registry.uploads:
            return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        if registry.quota is not None and len(self.body) > registry.quota:
            return self.refuse(403, "DENIED", "quota of the project is exceeded")
        registry.uploads.remove(number)
        digest = self.query["digest"]
        if sha256_digest(self.body) != digest:
            return self.refuse(400, "DIGEST_INVALID")
        stored.blobs[digest] = self.body
        return self.answer(201, b"", {"Location": f"/v2/{name}/blobs/{digest}"})

    def challenge(self) -> str | None:
        """Return the challenge of a request, in the words of the distribution project. None: it is allowed."""
        given, registry = self.headers.get("Authorization", ""), self.registry
        if registry.policy is None:
            return "Basic realm=x" if registry.login and given != registry.basic() else None
        left, access = registry._tokens.get(given.removeprefix("Bearer "), (0, []))
        registry._tokens[given.removeprefix("Bearer ")] = (left - 1, access)
        may = {(each["name"], action) for each in access for action in each["actions"]}
        path = re.split("/(?:manifests|blobs)/", self.parts.path.removeprefix("/v2/"))[0]
        needed = {path: {"GET": "pull", "HEAD": "pull"}.get(self.command, "pull,push")}
        if source := self.query.get("from"):
            needed[source] = "pull"
        if left > 0 and all((name, action) in may for name, actions in needed.items() for action in actions.split(",")):
            return None
        scopes = " ".join(f"repository:{name}:{actions}" for name, actions in needed.items())
        error = ',error="insufficient_scope"' if left > 0 else ""
        return f'Bearer realm="{registry.realm or registry.url + "/token"}",service="{SERVICE}",scope="{scopes}"{error}'

    def answer_token(self) -> None:
        policy = self.registry.policy
        assert policy is not None
        asked = parse_qs(self.parts.query) if self.command == "GET" else parse_qs(self.body.decode())
        assert asked["service"] == [SERVICE]
        status, access = policy.answer(self.headers.get("Authorization", ""), asked)
        if status != 200:
            return self.refuse(status, "DENIED")
        token = uuid.uuid4().hex
        self.registry._tokens[token] = (self.registry.token_lives, access)
        return self.answer(200, json.dumps({"token": token}).encode())

    def refuse(self, code: int, word: str, message: str = "") -> None:
        self.answer(code, json.dumps({"errors": [{"code": word, "message": message or word.lower()}]}).encode())

    def answer(
        self, code: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: int | None = None
    ) -> None:
        self.made = (code, body, headers or {}, cut)

    def send(self) -> None:
        if self.made is None:
            self.close_connection = True
            return
        code, body, headers, cut = self.made
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if code != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None and cut < len(body):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
