"""The token of a controller's pages: generated or from a file; and the cookies that it is exchanged for."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import threading
from collections.abc import Callable
from pathlib import Path

SHORTEST = 16
"""Fewest characters of a token."""

LONGEST = 1024

COOKIE_S = 7 * 24 * 3600
"""Seconds for which a cookie is valid."""


class GeneratedToken:
    """A random token of this process."""

    def __init__(self) -> None:
        """Make one of 32 random bytes."""
        self.text = secrets.token_urlsafe(32)

    def current(self) -> bytes:
        """Return it."""
        return self.text.encode()


class FileToken:
    """A token in a file, which is read again when it changes."""

    def __init__(self, path: Path, report: Callable[[str], None] = lambda _: None) -> None:
        """Read the file.

        Args:
            path: The file.
            report: Takes a line when a changed file is not valid; the last valid token stays.

        Raises:
            ValueError: It is not a valid token file. The message has the path and what to do, and not the content.
        """
        self._path = path
        self.report = report
        """May be replaced until the first request."""
        self._guard = threading.Lock()
        self._version = _version(path)
        self._token = read_token(path)

    def current(self) -> bytes:
        """Return the token; looks at the file."""
        with self._guard:
            version = _version(self._path)
            if version != self._version:
                self._version = version
                try:
                    self._token = read_token(self._path)
                except ValueError as error:
                    self.report(f"--token-file: {error}; the token before the change stays valid")
            return self._token


Token = GeneratedToken | FileToken


def read_token(path: Path) -> bytes:
    """Return the token in a file, without blanks around it.

    Raises:
        ValueError: The file cannot be read, its token is not valid, or others may read it.
    """
    try:
        if not path.is_file():
            raise ValueError(f"{path} is not a file; make one, for example with: openssl rand -hex 32")
        with path.open("rb") as file:
            about, data = os.fstat(file.fileno()), file.read(LONGEST + 3)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; name a file that this user can read") from error
    problem = _ownership_problem(path, about)
    if problem:
        raise ValueError(problem)
    token = data.strip()
    if not SHORTEST <= len(token) <= LONGEST:
        found = "is empty" if not token else f"has a token of {len(token)} characters" if len(token) < SHORTEST else ""
        allowed = f"allowed are {SHORTEST} to {LONGEST}; make one with: openssl rand -hex 32"
        raise ValueError(f"{path} {found or 'has a longer token'}, {allowed}")
    if not all(33 <= byte <= 126 for byte in token):
        raise ValueError(f"{path} has blanks or other characters in its token, allowed are printable ASCII characters")
    return token


def _ownership_problem(path: Path, about: os.stat_result) -> str:
    """Return why others know the token. Empty: only this user, or a manager of secrets, has it.

    The kubelet mounts Secrets with 0644, or 0440 and a group, in a folder whose `..data` leads to the present version;
    systemd gives credentials in a folder of their own. There the mode does not say who reaches the file.
    """
    if (path.parent / "..data").is_symlink() or str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY"):
        return ""
    if about.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user (uid {about.st_uid}); make a file of your own"
    if stat.S_IMODE(about.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(about.st_mode):04o}"
        return f"{path} has mode {mode}: others can read or change it; make a new token, and run: chmod 600 {path}"
    return ""


def _version(path: Path) -> tuple[int, int, int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    # The time of a change of mode or owner, too: it may make the file valid.
    return (about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size)


def is_same(given: bytes, token: bytes) -> bool:
    """Return whether a given token is the valid one; takes as long for every wrong one."""
    # Of equal length, so that the time does not tell the length either.
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(token).digest())


def make_cookie(token: bytes, now: float) -> str:
    """Return a cookie's value: when it ends, and a signature. It is not the token, and all replicas accept it.

    Args:
        token: The token, which is the key of the signature.
        now: Seconds since 1970.
    """
    expiry = str(int(now) + COOKIE_S)
    return f"{expiry}.{_signature(token, expiry)}"


def is_valid_cookie(value: str, token: bytes, now: float) -> bool:
    """Return whether a cookie was made with the token and has not ended."""
    expiry, _, signature = value.partition(".")
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12):
        return False
    genuine = hmac.compare_digest(signature.encode(errors="replace"), _signature(token, expiry).encode())
    return genuine and now < int(expiry)


def _signature(token: bytes, expiry: str) -> str:
    return hmac.new(token, f"torchx-pulumi cookie\0{expiry}".encode(), hashlib.sha256).hexdigest()
