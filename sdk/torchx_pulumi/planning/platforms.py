"""Which systems apps can be launched and followed from. Imported before anything that exists on POSIX systems only."""

from __future__ import annotations

from torchx_pulumi.model.errors import DeployError


def check_platform() -> None:
    """Refuse a system without POSIX file locks.

    Raises:
        DeployError: This is such a system: Windows.
    """
    try:
        import fcntl  # noqa: F401 - whether it is there is the question
    except ImportError as error:
        raise DeployError(
            "torchx-pulumi runs on Linux and macOS. Windows is not supported: the index of apps needs POSIX file "
            "locks. Use it in WSL 2 (https://learn.microsoft.com/windows/wsl/install)"
        ) from error
