"""Marks of controllers in an archive: nothing else says whether a log that a launch wants to be kept there will be.

A controller renews a file for each namespace whose logs it copies to the archive, or one for all namespaces.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from torchx_pulumi.logs.archives import archive_place, archive_url, escape, shown_url
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.object_fields import at, time_at
from torchx_pulumi.model.object_schemes import SCHEMES
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.stack_state.backend import backend_folder, open_store
from torchx_pulumi.storage.files import is_folder

EVERY_S = 300.0
"""Time between two marks of a controller."""

LASTS = timedelta(seconds=3 * EVERY_S)
"""Age of a mark after which no controller is taken to write the archive. Clocks may differ by less than that."""

TIMEOUT_S = 5.0
"""Timeout of one request to an object store. A launch waits for it."""

ALL = "*"
"""Stands for all namespaces in the path of a mark."""


def mark_path(namespace: str | None) -> str:
    """Return the path of a mark in an archive; None stands for all namespaces. No folder of a job has this name."""
    return f".controllers/{escape(namespace or ALL)}.json"


def mark_text(now: datetime, urls: Sequence[str] = ()) -> str:
    """Return the content of a mark. A launch has to name one of the URLs of the archive, if there are any."""
    return json.dumps({"written_at": format_time(now), "urls": [*urls]})


def find_no_writer(url: str, namespace: str, now: datetime, *, secret: bool = False) -> str | None:
    """Return why logs that a launch wants to be kept in an archive may be lost. None: a controller copies them.

    Args:
        url: The archive, as `check_archive_url` allows it.
        namespace: Namespace of the job.
        now: The time, aware.
        secret: Show no part of the URL, which errors of a store name in other forms too.
    """
    what = "log_archive" if secret else f"log_archive {shown_url(url)}"
    try:
        found = _read(archive_url(url), namespace)
    except OSError as error:
        return f"{what}: whether a controller copies logs there is not known" + ("" if secret else f": {error}")
    marks = [mark for data in found if data is not None and (mark := _read_mark(data)) is not None]
    times = [time for time, _ in marks]
    fresh = [urls for time, urls in marks if now - time < LASTS]
    if any(not urls or archive_place(url) in map(archive_place, urls) for urls in fresh):
        return None
    if fresh:
        forms = dict.fromkeys(shown_url(each) for urls in fresh for each in urls)
        allowed = "it in another form" if secret else " or ".join(forms)
        return (
            f"{what}: the controller that copies logs there allows {allowed}, and the whole URL counts, with its "
            f"parameters ({page('controller')}); name the archive so, or the launch is one without log_archive"
        )
    last = f" since {format_time(max(times))}" if times else ""
    return (
        f"{what}: no controller copies logs of namespace {namespace} there{last}, so they go with their pods; start "
        f"one whose --archive-allow names this archive ({page('controller')}), or leave log_archive out"
    )


def _read(place: str, namespace: str) -> list[bytes | None]:
    """Return the marks that count for a namespace; None is an absent one.

    Raises:
        OSError: The archive cannot be read.
    """
    folder = backend_folder(place)
    if folder is not None and not is_folder(folder):
        raise OSError(f"there is no folder {folder} on this machine")
    store = open_store(place, TIMEOUT_S)
    if store is None:
        raise OSError(f"it cannot be read here without the package of `{SCHEMES[urlsplit(place).scheme].install}`")
    return [store.read_bytes(mark_path(name)) for name in (namespace, None)]


def _read_mark(data: bytes) -> tuple[datetime, list[str]] | None:
    """Return the time and the URLs of a mark. None: it is damaged."""
    try:
        mark = json.loads(data)
        time = time_at(mark, "written_at")
    except (ValueError, RecursionError):
        return None
    urls = at(mark, "urls")
    return None if time is None else (time, [*map(str, urls)] if isinstance(urls, list) else [])
