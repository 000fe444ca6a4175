"""An environment without proxies, certificates, and an API server of this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.loopback import ApiServer, Certificates

PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificates with openssl")
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer().running() as server:
        yield server


@pytest.fixture
def tls_api(certificates: Certificates) -> Iterator[ApiServer]:
    with ApiServer(context=certificates.context()).running() as server:
        yield server
