"""A Docker daemon of our own, for tests and benchmarks on machines where none runs.

It has its own folders and socket and touches no network: no bridge, no rules of a firewall.
"""

from tools.local_docker.daemon import LocalDocker, LocalDockerError, running_host

__all__ = ["LocalDocker", "LocalDockerError", "running_host"]
