"""The upload of one blob: all of it in one request, from its beginning again after errors that may pass."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote
from weakref import WeakValueDictionary

from torchx_pulumi.images.oci import Blob
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.addresses import url_in
from torchx_pulumi.images.registry.client import RegistryClient, blob_request, read_pieces
from torchx_pulumi.images.registry.request import (
    RegistryError,
    RegistryRequest,
    pull_scope,
    push_scope,
    unreachable,
)
from torchx_pulumi.images.registry.retries import Attempts, on_wait
from torchx_pulumi.model.errors import ImageError

_PIECE: Final = 1 << 20
_CONTENT_S: Final = (10.0, 600.0)
"""Timeouts of the request with the content: at its end, registries read the blob again, or copy it."""
_TOLD_S: Final = 5.0
"""Seconds between two lines about a wait for another thread."""

_guard = threading.Lock()
_turns: WeakValueDictionary[tuple[str, str, str], threading.Lock] = WeakValueDictionary()
"""Registry, path and digest to the lock of the thread that uploads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBlob:
    """A blob of another repository, which is copied as a stream: at most a piece of it is in memory."""

    client: RegistryClient = field(repr=False)
    repository: Reference
    digest: str
    size: int

    def read(self) -> Iterator[bytes]:
        """Yield the content. After a broken connection, the rest is asked for.

        Raises:
            ImageError: The registry does not have it, or does not answer after several attempts.
        """
        offset, attempts = 0, Attempts(self.client.retries)
        while offset < self.size:
            request = replace(
                blob_request("GET", self.repository, self.digest),
                what=f"layer {self.digest} of {self.repository.name}",
                headers={"Range": f"bytes={offset}-"} if offset else {},
                repeated=False,
            )
            try:
                for piece in self._pieces(request, offset):
                    offset += len(piece)
                    attempts.failed = 0
                    yield piece
                if offset < self.size:
                    raise unreachable(request, "Connection aborted")
            except RegistryError as error:
                if error.status == 404:
                    raise ImageError(
                        f"registry {self.repository.registry}: does not have {request.what}; was the base image "
                        "deleted? Push it again, or choose another one"
                    ) from error
                if offset < self.size:
                    attempts.wait(error)

    def _pieces(self, request: RegistryRequest, offset: int) -> Iterator[bytes]:
        with self.client.open(request) as response:
            # A registry without ranges sends all of it again.
            skipped = offset if response.status == 200 else 0
            left = self.size - offset
            for piece in read_pieces(response, request, _PIECE):
                kept = piece[skipped:][:left]
                skipped = max(skipped - len(piece), 0)
                left -= len(kept)
                if kept:
                    yield kept


class Upload:
    """The upload of one blob."""

    def __init__(
        self,
        client: RegistryClient,
        target: Reference,
        blob: Blob,
        sent: Callable[[int], None],
        source: Reference | None = None,
    ) -> None:
        """Prepare an upload; no request is sent.

        Args:
            client: Client for the registry.
            target: Repository that gets the blob.
            blob: Content of the blob.
            sent: Called with the number of bytes that were sent so far; it is smaller after a failed attempt.
            source: Repository of the same registry that has the blob and is asked to share it, if any.
        """
        self._client = client
        self._target = target
        self._blob = blob
        self._sent = sent
        self._source = source
        self._uploads = RegistryRequest(
            method="POST",
            url=f"/v2/{target.path}/blobs/uploads/",
            reference=target,
            scopes=(push_scope(target),),
            what=f"the upload of blob {blob.digest} to {target.name}",
            expected=(202,),
            # Not sent again as it is: the registry may have taken a part of it.
            repeated=False,
        )

    def run(self) -> None:
        """Upload the blob, unless the repository has it.

        Raises:
            ImageError: The registry refuses it or does not answer, or the content cannot be read.
        """
        attempts = Attempts(self._client.retries)
        head = blob_request("HEAD", self._target, self._blob.digest)
        present = replace(head, scopes=self._uploads.scopes, repeated=False)
        with _turn(self._target, self._blob.digest):
            while True:
                try:
                    # The repository may have it, for example from an attempt whose response was lost.
                    if self._client.send(present).status == 404 and (place := self._begin()):
                        self._send_content(place)
                    return
                except ImageError as error:
                    attempts.wait(error)

    def _begin(self) -> str | None:
        """Begin an upload and return its address; None: the repository has the blob now, of the source."""
        begun = None
        if self._source is not None:
            mount = f"?mount={quote(self._blob.digest)}&from={quote(self._source.path, safe='')}"
            asked = replace(self._uploads, url=self._uploads.url + mount, expected=(201, 202))
            try:
                begun = self._client.send(replace(asked, scopes=(*asked.scopes, pull_scope(self._source))))
            except RegistryError as error:
                if error.retryable:
                    raise
                # Registries refuse it, and token services to give a token for two repositories.
                self._source = None
        if begun is None:
            begun = self._client.send(self._uploads)
        if begun.status == 201:
            return None
        place = begun.headers.get("Location")
        if place is None:
            raise ImageError(
                f"registry {self._target.registry}: began an upload without a Location, asked for "
                f"{self._uploads.what}; the server is not a container registry, or a proxy removes headers"
            )
        url = url_in(self._target.registry, place, self._uploads.url)
        return f"{url}{'&' if '?' in url else '?'}digest={quote(self._blob.digest)}"

    def _send_content(self, url: str) -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(self._blob.size)}
        request = replace(
            self._uploads, method="PUT", url=url, headers=headers, body=self._content, expected=(200, 201, 204)
        )
        try:
            self._client.send(replace(request, timeout_s=_CONTENT_S))
        except RegistryError as error:
            if error.status == 404:
                # The registry lost the upload, for example because it was restarted; the next attempt begins another.
                raise ImageError(str(error), retryable=True) from error
            raise

    def _content(self) -> Iterator[bytes]:
        position = 0
        self._sent(position)
        for piece in self._blob.read():
            yield piece
            position += len(piece)
            self._sent(position)
        if position < self._blob.size:
            raise ImageError(
                f"blob {self._blob.digest}: ended after {position} of {self._blob.size} bytes; its files "
                "changed while they were sent; run again"
            )


@contextlib.contextmanager
def _turn(target: Reference, digest: str) -> Iterator[None]:
    """Wait while another thread uploads a blob: images that are pushed side by side often have the same base."""
    with _guard:
        lock = _turns.setdefault((target.registry, target.path, digest), threading.Lock())
    while not lock.acquire(timeout=_TOLD_S):
        if tell := on_wait.get():
            tell(f"blob {digest} is sent for another image")
    try:
        yield
    finally:
        lock.release()
