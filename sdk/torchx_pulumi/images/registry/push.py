"""Pushes of images without a daemon: the blobs that a registry lacks, then the manifest; and their progress."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torchx_pulumi.images.oci import Blob, Descriptor, LayeredImage
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.client import RegistryClient
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import megabytes

if TYPE_CHECKING:
    from torchx_pulumi.images.registry.connection import RegistryConnection

AT_ONCE: Final = 4
"""Blobs that are sent at the same time."""
_EVERY_S: Final = 1.0
"""Seconds between two lines of progress."""
_AGAIN_S: Final = (0.5, 1.0)
"""Seconds before a push that is repeated because the registry lacks a blob that it had."""


def push_image(
    client: RegistryClient, image: LayeredImage, target: Reference, *, progress: Callable[[str], None]
) -> str:
    """Push the blobs of an image that a repository lacks, then its manifest.

    Layers of the base are mounted from its repository if it is in the same registry, otherwise copied as a stream.
    An upload of more than 16 MiB that was interrupted continues where the registry allows it.

    Args:
        client: Sends the requests.
        image: The image.
        target: The repository, with a tag, or with the digest of the manifest: then no tag is set.
        progress: Takes lines of progress, at most one per second.

    Returns:
        The digest that the registry has for the tag or digest. It differs from the manifest's if the registry changes
        manifests.

    Raises:
        ImageError: The registry or the base's registry cannot be reached, denies access, or refuses a blob; or content
            cannot be read. The tag is set only if all of the image is there.
    """
    try:
        _push_all(client, image, target, progress)
        found = client.digest(target)
    except ImageError as error:
        raise ImageError(
            f"{error}. Nothing refers to what was pushed so far; the next attempt sends only what is missing",
            retryable=error.retryable,
        ) from error
    if found is None:
        raise ImageError(
            f"registry {target.registry}: took the manifest of {target.name}:{target.version} and does not have it; "
            "see its logs"
        )
    progress(f"pushed, {found}")
    return found


def _push_all(client: RegistryClient, image: LayeredImage, target: Reference, progress: Callable[[str], None]) -> None:
    """Push blobs and manifest; again if the registry lacks a blob that it had."""
    from torchx_pulumi.images.registry.failures import RefusedRequestError

    waits = iter(_AGAIN_S)
    while True:
        push = _Push(client, image, target, progress)
        push.run()
        try:
            return _put_manifest(client, image, target, push.scopes)
        except RefusedRequestError as error:
            wait_s = next(waits, None)
            if wait_s is None or "BLOB_UNKNOWN" not in str(error):
                raise
            # A registry writes the link of a blob again when another process pushes it, and has none for a moment; or
            # its garbage collection took the blob.
            client.connection.retries.pause(wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A blob that the target must have."""

    digest: str
    size: int
    blob: Blob | None
    """None: a layer of the base."""


class _Push:
    """The blobs of one push."""

    def __init__(
        self, client: RegistryClient, image: LayeredImage, target: Reference, progress: Callable[[str], None]
    ) -> None:
        self._connection: RegistryConnection = client.connection
        self._base = image.base
        self._target = target
        own = [_Part(digest=blob.digest, size=blob.size, blob=blob) for blob in image.new_blobs]
        base = [
            _Part(digest=each.digest, size=each.size, blob=None)
            for each in image.base_layers
            if not _is_elsewhere(each)
        ]
        self._parts = list({part.digest: part for part in (*base, *own)}.values())
        self._progress = PushProgress({part.digest: part.size for part in self._parts}, progress)
        self._stopped = threading.Event()
        self.scopes: tuple[str, ...] = (f"repository:{target.path}:pull,push",)
        """What its requests need: one token for all of them."""
        self._mounts = False

    def run(self) -> None:
        """Push all blobs, several at the same time."""
        if not self._parts:
            return
        self._choose_scopes()
        with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="push") as pool:
            futures = [pool.submit(contextvars.copy_context().run, self._push, part) for part in self._parts]
            try:
                self._await(futures)
            finally:
                self._stopped.set()
                for future in futures:
                    future.cancel()

    def _await(self, futures: Sequence[Future[None]]) -> None:
        while True:
            finished, waiting = wait(futures, timeout=_EVERY_S, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
            if not waiting:
                return
            self._progress.say()

    def _choose_scopes(self) -> None:
        """Find out whether one token may be had for the target and the base's repository.

        Raises:
            ImageError: The target's registry does not answer, or denies access.
        """
        from torchx_pulumi.images.registry.authorization import pull_scope
        from torchx_pulumi.images.registry.failures import RefusedRequestError
        from torchx_pulumi.images.registry.uploads import has_blob

        base, target = self._base, self._target
        if base is not None and base.registry == target.registry and base.path != target.path:
            both = (*self.scopes, pull_scope(base))
            try:
                has_blob(self._connection, target, both, self._parts[0].digest)
            except RefusedRequestError as error:
                if error.status not in (400, 401, 403):
                    raise
            else:
                self.scopes, self._mounts = both, True

    def _push(self, part: _Part) -> None:
        from torchx_pulumi.images.registry.blobs import RemoteBlob
        from torchx_pulumi.images.registry.retries import on_wait
        from torchx_pulumi.images.registry.uploads import Upload, has_blob, mount_blob

        def check() -> None:
            if self._stopped.is_set():
                raise ImageError("the push was stopped")

        def sent(position: int) -> None:
            check()
            self._progress.sent(part.digest, position)

        def waits(note: str) -> None:
            check()
            self._progress.waits(part.digest, note)

        on_wait.set(waits)

        connection, target, blob = self._connection, self._target, part.blob
        if not has_blob(connection, target, self.scopes, part.digest) and not (
            blob is None
            and self._mounts
            and self._base is not None
            and mount_blob(connection, target, self.scopes, self._base, part.digest)
        ):
            if blob is None:
                if self._base is None:
                    raise ImageError(f"layer {part.digest}: the image names no base that has it")
                blob = RemoteBlob(connection=connection, repository=self._base, digest=part.digest, size=part.size)
            Upload(connection, target, self.scopes, blob, sent).run()
        self._progress.done(part.digest)


def _is_elsewhere(layer: Descriptor) -> bool:
    """Return whether a layer is one that registries do not store."""
    return bool(layer.urls) or "foreign" in layer.media_type or "nondistributable" in layer.media_type


def _put_manifest(client: RegistryClient, image: LayeredImage, target: Reference, scopes: tuple[str, ...]) -> None:
    from torchx_pulumi.images.registry.connection import RegistryRequest

    request = RegistryRequest(
        method="PUT",
        url=f"/v2/{target.path}/manifests/{target.version}",
        reference=target,
        scopes=scopes,
        what=f"the push of {target.name}:{target.version}",
        expected=(200, 201, 202),
        headers={"Content-Type": image.manifest.media_type},
        data=image.manifest.content,
    )
    client.connection.send(request)


class PushProgress:
    """Counts what a push has sent. Threads share it; one of them reports."""

    def __init__(self, sizes: Mapping[str, int], report: Callable[[str], None]) -> None:
        self._sizes = dict(sizes)
        """Blob to bytes."""
        self._report = report
        self._guard = threading.Lock()
        self._sent: dict[str, int] = {}
        self._done: set[str] = set()
        self._notes: dict[str, str] = {}

    def sent(self, digest: str, position: int) -> None:
        """Note how much of a blob was sent."""
        with self._guard:
            self._sent[digest] = position
            self._notes.pop(digest, None)

    def done(self, digest: str) -> None:
        """Note that the registry has a blob."""
        with self._guard:
            self._done.add(digest)
            self._notes.pop(digest, None)
            if digest not in self._sent:
                self._sizes[digest] = 0  # it was there, or was mounted

    def waits(self, digest: str, note: str) -> None:
        """Note why the upload of a blob waits."""
        with self._guard:
            self._notes[digest] = note

    def say(self) -> None:
        """Report a line. Call it at most once per second."""
        with self._guard:
            total = sum(self._sizes.values())
            sent = sum(min(self._sent.get(digest, 0), size) for digest, size in self._sizes.items())
            line = f"pushing, {len(self._done)} of {len(self._sizes)} blobs, {megabytes(sent)} of {megabytes(total)}"
            note = next(iter(self._notes.values()), None)
        self._report(f"{line}; {note}" if note else line)
