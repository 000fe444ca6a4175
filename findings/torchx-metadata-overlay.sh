#!/usr/bin/env bash
# The pod overlay that TorchX documents for its command line, `--metadata kubernetes=file://...`, is dropped.
#
# Versions: torchx-nightly 2026.10.26 with kubernetes 37.0.1.
# Guess: the documented command lays the file over the pods, as the same key of a role's metadata does.
# Behavior: the component puts the option into the metadata of the app, and the scheduler reads that of the roles.
# Matters: tolerations, node selectors and volumes are missing from the pods, without a message.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
--metadata of the component: node selector {}
metadata of the role: node selector {'pool': 'a100'}
END

cat > overlay.yaml <<'END'
spec:
  nodeSelector:
    pool: a100
END
cat > show.py <<'END'
import pathlib

from torchx.components.dist import torchrun
from torchx.schedulers.kubernetes_scheduler import app_to_resource

overlay = {"kubernetes": f"file://{pathlib.Path('overlay.yaml').absolute()}"}


def show(what, app):
    pod = app_to_resource(app, "default", None)["spec"]["tasks"][0]["template"]
    print(f"{what}: node selector {pod.spec.node_selector}")


show("--metadata of the component", torchrun(script="train.py", image="example:1", metadata=overlay))
app = torchrun(script="train.py", image="example:1")
app.roles[0].metadata.update(overlay)
show("metadata of the role", app)
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile torchx-nightly==2026.10.26 kubernetes==37.0.1
venv/bin/python -W ignore show.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
