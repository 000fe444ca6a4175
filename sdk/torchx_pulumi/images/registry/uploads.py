"""The upload of one blob: as a whole if it is small, otherwise in chunks that a later attempt continues."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from torchx_pulumi.images.content.hashing import cache_folder
from torchx_pulumi.images.oci import Blob
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.addresses import resolve_address
from torchx_pulumi.images.registry.authorization import Scopes
from torchx_pulumi.images.registry.blobs import BlobPart, BlobReader
from torchx_pulumi.images.registry.connection import RegistryAnswer, RegistryRequest
from torchx_pulumi.images.registry.failures import RefusedRequestError
from torchx_pulumi.images.registry.retries import after
from torchx_pulumi.model.errors import ImageError

if TYPE_CHECKING:
    from torchx_pulumi.images.registry.connection import RegistryConnection

_FINISH_S: Final = (10.0, 600.0)
"""Timeouts of the request that completes an upload: registries then read the blob again, or copy it."""
_RANGE: Final = re.compile(r"(\d+)-(\d+)\s*$")
_DENIED: Final = (401, 403, 413, 429)

_KEPT_S: Final = 7 * 86_400.0
"""Seconds after which a file is removed. Registries remove uploads after a week by default."""


def has_blob(
    connection: RegistryConnection, target: Reference, scopes: Scopes, digest: str, *, repeated: bool = True
) -> bool:
    """Return whether a repository has a blob.

    Raises:
        ImageError: The registry does not answer, or denies access.
    """
    request = RegistryRequest(
        method="HEAD",
        url=f"/v2/{target.path}/blobs/{digest}",
        reference=target,
        scopes=scopes,
        what=f"blob {digest} of {target.name}",
        # A redirect is to where the blob is stored, often to an address for GET only.
        expected=(200, 302, 303, 307, 404),
        repeated=repeated,
    )
    return connection.send(request).status != 404


def mount_blob(
    connection: RegistryConnection, target: Reference, scopes: Scopes, source: Reference, digest: str
) -> bool:
    """Let a repository use a blob of another one of its registry. Return whether it has it now.

    Raises:
        ImageError: The registry does not answer.
    """
    request = RegistryRequest(
        method="POST",
        url=f"/v2/{target.path}/blobs/uploads/?mount={quote(digest)}&from={quote(source.path, safe='')}",
        reference=target,
        scopes=scopes,
        what=f"the mount of blob {digest} of {source.name} in {target.name}",
        # A registry that does not mount begins an upload, or refuses.
        expected=(201, 202, 400, 401, 403, 404, 405, 501),
    )
    answer = connection.send(request)
    if answer.status == 202 and answer.headers.get("Location"):
        _cancel(connection, target, scopes, resolve_address(answer.url, answer.headers["Location"], target.registry))
    return answer.status == 201


def _cancel(connection: RegistryConnection, target: Reference, scopes: Scopes, location: str) -> None:
    request = RegistryRequest(
        method="DELETE",
        url=location,
        reference=target,
        scopes=scopes,
        what=f"the end of an upload to {target.name}",
        expected=range(200, 600),
        repeated=False,
    )
    try:
        connection.send(request)
    except ImageError:
        return  # the registry removes it in time


class Upload:
    """The upload of one blob. Failed attempts are repeated as long as the registry gets more of it."""

    def __init__(
        self,
        connection: RegistryConnection,
        target: Reference,
        scopes: Scopes,
        blob: Blob,
        sent: Callable[[int], None],
    ) -> None:
        """Prepare an upload; no request is sent.

        Args:
            connection: Sends the requests.
            target: The repository.
            scopes: What the requests need.
            blob: The content.
            sent: Called with the number of bytes that were sent so far; it is smaller after a failed attempt.
        """
        self._connection = connection
        self._target = target
        self._scopes = scopes
        self._blob = blob
        self._reader = BlobReader(blob)
        self._sent = sent
        self._chunk = connection.chunk
        self._is_whole = blob.size <= connection.chunk
        self._confirmed = 0

    def run(self) -> None:
        """Upload the blob.

        Raises:
            ImageError: The registry refuses it or does not answer, or the content cannot be read.
        """
        if self._is_whole:
            self._repeat(UploadSession(None, None, None))
            return
        with upload_session(self._target, self._blob.digest) as session:
            self._repeat(session)
            session.finish()

    def _repeat(self, session: UploadSession) -> None:
        retries, most, is_first = self._connection.retries, 0, True
        while True:
            try:
                if is_first or not self._is_there():
                    self._attempt(session)
                return
            except ImageError as error:
                if self._confirmed > most:
                    retries, most = self._connection.retries, self._confirmed
                retries, is_first = after(error, retries), False
                retries.sleep(error if isinstance(error, RefusedRequestError) else None)

    def _is_there(self) -> bool:
        """Return whether the last attempt was complete, and only its response was lost."""
        return has_blob(self._connection, self._target, self._scopes, self._blob.digest, repeated=False)

    def _attempt(self, session: UploadSession) -> None:
        offset = self._offset(session)
        is_resumed = bool(offset)
        if session.location is None or offset is None:
            offset = 0
            self._begin(session)
        self._confirmed = max(self._confirmed, offset)
        while not self._is_whole and offset < self._blob.size:
            offset = self._send_chunk(session, offset)
            self._confirmed = max(self._confirmed, offset)
        try:
            self._complete(session, offset)
        except RefusedRequestError as error:
            session.location = None
            if error.status in (404, 416) or (is_resumed and error.status == 400):
                # The registry does not have the upload any more, or what an earlier attempt had sent was damaged.
                raise self._lost(error) from error
            raise

    def _offset(self, session: UploadSession) -> int | None:
        """Return how much the registry has of an upload that was begun. None: it has no such upload."""
        if session.location is None or self._is_whole:
            session.location = None
            return None
        try:
            answer = self._request("GET", session.location, expected=(200, 202, 204))
        except RefusedRequestError as error:
            if error.retryable:
                raise
            session.location = None
            return None
        offset = _end(answer)
        if offset is None or offset > self._blob.size:
            session.location = None
            return None
        session.location = self._next(answer, session)
        self._sent(offset)
        return offset

    def _begin(self, session: UploadSession) -> None:
        url = f"/v2/{self._target.path}/blobs/uploads/"
        answer = self._request("POST", url, expected=(202,))
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        self._chunk = max(self._connection.chunk, int(least) if least.isdigit() else 0)
        session.location = self._next(answer, session)

    def _send_chunk(self, session: UploadSession, offset: int) -> int:
        """Send the next chunk. Return how much of the blob the registry has then."""
        length = min(self._chunk, self._blob.size - offset)
        headers = {"Content-Range": f"{offset}-{offset + length - 1}", "Content-Type": "application/octet-stream"}
        body = BlobPart(self._reader, offset, length, self._sent)
        try:
            answer = self._request("PATCH", self._known(session), expected=(201, 202, 204), headers=headers, data=body)
        except RefusedRequestError as error:
            if error.retryable or error.status in _DENIED or error.status >= 500:
                raise
            session.location = None
            if error.status not in (404, 416):
                self._is_whole = True  # the registry does not take chunks
            raise self._lost(error) from error
        session.location = self._next(answer, session)
        end = _end(answer)
        # Some registries do not say what they have.
        reached = offset + length if end is None else min(end, offset + length)
        if reached <= offset:
            session.location = None
            self._is_whole = True
            raise ImageError(
                f"registry {self._target.registry}: took nothing of a chunk of blob {self._blob.digest}", retryable=True
            )
        return reached

    def _complete(self, session: UploadSession, offset: int) -> None:
        location = self._known(session)
        url = f"{location}{'&' if '?' in location else '?'}digest={quote(self._blob.digest)}"
        length = self._blob.size - offset
        body = BlobPart(self._reader, offset, length, self._sent) if length else b""
        headers = {"Content-Type": "application/octet-stream"}
        self._request("PUT", url, expected=(200, 201, 204), headers=headers, data=body, timeout_s=_FINISH_S)
        self._sent(self._blob.size)

    def _known(self, session: UploadSession) -> str:
        if session.location is None:
            raise ImageError(
                f"registry {self._target.registry}: began an upload without a Location, asked for {self._what}; this "
                "is no registry, or a proxy removes headers"
            )
        return session.location

    def _next(self, answer: RegistryAnswer, session: UploadSession) -> str | None:
        found = answer.headers.get("Location")
        return resolve_address(answer.url, found, self._target.registry) if found else session.location

    def _lost(self, error: RefusedRequestError) -> ImageError:
        return ImageError(str(error), retryable=True)

    @property
    def _what(self) -> str:
        return f"the upload of blob {self._blob.digest} to {self._target.name}"

    def _request(self, method: str, url: str, **more: object) -> RegistryAnswer:
        # Not sent again as it is: the registry may have taken a part of it.
        return self._connection.send(
            RegistryRequest(
                method=method,
                url=url,
                reference=self._target,
                scopes=self._scopes,
                what=self._what,
                repeated=False,
                **more,  # type: ignore[arg-type]
            )
        )


def _end(answer: RegistryAnswer) -> int | None:
    """Return the number of bytes that the header `Range` confirms. None: it says nothing.

    The range of one byte, `0-0`, is also sent for none.
    """
    found = _RANGE.search(answer.headers.get("Range", ""))
    if found is None:
        return None
    return 0 if found[2] == "0" else int(found[2]) + 1


class UploadSession:
    """The address at which an upload continues."""

    def __init__(self, file: int | None, path: Path | None, location: str | None) -> None:
        self._file = file
        self._path = path
        self._location = location

    @property
    def location(self) -> str | None:
        """Return the address. None: no upload was begun."""
        return self._location

    @location.setter
    def location(self, location: str | None) -> None:
        self._location = location
        if self._file is None or self._path is None:
            return
        # Without the file, the next attempt begins again.
        with contextlib.suppress(OSError):
            if location is None:
                os.ftruncate(self._file, 0)
            else:
                # A process that is killed has written all of a line or nothing. What follows the line is old.
                os.pwrite(self._file, f"{json.dumps({'location': location})}\n".encode(), 0)

    def finish(self) -> None:
        """Remove the file of an upload that is complete."""
        self._location = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


def session_folder() -> Path:
    """Return the folder of the user's uploads."""
    return cache_folder().with_name("uploads")


@contextlib.contextmanager
def upload_session(target: Reference, digest: str) -> Iterator[UploadSession]:
    """Yield the session of a blob's upload. One that another process uses is not continued.

    Args:
        target: The repository.
        digest: Digest of the blob.
    """
    folder = session_folder()
    name = hashlib.sha256(f"{target.registry}/{target.path}@{digest}".encode()).hexdigest()[:40]
    path = folder / f"{name}.json"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _remove_old(folder)
            # The address may hold a token of the registry.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            location = _location(os.pread(file, 1 << 16, 0))
        except OSError:
            yield UploadSession(None, None, None)
            return
        yield UploadSession(file, path, location)


def _location(content: bytes) -> str | None:
    try:
        found = json.loads(content.partition(b"\n")[0]).get("location")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def _remove_old(folder: Path) -> None:
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _KEPT_S:
                path.unlink()
