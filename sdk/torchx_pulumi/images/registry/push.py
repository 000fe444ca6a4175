"""Pushes of images without a daemon: the blobs that a registry lacks, then the manifest; and their progress."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

from torchx_pulumi.images.oci import Blob, LayeredImage
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.client import RegistryClient
from torchx_pulumi.images.registry.request import RegistryError, RegistryRequest, push_scope
from torchx_pulumi.images.registry.retries import on_wait
from torchx_pulumi.images.registry.uploads import RemoteBlob, Upload
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import megabytes

AT_ONCE: Final = 4
"""Blobs that are sent at the same time."""
_HUGE: Final = 1_000_000_000
"""Bytes of copied layers of a base from which a push advises to have the base in the registry."""
_EVERY_S: Final = 1.0
"""Seconds between two lines of progress."""
_AGAIN_S: Final = (0.5, 1.0)
"""Seconds before a push that is repeated because the registry lacks a blob that it had."""


def push_image(
    client: RegistryClient, image: LayeredImage, target: Reference, *, progress: Callable[[str], None]
) -> str:
    """Push the blobs of an image that a repository lacks, then its manifest.

    Layers of the base are mounted from its repository if it is in the same registry, otherwise copied as a stream.
    A blob whose upload breaks is sent again from its beginning.

    Args:
        client: Sends the requests.
        image: The image.
        target: The repository, with a tag, or with the digest of the manifest: then no tag is set.
        progress: Takes lines of progress: one per second, and the reason of each wait.

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
    manifest = RegistryRequest(
        method="PUT",
        url=f"/v2/{target.path}/manifests/{target.version}",
        reference=target,
        scopes=(push_scope(target),),
        what=f"the push of {target.name}:{target.version}",
        expected=(200, 201, 202),
        headers={"Content-Type": image.manifest.media_type},
        body=image.manifest.content,
    )
    for wait_s in (*_AGAIN_S, None):
        _Blobs(client, image, target, progress).push()
        try:
            client.send(manifest)
        except RegistryError as error:
            if wait_s is None or "BLOB_UNKNOWN" not in str(error):
                raise
            # A registry writes the link of a blob again when another process pushes it, and has none for a moment; or
            # its garbage collection took the blob.
            client.retries.pause(wait_s)
        else:
            return


class _Blobs:
    """The blobs of one push. Threads share it; one of them reports."""

    def __init__(
        self, client: RegistryClient, image: LayeredImage, target: Reference, progress: Callable[[str], None]
    ) -> None:
        self._client = client
        self._target = target
        self._progress = progress
        self._stopped = threading.Event()
        self._source = image.base
        if image.base and (image.base.registry != target.registry or image.base.path == target.path):
            self._source = None
        base = [
            RemoteBlob(client=client, repository=image.base, digest=layer.digest, size=layer.size)
            for layer in image.base_layers
            # Registries do not store the others.
            if image.base
            and not (layer.urls or "foreign" in layer.media_type or "nondistributable" in layer.media_type)
        ]
        self._blobs: dict[str, Blob] = {blob.digest: blob for blob in (*base, *image.new_blobs)}
        self._guard = threading.Lock()
        self._sent: dict[str, int] = {}
        """Blob to the number of its bytes that were sent."""
        self._done: set[str] = set()
        self._is_advised = False

    def push(self) -> None:
        """Push all blobs, several at the same time.

        Raises:
            ImageError: Of the first blob that cannot be pushed.
        """
        with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="push") as pool:
            futures = {pool.submit(contextvars.copy_context().run, self._push, blob) for blob in self._blobs.values()}
            waiting = futures
            try:
                while waiting:
                    finished, waiting = wait(waiting, timeout=_EVERY_S, return_when=FIRST_EXCEPTION)
                    for future in finished:
                        future.result()
                    if waiting:
                        self._say()
            finally:
                self._stopped.set()
                for future in futures:
                    future.cancel()

    def _push(self, blob: Blob) -> None:
        def check() -> None:
            if self._stopped.is_set():
                raise ImageError("the push was stopped")

        def sent(position: int) -> None:
            check()
            with self._guard:
                self._sent[blob.digest] = position

        def waits(reason: str) -> None:
            check()
            self._progress(f"pushing, {reason}")

        on_wait.set(waits)
        source = self._source if isinstance(blob, RemoteBlob) else None
        try:
            Upload(self._client, self._target, blob, sent, source).run()
        except ImageError as error:
            if isinstance(blob, RemoteBlob) and (advice := self._advice()):
                raise ImageError(f"{error}. {advice}", retryable=error.retryable) from error
            raise
        with self._guard:
            self._done.add(blob.digest)

    def _advice(self) -> str | None:
        """Return how to do without the copy of a huge base from another registry; None: none was begun."""
        with self._guard:
            begun = [self._blobs[digest] for digest in self._sent]
        copied = [
            blob for blob in begun if isinstance(blob, RemoteBlob) and blob.repository.registry != self._target.registry
        ]
        count = sum(blob.size for blob in copied)
        if count < _HUGE:
            return None
        return (
            f"{megabytes(count)} of the base are copied from {copied[0].repository.name}, each layer in one request. "
            f"Copy the base to {self._target.registry} once and name that copy as the base: its layers are then "
            "mounted, not sent"
        )

    def _say(self) -> None:
        if not self._is_advised and (advice := self._advice()):
            self._is_advised = True
            self._progress(f"pushing, {advice}")
        with self._guard:
            # What was there or was mounted is not sent.
            sizes = {
                digest: 0 if digest in self._done and digest not in self._sent else blob.size
                for digest, blob in self._blobs.items()
            }
            done, sent = len(self._done), sum(min(self._sent.get(digest, 0), size) for digest, size in sizes.items())
        self._progress(f"pushing, {done} of {len(sizes)} blobs, {megabytes(sent)} of {megabytes(sum(sizes.values()))}")
