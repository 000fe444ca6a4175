#!/usr/bin/env bash
# TorchX names rank 0 of a role with a dash by a variable that Volcano does not set.
#
# Versions: torchx 0.7.0 with kubernetes 32.0.1, Volcano 1.15.1, the plugin svc of its job controller.
# Guess: `${rank0_env}` is the name of the variable that Volcano's plugin gives to each pod.
# Behavior: TorchX keeps the dashes of the role's name, Volcano writes underscores. A shell could not read the other either.
# Matters: a role `my-train` finds no rank 0, and the role `train` of the same job description does.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/volcano.bash"

cat > stated <<'END'
role train: TorchX reads VC_TRAIN_0_HOSTS, Volcano sets VC_TRAIN_0_HOSTS
role my-train: TorchX reads VC_MY-TRAIN_0_HOSTS, Volcano sets VC_MY_TRAIN_0_HOSTS
END

cat > main.go <<'END'
// Prints the variable with the hosts of the task of the first argument.
package main

import (
	"fmt"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	plugins "volcano.sh/volcano/pkg/controllers/job/plugins/interface"
	"volcano.sh/volcano/pkg/controllers/job/plugins/svc"
)

func main() {
	job, pod := &batch.Job{}, &core.Pod{}
	job.Spec.Tasks = []batch.TaskSpec{{Name: os.Args[1], Replicas: 1}}
	pod.Spec.Containers = []core.Container{{Name: "main"}}
	if err := svc.New(plugins.PluginClientset{}, nil).OnPodCreate(pod, job); err != nil {
		panic(err)
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		if strings.HasSuffix(variable.Name, "_HOSTS") {
			fmt.Println(variable.Name)
		}
	}
}
END
go build -o volcano .

cat > compare.py <<'END'
import subprocess

from torchx.schedulers.kubernetes_scheduler import app_to_resource
from torchx.specs import AppDef, Resource, Role

for name in ("train", "my-train"):
    resource = Resource(cpu=1, gpu=0, memMB=2048)
    roles = [Role(name, "example:1", entrypoint="main", args=["${rank0_env}"], num_replicas=2, resource=resource)]
    rank0, rank1 = app_to_resource(AppDef("job", roles), "default", None)["spec"]["tasks"]
    read = rank1["template"].spec.containers[0].command[-1]
    volcano = subprocess.run(["./volcano", rank0["name"]], capture_output=True, text=True, check=True).stdout.strip()
    print(f"role {name}: TorchX reads {read}, Volcano sets {volcano}")
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile torchx==0.7.0 kubernetes==32.0.1
venv/bin/python -W ignore compare.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
