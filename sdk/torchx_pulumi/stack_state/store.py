"""Files of a Pulumi backend in a folder or an object store, read and written without the engine."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs, urlsplit

from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.files import ABSENT, is_folder, share, shared_umask
from torchx_pulumi.stack_state.store_errors import as_os_error

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 1.0
"""Timeout of one request to an object store while a lock is held."""

READ_TIMEOUT_S = 10.0
"""Timeout of one request of a reader."""

UPLOAD_BYTES = 8 << 20
"""Bytes of a part of an upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The content of a file."""

    data: bytes
    tag: str | None = None
    """ETag of this version of the file. None: the store has no ETags."""


class FolderStore:
    """Files of a backend in a folder, by their path in it, for example `.pulumi/meta.yaml`.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the folder cannot be used.
    """

    keeps_backups = True
    """A checkpoint in a folder that was cut off is restored from its `.bak`."""

    reads_at_once = 1
    """More threads do not read files faster: Python's own work takes the time."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> Stored | None:
        """Return a file. None: it does not exist."""
        data = self.read_bytes(path)
        return None if data is None else Stored(data=data)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a file. None: it does not exist."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def is_unchanged(self, path: str, stored: Stored) -> bool:
        """Return whether a file still has the content of an earlier read."""
        return self.read_bytes(path) == stored.data

    def write(self, path: str, data: bytes, *, replaces: Stored | None = None) -> None:  # noqa: ARG002 - no versions
        """Write a file atomically, with the permissions of the file that it replaces."""
        target = self._root / path
        mode = target.stat().st_mode & 0o777 if target.exists() else None
        _write_whole(target, data, target.parent, mode)

    def lock(self, path: str, data: bytes) -> None:
        """Write a lock atomically. No other file may appear in its folder: Pulumi treats each one as a lock."""
        target = self._root / path
        # Not with all parents: a folder that is not mounted any more must not come to look like an empty backend.
        folder = self._root / Path(path).parts[0]
        for name in Path(path).parent.parts[1:]:
            folder /= name
            folder.mkdir(exist_ok=True)
        # Another member of the group writes its own lock there next.
        share(self._root, *(folder for folder in target.parents if self._root in folder.parents))
        umask = shared_umask(self._root)
        _write_whole(target, data, target.parent.parent, None if umask is None else 0o666 & ~umask)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder. Empty: the folder does not exist."""
        try:
            with os.scandir(self._root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it. Empty: the folder does not exist."""
        found = []
        for path, _, names in os.walk(self._root / folder, onerror=_raise_unless_absent, followlinks=True):
            found += [(Path(path) / name).relative_to(self._root / folder).as_posix() for name in names]
        return sorted(found)

    def versions(self, folder: str) -> dict[str, str]:
        """Return path and version of all files below a folder: time of change, size and inode."""
        found = {}
        for path in self.paths(folder):
            try:
                stat = (self._root / folder / path).stat()
            except ABSENT:
                continue
            found[path] = f"{stat.st_mtime_ns}.{stat.st_size}.{stat.st_ino}"
        return found

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        (self._root / path).unlink(missing_ok=True)

    def remove_below(self, folder: str) -> None:
        """Remove a folder with all files below it, if it exists. A link in it is removed, not what it leads to."""
        if is_folder(self._root / folder):
            shutil.rmtree(self._root / folder)

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder, unless it has files or cannot be removed."""
        with contextlib.suppress(OSError):
            (self._root / folder).rmdir()


class ObjectStore:
    """Objects of a backend in an object store, through a file system of fsspec; the methods are those of `FolderStore`.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the store fails.
    """

    keeps_backups = False
    """Writes of objects are atomic, and Pulumi never reads `.bak`."""

    reads_at_once = 16
    """Requests at the same time."""

    def __init__(self, files: Any, root: str) -> None:
        """Take a file system.

        Args:
            files: The file system.
            root: Bucket or container, and the folder in it.
        """
        self._files = files
        self._root = root.rstrip("/")

    @as_os_error()
    def read(self, path: str) -> Stored | None:
        """Return an object with its ETag. None: it does not exist."""
        key = f"{self._root}/{path}"
        try:
            # The version first: content that is replaced in between then has another version.
            tag = self._files.info(key, refresh=True).get("ETag")
            return Stored(data=self._files.cat_file(key), tag=tag)
        except FileNotFoundError:
            return None

    @as_os_error()
    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of an object, by one request. None: it does not exist."""
        try:
            return bytes(self._files.cat_file(f"{self._root}/{path}"))
        except FileNotFoundError:
            return None

    @as_os_error()
    def is_unchanged(self, path: str, stored: Stored) -> bool:
        """Return whether an object still has the ETag of an earlier read, or without ETags the same content."""
        key = f"{self._root}/{path}"
        try:
            if stored.tag is None:
                return bool(self._files.cat_file(key) == stored.data)
            return bool(self._files.info(key, refresh=True).get("ETag") == stored.tag)
        except FileNotFoundError:
            return False

    def lock(self, path: str, data: bytes) -> None:
        """Write a lock."""
        self.write(path, data)

    @as_os_error()
    def write(self, path: str, data: bytes, *, replaces: Stored | None = None) -> None:
        """Write an object; a store with ETags refuses the write if the object is no longer `replaces`."""
        condition = {"IfMatch": replaces.tag} if replaces is not None and replaces.tag is not None else {}
        self._files.pipe_file(f"{self._root}/{path}", data, **condition)

    @as_os_error()
    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the objects in a folder."""
        try:
            found = self._files.ls(f"{self._root}/{folder}", detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(item["name"].rpartition("/")[2] for item in found if item.get("type") == "file")

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all objects below a folder, relative to it, by one listing."""
        return sorted(self.versions(folder))

    @as_os_error()
    def versions(self, folder: str) -> dict[str, str]:
        """Return path and ETag of all objects below a folder, by one listing. Empty ETag: the store has none."""
        root = f"{self._root}/{folder}/" if folder else f"{self._root}/"
        try:
            found = self._files.find(root.rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        return {
            path.partition(root.lstrip("/"))[2]: str(item.get("ETag") or item.get("etag") or "")
            for path, item in found.items()
        }

    @as_os_error()
    def remove(self, path: str) -> None:
        """Remove an object, if it exists."""
        try:
            self._files.rm_file(f"{self._root}/{path}")
        except FileNotFoundError:
            return

    def remove_below(self, folder: str) -> None:
        """Remove all objects below a folder."""
        for name in self.paths(folder):
            # An object of the folder's own name, or of a name that begins with it, is not below it.
            if name:
                self.remove(f"{folder}/{name}")

    def remove_if_empty(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""

    @as_os_error()
    def open(self, path: str) -> BinaryIO | None:
        """Open an object for reading, in blocks. None: it does not exist."""
        try:
            return cast("BinaryIO", self._files.open(f"{self._root}/{path}", "rb", cache_type="readahead"))
        except FileNotFoundError:
            return None

    @as_os_error()
    def upload(self, path: str, source: BinaryIO) -> None:
        """Write an object with all that can be read of a source: large ones in parts, all of them or none."""
        target = self._files.open(f"{self._root}/{path}", "wb", block_size=UPLOAD_BYTES)
        try:
            while block := source.read(UPLOAD_BYTES):
                target.write(block)
            target.close()
        except BaseException:
            target.discard()
            target.closed = True
            raise


StackStore = FolderStore | ObjectStore


@as_os_error()
def open_store(backend: str, timeout_s: float = REQUEST_TIMEOUT_S) -> StackStore | None:
    """Open a backend whose files can be accessed without the engine.

    Args:
        backend: Its URL, as Pulumi accepts it.
        timeout_s: Timeout of one request to S3.

    Returns:
        The store. None: the backend is of another kind, or the package for it is not installed, which is logged.

    Raises:
        PermissionError: The user has no credentials for it.
        OSError: The store refuses its settings, or the URL is not valid.
    """
    folder = backend_folder(backend)
    if folder is not None:
        return FolderStore(folder)
    scheme = urlsplit(backend).scheme
    if scheme not in _OPENERS:
        return None
    try:
        return _OPENERS[scheme](backend, timeout_s)
    except ImportError as error:
        logger.debug("objects at %s:// cannot be accessed directly: %s", scheme, error)
        return None


def is_object_store(backend: str) -> bool:
    """Return whether a backend is an object store, which fsspec can read and write."""
    return urlsplit(backend).scheme in _OPENERS


def _open_s3(backend: str, timeout_s: float) -> StackStore:
    s3fs = importlib.import_module("s3fs")
    url = urlsplit(backend)
    given = {name: values[-1] for name, values in parse_qs(url.query).items()}
    without_tls = _is_true(given.get("disableSSL")) or _is_true(given.get("disable_https"))
    endpoint = given.get("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if without_tls else 'https'}://{endpoint}"
    config: dict[str, Any] = {
        "connect_timeout": timeout_s,
        "read_timeout": timeout_s,
        "retries": {"max_attempts": 0},
        "max_pool_connections": ObjectStore.reads_at_once,
    }
    if endpoint:
        # As in Pulumi: servers other than Amazon's may refuse the default checksums.
        config |= {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if _is_true(given.get("s3ForcePathStyle")) or _is_true(given.get("use_path_style")):
        config["s3"] = {"addressing_style": "path"}
    files = s3fs.S3FileSystem(
        profile=given.get("profile"),
        endpoint_url=endpoint,
        use_ssl=not without_tls,
        client_kwargs={"region_name": given["region"]} if given.get("region") else {},
        config_kwargs=config,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    files.retries = 1
    return ObjectStore(files, _folder_in(url.netloc, url.path, given.get("prefix", "")))


def _open_gs(backend: str, _: float) -> StackStore:
    gcsfs = importlib.import_module("gcsfs")
    url = urlsplit(backend)
    prefix = parse_qs(url.query).get("prefix", [""])[-1]
    files = gcsfs.GCSFileSystem(use_listings_cache=False, skip_instance_cache=True)
    return ObjectStore(files, _folder_in(url.netloc, url.path, prefix))


def _open_azblob(backend: str, _: float) -> StackStore:
    adlfs = importlib.import_module("adlfs")
    url = urlsplit(backend)
    given = {name: values[-1] for name, values in parse_qs(url.query).items()}
    files = adlfs.AzureBlobFileSystem(
        account_name=given.get("storage_account") or os.environ.get("AZURE_STORAGE_ACCOUNT"),
        account_key=os.environ.get("AZURE_STORAGE_KEY"),
        sas_token=os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    return ObjectStore(files, _folder_in(url.netloc, url.path, given.get("prefix", "")))


_OPENERS: dict[str, Callable[[str, float], StackStore]] = {"s3": _open_s3, "gs": _open_gs, "azblob": _open_azblob}
"""Scheme of a backend to the function that opens it."""


def _write_whole(target: Path, data: bytes, folder: Path, mode: int | None = None) -> None:
    """Write a file atomically, through a temporary file in a folder of the same file system."""
    temporary = folder / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_bytes(data)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, ABSENT):
        raise error


def _folder_in(bucket: str, path: str, prefix: str) -> str:
    return "/".join(part.strip("/") for part in (bucket, prefix, path) if part.strip("/"))


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in ("1", "t", "true")
