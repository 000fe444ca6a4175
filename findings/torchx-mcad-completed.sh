#!/usr/bin/env bash
# One finished AppWrapper in a namespace breaks `torchx list` and `torchx status` of MCAD for everybody there.
#
# Versions: torchx 0.7.0 with kubernetes 32.0.1, MCAD 1.40.0.
# Guess: TorchX has a state for each state of an AppWrapper; what it does not know is UNKNOWN.
# Behavior: MCAD knows six states, TorchX four of them. Completed and RunningHoldCompletion are a KeyError.
# Matters: the list of all jobs fails because one has succeeded.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
MCAD's states: Completed Deleted Failed Pending Running RunningHoldCompletion
TorchX lacks: Completed RunningHoldCompletion
list of a Running one: RUNNING
list of a Completed one: KeyError 'Completed'
END

mcad=$(cd / && go mod download -json github.com/project-codeflare/multi-cluster-app-dispatcher@v1.40.0 \
    | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
sed -n 's/.*AppWrapperState = "\(.*\)"$/\1/p' "$mcad/pkg/apis/controller/v1beta1/appwrapper.go" | sort > states

cat > list.py <<'END'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from torchx.schedulers.kubernetes_mcad_scheduler import JOB_STATE, create_scheduler

states = Path("states").read_text().split()
print("MCAD's states:", *states)
print("TorchX lacks:", *(state for state in states if state not in JOB_STATE))


class ApiServer(BaseHTTPRequestHandler):
    """Answers as an API server answers for the AppWrappers of a namespace."""

    state = ""

    def do_GET(self):
        app = {"metadata": {"name": "train"}, "spec": {}, "status": {"state": self.state}}
        answer = json.dumps({"items": [app]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
cluster = {"name": "local", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
context = {"name": "local", "context": {"cluster": "local", "user": "local", "namespace": "default"}}
kubeconfig = {"clusters": [cluster], "contexts": [context], "users": [{"name": "local", "user": {}}], "current-context": "local"}
Path("kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **kubeconfig}))
for ApiServer.state in ("Running", "Completed"):
    try:
        listed = create_scheduler("findings").list()[0].state.name
    except KeyError as error:
        listed = f"KeyError {error}"
    print(f"list of a {ApiServer.state} one:", listed)
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile torchx==0.7.0 kubernetes==32.0.1
KUBECONFIG=$work/kubeconfig NO_PROXY=127.0.0.1 venv/bin/python -W ignore list.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
