"""The archives that may have the logs of an app: the one that its launch named, then the controller's own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torchx_pulumi.apps.app import App
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.redaction import without_password

from torchx_pulumi_fleet.archive import Archive, open_archive
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules


class KnownArchives:
    """Opens archives, each once. For use by several threads."""

    def __init__(self, rules: ArchiveRules, *, opened: Callable[[str], Archive] = open_archive) -> None:
        """Take the rules. No file is read and no request is made.

        Args:
            rules: Which archives are read.
            opened: Opens an archive by its URL.
        """
        self.rules = rules
        self._opened = opened
        self._guard = threading.Lock()
        self._known: dict[str, Archive | InvalidJobError] = {}

    def of(self, app: App) -> tuple[list[Archive], list[str]]:
        """Return the archives of an app in the order in which they are asked, and why others cannot be opened."""
        found: list[Archive] = []
        problems: list[str] = []
        if app.log_archive is not None and self.rules.named(app) is None:
            where = without_password(app.log_archive)
            problems.append(f"the archive that its launch named is not read: {where} is not allowed (--archive-allow)")
        for url in self.rules.having(app):
            archive = self._open(url)
            if isinstance(archive, Archive):
                found.append(archive)
            else:
                problems += [f"an archive of its logs cannot be opened: {problem}" for problem in archive.problems]
        return found, problems

    def _open(self, url: str) -> Archive | InvalidJobError:
        with self._guard:
            known = self._known.get(url)
            if known is None:
                try:
                    known = self._opened(url)
                except InvalidJobError as error:
                    known = error
                self._known[url] = known
            return known
