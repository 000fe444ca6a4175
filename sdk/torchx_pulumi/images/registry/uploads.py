"""The upload of one blob: as a whole if it is small, otherwise in chunks that a later attempt continues."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

from torchx_pulumi.images.content.hashing import cache_folder, remove_old
from torchx_pulumi.images.oci import Blob
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.addresses import url_in
from torchx_pulumi.images.registry.client import RegistryClient, blob_request, read_pieces
from torchx_pulumi.images.registry.request import (
    RegistryAnswer,
    RegistryError,
    RegistryRequest,
    pull_scope,
    push_scope,
    unreachable,
)
from torchx_pulumi.images.registry.retries import Attempts, on_wait
from torchx_pulumi.model.errors import ImageError

_PIECE: Final = 1 << 20
_FINISH_S: Final = (10.0, 600.0)
"""Timeouts of the request that completes an upload: registries then read the blob again, or copy it."""
_RANGE: Final = re.compile(r"(\d+)-(\d+)\s*$")
_LOST: Final = (404, 416)
"""Statuses of an upload that the registry does not have as far as it was asked to continue it."""
_REFUSING: Final = frozenset(range(300, 500)) - {401, 403, 413}
"""Statuses that say that a chunk is not taken as a chunk."""
_ASKED: Final = 3
"""Failures in a row to ask for an upload after which another one is begun: registries fail for some that they lost."""
_TOLD_S: Final = 5.0
"""Seconds between two lines about a wait for another thread."""
_KEPT_S: Final = 7 * 86_400.0
"""Seconds after which a file is removed. Registries remove uploads after a week by default."""

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

    def read(self, offset: int = 0) -> Iterator[bytes]:
        """Yield the content from an offset. After a broken connection, the rest is asked for.

        Raises:
            ImageError: The registry does not have it, or does not answer after several attempts.
        """
        attempts = Attempts(self.client.retries)
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


class BlobReader:
    """Reads a blob in order. Only what is asked for again makes it begin a second stream."""

    def __init__(self, blob: Blob, sent: Callable[[int], None]) -> None:
        self._blob = blob
        self._sent = sent
        """Called with the position up to which the blob was handed out."""
        self._position = 0
        self._rest = b""
        self._pieces: Iterator[bytes] | None = None
        """What follows the last part. None: that was not read to its end."""

    def read(self, offset: int, length: int) -> Iterator[bytes]:
        """Yield a part of the blob.

        Raises:
            ImageError: The content cannot be read, or ends before its size.
        """
        pieces, self._pieces = self._pieces, None
        if pieces is None or offset != self._position:
            pieces, self._position, self._rest = self._blob.read(offset), offset, b""
        end = offset + length
        while self._position < end:
            piece = self._rest or next(pieces, b"")
            if not piece:
                raise ImageError(
                    f"blob {self._blob.digest}: ended after {self._position} of {self._blob.size} bytes; its files "
                    "changed while they were sent; run again"
                )
            taken, self._rest = piece[: end - self._position], piece[end - self._position :]
            self._position += len(taken)
            yield taken
            self._sent(self._position)
        self._pieces = pieces


class Upload:
    """The upload of one blob. Failed attempts are repeated as long as the registry gets more of it."""

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
        self._reader = BlobReader(blob, sent)
        self._chunk = client.chunk
        self._is_whole = blob.size <= client.chunk
        self._confirmed = 0
        self._unanswered = 0
        """Failures in a row to ask how much the registry has."""
        self._session = UploadSession()
        self._request = RegistryRequest(
            method="",
            url="",
            reference=target,
            scopes=(push_scope(target),),
            what=f"the upload of blob {blob.digest} to {target.name}",
            # Not sent again as it is: the registry may have taken a part of it.
            repeated=False,
        )

    def run(self) -> None:
        """Upload the blob.

        Raises:
            ImageError: The registry refuses it or does not answer, or the content cannot be read.
        """
        attempts, most, is_there = Attempts(self._client.retries), 0, False
        digest = None if self._is_whole else self._blob.digest
        # The repository may have the blob, for example from an attempt whose response was lost.
        head = blob_request("HEAD", self._target, self._blob.digest)
        present = replace(head, scopes=self._request.scopes, repeated=False)
        with _turn(self._target, self._blob.digest), upload_session(self._target, digest) as self._session:
            while not is_there:
                try:
                    is_there = self._client.send(present).status != 404 or self._attempt()
                except ImageError as error:
                    if self._confirmed > most:
                        attempts.failed, most = 0, self._confirmed
                    attempts.wait(error)
            self._session.keep(None)

    def _attempt(self) -> bool:
        """Send the rest of the blob, and return True: the registry has the blob then."""
        offset = None if self._is_whole else self._offset()
        is_resumed = bool(offset)
        if offset is None:
            if self._begin():
                return True
            offset = 0
        self._confirmed = max(self._confirmed, offset)
        while not self._is_whole and offset < self._blob.size:
            offset = self._send_chunk(offset)
            self._confirmed = max(self._confirmed, offset)
        location = self._session.location or ""
        url = f"{location}{'&' if '?' in location else '?'}digest={quote(self._blob.digest)}"
        try:
            self._send("PUT", url, part=(offset, self._blob.size), expected=(200, 201, 204), timeout_s=_FINISH_S)
            self._sent(self._blob.size)
        except RegistryError as error:
            if error.status in _LOST or (is_resumed and error.status == 400):
                # The registry does not have the upload any more, or what an earlier attempt had sent was damaged.
                raise self._begun_again(str(error), whole=False) from error
            if error.status is not None:
                self._session.keep(None)
            raise
        return True

    def _offset(self) -> int | None:
        """Return how many bytes the registry has of an upload that was begun, or None without such an upload."""
        if self._session.location is None:
            return None
        try:
            answer = self._send("GET", self._session.location, expected=(200, 202, 204))
        except RegistryError as error:
            self._unanswered += 1
            if error.retryable and self._unanswered < _ASKED:
                raise
            return None
        self._unanswered = 0
        offset = _end(answer)
        if offset is None or offset > self._blob.size:
            return None
        self._sent(offset)
        return offset

    def _begin(self) -> bool:
        """Begin an upload. Return whether the repository has the blob now, of the source."""
        uploads = f"/v2/{self._target.path}/blobs/uploads/"
        answer = None
        if self._source is not None:
            mount = f"{uploads}?mount={quote(self._blob.digest)}&from={quote(self._source.path, safe='')}"
            scopes = (*self._request.scopes, pull_scope(self._source))
            try:
                answer = self._send("POST", mount, expected=(201, 202), scopes=scopes)
            except RegistryError as error:
                if error.retryable:
                    raise
                # Registries refuse it, and token services to give a token for two repositories.
                self._source = None
        if answer is None:
            answer = self._send("POST", uploads, expected=(202,))
        if answer.status == 201:
            return True
        if "Location" not in answer.headers:
            raise ImageError(
                f"registry {self._target.registry}: began an upload without a Location, asked for "
                f"{self._request.what}; the server is not a container registry, or a proxy removes headers"
            )
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        self._chunk = max(self._client.chunk, int(least) if least.isdigit() else 0)
        return False

    def _send_chunk(self, offset: int) -> int:
        """Send the next chunk. Return how much of the blob the registry has then."""
        end = min(offset + self._chunk, self._blob.size)
        location, headers = self._session.location or "", {"Content-Range": f"{offset}-{end - 1}"}
        try:
            answer = self._send("PATCH", location, part=(offset, end), expected=(201, 202, 204), headers=headers)
        except RegistryError as error:
            if error.retryable or error.status not in _REFUSING:
                raise
            # The registry does not have the upload any more, or it does not take chunks.
            raise self._begun_again(str(error), whole=error.status not in _LOST) from error
        found = _end(answer)
        # Some registries do not say what they have.
        reached = end if found is None else min(found, end)
        if reached <= offset:
            nothing = f"registry {self._target.registry}: stored no byte of a chunk of blob {self._blob.digest}"
            raise self._begun_again(nothing, whole=True)
        return reached

    def _begun_again(self, message: str, *, whole: bool) -> ImageError:
        """Forget the upload, and return the error after which the next attempt begins another one."""
        self._session.keep(None)
        self._is_whole = self._is_whole or whole
        return ImageError(message, retryable=True)

    def _send(self, method: str, url: str, part: tuple[int, int] | None = None, **changes: Any) -> RegistryAnswer:
        """Send a request of the upload and keep the address at which it continues.

        `part` is the begin and the end of the part of the blob to send, `changes` are other fields of the request.
        """
        if part is not None:
            begin, length = part[0], part[1] - part[0]
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
            changes["headers"] = {**headers, **changes.get("headers", {})}
            changes["body"] = partial(self._reader.read, begin, length)
        answer = self._client.send(replace(self._request, method=method, url=url, **changes))
        if found := answer.headers.get("Location"):
            self._session.keep(url_in(self._target.registry, found, url))
        return answer


def _end(answer: RegistryAnswer) -> int | None:
    """Return the number of bytes that the header `Range` confirms, or None without that header.

    The range of one byte, `0-0`, is also sent for none.
    """
    found = _RANGE.search(answer.headers.get("Range", ""))
    if found is None:
        return None
    return 0 if found[2] == "0" else int(found[2]) + 1


class UploadSession:
    """The address at which an upload continues, for this process and, in a file, for a later one."""

    def __init__(self, file: int | None = None) -> None:
        self._file = file
        self.location: str | None = None
        """The address. None: no upload was begun."""
        if file is not None:
            with contextlib.suppress(ValueError, AttributeError):
                found = json.loads(os.pread(file, 1 << 16, 0).partition(b"\n")[0]).get("location")
                self.location = found if isinstance(found, str) else None

    def keep(self, location: str | None) -> None:
        """Keep an address; None makes the next attempt begin again."""
        self.location = location
        if self._file is None:
            return
        # Without the file, the next process begins again.
        with contextlib.suppress(OSError):
            if location is None:
                os.ftruncate(self._file, 0)
            else:
                # A process that is killed has written all of a line or nothing. What follows the line is old.
                os.pwrite(self._file, f"{json.dumps({'location': location})}\n".encode(), 0)


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


@contextlib.contextmanager
def upload_session(target: Reference, digest: str | None) -> Iterator[UploadSession]:
    """Yield the session of a blob's upload. One that another process uses is not continued.

    Args:
        target: The repository.
        digest: Digest of the blob. None: it is sent as a whole, and nothing is kept.
    """
    name = hashlib.sha256(f"{target.registry}/{target.path}@{digest}".encode()).hexdigest()[:40]
    path = cache_folder().with_name("uploads") / f"{name}.json"
    with contextlib.ExitStack() as stack:
        session, is_kept = UploadSession(), False
        # A folder that cannot be written, or an upload of another process.
        with contextlib.suppress(OSError):
            if digest is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                remove_old(path.parent, _KEPT_S)
                # The address may hold a token of the registry.
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, file)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                session, is_kept = UploadSession(file), True
        yield session
        if is_kept and session.location is None:
            with contextlib.suppress(OSError):
                path.unlink()
