"""Logs that outlive their pods: copied from a cluster into a folder or an object store, and read from there."""

from torchx_pulumi_fleet.archive.archive import Archive, ArchivedRun, open_archive
from torchx_pulumi_fleet.archive.archived_log import ArchivedLog
from torchx_pulumi_fleet.archive.copying import LogCopy

__all__ = [
    "Archive",
    "ArchivedLog",
    "ArchivedRun",
    "LogCopy",
    "open_archive",
]
