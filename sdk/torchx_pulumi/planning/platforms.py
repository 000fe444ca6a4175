"""Check of the operating system. It is a module because it runs before modules are imported that need POSIX."""

from __future__ import annotations

from torchx_pulumi.model.errors import DeployError


def check_platform() -> None:
    """Check that the system has POSIX file locks.

    Raises:
        DeployError: It has none: Windows.
    """
    try:
        import fcntl  # noqa: F401 - only its presence is checked
    except ImportError as error:
        raise DeployError(
            "torchx-pulumi runs on Linux and macOS. Windows is not supported: the index of apps needs POSIX file "
            "locks. Use it in WSL 2 (https://learn.microsoft.com/windows/wsl/install)"
        ) from error
