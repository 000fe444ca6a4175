#!/usr/bin/env bash
# Two roles of a TorchX app have pods of the same names on MCAD, which makes one pod for each name.
#
# Versions: torchx 0.7.0 with kubernetes 32.0.1.
# Guess: a pod's name has its role, or a number that goes on from role to role.
# Behavior: the names are <app>-<replica>, and each role begins with 0.
# Matters: the second role has fewer pods than asked for, and the first one waits for them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
trainer: pod job-0
trainer: pod job-1
reader: pod job-0
END

cat > names.py <<'END'
import re

from torchx.schedulers.kubernetes_mcad_scheduler import app_to_resource
from torchx.specs import AppDef, Resource, Role

resource = Resource(cpu=1, gpu=0, memMB=2048)
roles = [
    Role(name=name, image="example:1", entrypoint="true", num_replicas=replicas, resource=resource)
    for name, replicas in (("trainer", 2), ("reader", 1))
]
wrapper = app_to_resource(AppDef("job", roles), "default", None, None, None, None, None)
unique = wrapper["metadata"]["name"]
for item in wrapper["spec"]["resources"]["GenericItems"]:
    pod = item["generictemplate"]
    if getattr(pod, "kind", "") == "Pod":
        role = pod.metadata.labels["torchx.pytorch.org/role-name"]
        print(f"{role}: pod {re.sub('^' + re.escape(unique), 'job', pod.metadata.name)}")
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile torchx==0.7.0 kubernetes==32.0.1
venv/bin/python -W ignore names.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
