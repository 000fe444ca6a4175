"""Logs that outlive their pods: copied from a cluster into a folder or an object store, and read from there."""

from torchx_pulumi.log_archive.archive import Archive, ArchivedJob, ArchivedRun, check_archive_url, open_archive
from torchx_pulumi.log_archive.before_deletion import copying_logs
from torchx_pulumi.log_archive.copying import LogCopy
from torchx_pulumi.log_archive.replica_log import ArchivedLog

__all__ = [
    "Archive",
    "ArchivedJob",
    "ArchivedLog",
    "ArchivedRun",
    "LogCopy",
    "check_archive_url",
    "copying_logs",
    "open_archive",
]
