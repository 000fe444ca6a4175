"""Keys and certificates of one cluster, made with the `openssl` program."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.local_cluster.addresses import CLUSTER_DOMAIN
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import Layout, write_private

_LEAF: Final = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
subjectAltName={names}
"""
_AUTHORITY: Final = """\
[req]
distinguished_name=name
x509_extensions=authority
prompt=no
[name]
CN=torchx-pulumi local cluster
[authority]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""
_NAMES: Final = (
    *("DNS:localhost", "IP:127.0.0.1"),
    *("DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"),
    f"DNS:kubernetes.default.svc.{CLUSTER_DOMAIN}",
)
_DAYS: Final = "3650"
_NEW_KEY: Final = ("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files that let the components trust each other."""

    ca: Path
    """Certificate of the cluster's own authority."""
    certificate: Path
    """For `localhost`, 127.0.0.1 and the Service `kubernetes`; servers and clients inside the cluster share it."""
    key: Path
    """Its private key."""
    service_account_key: Path
    """Signs and checks the tokens of service accounts."""
    tokens: Path
    """The API server's table of static tokens."""
    token: Path
    """The administrator's token."""

    @classmethod
    def of(cls, layout: Layout) -> Credentials:
        """Name the files of a cluster, whether they exist or not."""
        folder = layout.secrets
        return cls(
            ca=folder / "ca.crt",
            certificate=folder / "component.crt",
            key=folder / "component.key",
            service_account_key=folder / "service-account.key",
            tokens=folder / "tokens.csv",
            token=folder / "token",
        )


def create_credentials(layout: Layout, service_address: str) -> Credentials:
    """Make fresh keys, certificates and an administrator's token.

    Args:
        layout: of the cluster.
        service_address: of the Service `kubernetes`.

    Raises:
        LocalClusterError: there is no `openssl`, or it failed.
    """
    made, folder = Credentials.of(layout), layout.secrets
    request = str(folder / "component.csr")
    authority = write_private(folder / "authority.cnf", _AUTHORITY)
    names = ",".join((*_NAMES, f"IP:{service_address}"))
    leaf = write_private(folder / "leaf.cnf", _LEAF.format(names=names))
    ca_key = str(folder / "ca.key")
    for key in (ca_key, str(made.key), str(made.service_account_key)):
        _openssl(*_NEW_KEY, key)
    _openssl("req", "-x509", "-new", "-config", str(authority), "-key", ca_key, "-days", _DAYS, "-out", str(made.ca))
    _openssl(
        *("req", "-new", "-config", str(authority), "-subj", "/CN=torchx-pulumi component"),
        *("-key", str(made.key), "-out", request),
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", str(made.ca), "-CAkey", ca_key, "-set_serial", "2"),
        *("-days", _DAYS, "-sha256", "-extfile", str(leaf), "-out", str(made.certificate)),
    )
    for path in folder.iterdir():
        path.chmod(0o600)
    token = secrets.token_hex(24)
    write_private(made.token, token)
    write_private(made.tokens, f'{token},admin,admin,"system:masters"\n')
    return made


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise LocalClusterError("no `openssl` on PATH: install it (Debian: apt-get install openssl) and try again")
    done = subprocess.run(
        [program, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        umask=0o077,
    )
    if done.returncode:
        raise LocalClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-500:]}")
