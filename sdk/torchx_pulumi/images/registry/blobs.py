"""Content that is uploaded: blobs of other repositories, and pieces of blobs as bodies of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from torchx_pulumi.images.oci import Blob
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.authorization import pull_scope
from torchx_pulumi.images.registry.connection import DROPPED, RegistryRequest
from torchx_pulumi.images.registry.failures import RefusedRequestError, unreachable
from torchx_pulumi.images.registry.retries import after
from torchx_pulumi.model.errors import ImageError

if TYPE_CHECKING:
    from torchx_pulumi.images.registry.connection import RegistryConnection

_PIECE: Final = 1 << 20
_BODY: Final = 1 << 17
"""Bytes of a body that are handed to the socket at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBlob:
    """A blob of another repository, which is copied as a stream: at most a piece of it is in memory."""

    connection: RegistryConnection = field(repr=False)
    repository: Reference
    digest: str
    size: int

    def read(self, offset: int = 0) -> Iterator[bytes]:
        """Yield the content from an offset. After a broken connection, the rest is asked for.

        Raises:
            ImageError: The registry does not have it, or does not answer after several attempts.
        """
        retries = self.connection.retries
        while offset < self.size:
            begin = offset
            try:
                for piece in self._pieces(offset):
                    offset += len(piece)
                    yield piece
                failure = ImageError(unreachable(self.repository, "Connection aborted", self._what), retryable=True)
            except ImageError as error:
                failure = error
            if offset < self.size:
                retries = after(failure, self.connection.retries if offset > begin else retries)
                retries.sleep(failure if isinstance(failure, RefusedRequestError) else None)

    @property
    def _what(self) -> str:
        return f"layer {self.digest} of {self.repository.name}"

    def _pieces(self, offset: int) -> Iterator[bytes]:
        request = RegistryRequest(
            method="GET",
            url=f"/v2/{self.repository.path}/blobs/{self.digest}",
            reference=self.repository,
            scopes=(pull_scope(self.repository),),
            what=self._what,
            expected=(200, 206),
            headers={"Range": f"bytes={offset}-"} if offset else {},
            repeated=False,
        )
        try:
            with self.connection.open(request) as response:
                # A registry without ranges sends all of it again.
                skipped = offset if response.status_code == 200 else 0
                left = self.size - offset
                for piece in response.iter_content(_PIECE):
                    kept = piece[skipped:][:left]
                    skipped = max(skipped - len(piece), 0)
                    left -= len(kept)
                    if kept:
                        yield kept
        except DROPPED as error:
            raise ImageError(unreachable(self.repository, error, self._what), retryable=True) from error
        except RefusedRequestError as error:
            if error.status == 404:
                raise ImageError(
                    f"registry {self.repository.registry}: does not have {self._what}; was the base image deleted? "
                    "Push it again, or choose another one"
                ) from error
            raise


class BlobReader:
    """Reads a blob in order. Only what is asked for again makes it begin a second stream."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._position = 0
        self._pieces: Iterator[bytes] | None = None
        self._piece = memoryview(b"")

    def read(self, position: int, limit: int) -> bytes:
        """Return at most a number of bytes from a position.

        Raises:
            ImageError: The content cannot be read, or ends before its size.
        """
        if self._pieces is None or position != self._position:
            self._position, self._pieces, self._piece = position, iter(self._blob.read(position)), memoryview(b"")
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
                raise ImageError(
                    f"blob {self._blob.digest}: ended after {position} of {self._blob.size} bytes; its files changed "
                    "while they were sent; run again"
                )
            self._piece = memoryview(piece)
        taken = bytes(self._piece[:limit])
        self._piece = self._piece[len(taken) :]
        self._position += len(taken)
        return taken


class BlobPart:
    """A part of a blob as the body of a request. It can be sent again from its beginning."""

    def __init__(self, reader: BlobReader, offset: int, length: int, sent: Callable[[int], None]) -> None:
        self._reader = reader
        self._offset = offset
        self._length = length
        self._sent = sent
        """Called with the position in the blob up to which it was handed out."""
        self._position = 0

    def __len__(self) -> int:
        """Return the number of bytes, which requests announces."""
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rest. requests takes what can be iterated for a stream."""
        while piece := self.read():
            yield piece

    def tell(self) -> int:
        """Return the position in the part."""
        return self._position

    def seek(self, position: int) -> None:
        """Continue from a position in the part."""
        self._position = position

    def read(self, size: int = _BODY) -> bytes:  # noqa: ARG002  larger pieces than a socket's buffer save calls
        """Return the next bytes, of a number that suits the socket. Empty: the part was read.

        Raises:
            ImageError: As of `BlobReader.read`.
        """
        left = self._length - self._position
        if left <= 0:
            return b""
        taken = self._reader.read(self._offset + self._position, min(left, _BODY))
        self._position += len(taken)
        self._sent(self._offset + self._position)
        return taken
