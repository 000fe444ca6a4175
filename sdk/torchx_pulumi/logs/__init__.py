"""Logs of a pod's containers, for all schedulers and the command line."""

from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.logs.sources import LogClock, LogStop

__all__ = ["LogClock", "LogQuery", "LogStop", "read_source"]
