"""Logs of a pod's containers, for all schedulers and the command line."""

from torchx_pulumi.logs.clock import LogClock, SystemClock
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import read_lines
from torchx_pulumi.logs.stopping import LogStop

__all__ = ["LogClock", "LogQuery", "LogStop", "SystemClock", "read_lines"]
