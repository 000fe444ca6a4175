"""Logs of a pod's containers, as both schedulers and the command line read them."""

from torchx_pulumi.logs.clock import Clock, SystemClock
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import read_lines

__all__ = ["Clock", "LogQuery", "SystemClock", "read_lines"]
