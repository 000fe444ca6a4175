#!/usr/bin/env bash
# MCAD counts a wrapped Job of any parallelism as one pod, and a Deployment of as many replicas as all of its pods.
#
# Version: MCAD 1.40.0.
# Guess: what MCAD sets aside for an item is what its pods ask for.
# Behavior: it multiplies the containers by spec.replicas, which a Job does not have. Only `custompodresources` helps.
# Matters: a Job that needs four times the quota is dispatched, and its pods wait in the cluster where others could run.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
Deployment, replicas 4: 4000 millicores
Job, parallelism 4: 1000 millicores
Job, parallelism 4, custompodresources of 4 replicas: 4000 millicores
END

cat > go.mod <<'END'
module findings

go 1.24.0

require github.com/project-codeflare/multi-cluster-app-dispatcher v1.40.0

replace sigs.k8s.io/custom-metrics-apiserver => sigs.k8s.io/custom-metrics-apiserver v1.25.1-0.20230306170449-63d8c93851f3
END
cat > main.go <<'END'
package main

import (
	"fmt"

	mcad "github.com/project-codeflare/multi-cluster-app-dispatcher/pkg/apis/controller/v1beta1"
	"github.com/project-codeflare/multi-cluster-app-dispatcher/pkg/controller/queuejobresources/genericresource"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const item = `{"apiVersion": "%s", "kind": "%s", "metadata": {"name": "a"}, "spec": {"%s": 4, "template": {"spec":
{"containers": [{"name": "main", "image": "example:1", "resources": {"requests": {"cpu": "1"}}}]}}}}`

func main() {
	show("Deployment, replicas 4", fmt.Sprintf(item, "apps/v1", "Deployment", "replicas"))
	job := fmt.Sprintf(item, "batch/v1", "Job", "parallelism")
	show("Job, parallelism 4", job)
	show("Job, parallelism 4, custompodresources of 4 replicas", job, mcad.CustomPodResourceTemplate{
		Replicas: 4, Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("1")},
	})
}

func show(what, template string, pods ...mcad.CustomPodResourceTemplate) {
	wrapped := &mcad.AppWrapperGenericResource{CustomPodResources: pods}
	wrapped.GenericTemplate.Raw = []byte(template)
	counted, err := genericresource.GetResources(wrapped)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %.0f millicores\n", what, counted.MilliCPU)
}
END
GOFLAGS="-mod=mod -trimpath" go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
