"""Ways to see whether a component serves."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request

from tools.local_cluster.certificates import Credentials


def http_ok(url: str, made: Credentials | None = None) -> bool:
    """Whether `url` answers with 200.

    Args:
        url: on loopback.
        made: credentials for https; the cluster's certificate is shown as the client's.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if made is not None:
        context = ssl.create_default_context(cafile=str(made.ca))
        context.load_cert_chain(made.certificate, made.key)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


def listens(port: int) -> bool:
    """Whether something accepts connections on a loopback port."""
    with socket.create_connection(("127.0.0.1", port), timeout=3):
        return True
