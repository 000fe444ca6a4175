#!/usr/bin/env bash
# Version 36 of Kubernetes' Python client gives the log of a pod as the text of a Python bytes literal.
#
# Versions: kubernetes 35.0.0, 36.0.3, 37.0.1.
# Guess: read_namespaced_pod_log returns the log, as text, in every release.
# Behavior: 36 returns one line that begins with b' and has \n and \xc2 as letters. 35 and 37 return the log.
# Matters: what splits the answer into lines gets one. A pin of urllib3 below 2 leads here: with `torchx==0.7.0`
#   (urllib3 < 1.27) pip takes kubernetes 36.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
35.0.0 'step 1: 0.5 \xb5s\nstep 2\n'
36.0.3 "b'step 1: 0.5 \\xc2\\xb5s\\nstep 2\\n'"
37.0.1 'step 1: 0.5 \xb5s\nstep 2\n'
END

cat > read_log.py <<'END'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

from kubernetes import client


class ApiServer(BaseHTTPRequestHandler):
    """Answers as an API server answers for the log of a pod."""

    def do_GET(self):
        log = "step 1: 0.5 \xb5s\nstep 2\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(log)))
        self.end_headers()
        self.wfile.write(log)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
configuration = client.Configuration()
configuration.host = f"http://127.0.0.1:{server.server_port}"
configuration.proxy = None
core = client.CoreV1Api(client.ApiClient(configuration))
print(version("kubernetes"), ascii(core.read_namespaced_pod_log("trainer-0", "default")))
END

python3 -m venv --without-pip venv
for release in 35.0.0 36.0.3 37.0.1; do
    python3 -m pip --python venv/bin/python install --quiet --no-compile "kubernetes==$release"
    venv/bin/python read_log.py | tee -a seen
done
diff --unified --label stated --label seen stated seen
echo "as stated"
