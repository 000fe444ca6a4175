#!/usr/bin/env bash
# A role of 1024 MB, which TorchX's components ask for unless told otherwise, requests no memory of the cluster.
#
# Versions: torchx 0.7.0 with kubernetes 32.0.1.
# Guess: a role of 1024 MB requests 1024 MB, or a little less for what a node needs itself.
# Behavior: TorchX takes a fixed 1024 MB and 100 millicores off each request, whatever its size. 1024 MB become "0M",
#   0.1 CPUs become "0m"; limits stay whole.
# Matters: for memory the scheduler and quotas count nothing, so that it does not limit how many such pods a node takes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/stated" <<'END'
dist.ddp asks for 1024 MB
cpu 1.0, 1024 MB: limits {'cpu': '1000m', 'memory': '1024M'}, requests {'cpu': '900m', 'memory': '0M'}
cpu 1.0, 2048 MB: limits {'cpu': '1000m', 'memory': '2048M'}, requests {'cpu': '900m', 'memory': '1024M'}
cpu 0.1, 2048 MB: limits {'cpu': '100m', 'memory': '2048M'}, requests {'cpu': '0m', 'memory': '1024M'}
END

cat > "$work/memory.py" <<'END'
from torchx.components.dist import ddp
from torchx.schedulers.kubernetes_scheduler import role_to_pod
from torchx.specs import Resource, Role

print("dist.ddp asks for", ddp(script="train.py", image="example:1").roles[0].resource.memMB, "MB")
for cpu, mb in ((1.0, 1024), (1.0, 2048), (0.1, 2048)):
    role = Role(name="trainer", image="example:1", entrypoint="true", resource=Resource(cpu=cpu, gpu=0, memMB=mb))
    asked = role_to_pod("trainer-0", role, service_account=None).spec.containers[0].resources
    print(f"cpu {cpu}, {mb} MB: limits {asked.limits}, requests {asked.requests}")
END

python3 -m venv --without-pip "$work/venv"
pip=(python3 -m pip --python "$work/venv/bin/python")
"${pip[@]}" install --quiet --no-compile torchx==0.7.0 kubernetes==32.0.1
"$work/venv/bin/python" -W ignore "$work/memory.py" | tee "$work/seen"
diff --unified --label stated --label seen "$work/stated" "$work/seen"
echo "as stated"
