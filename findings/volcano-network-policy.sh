#!/usr/bin/env bash
# A Volcano job with the plugin svc, which pytorch brings along, makes a NetworkPolicy: only its own pods reach its pods.
#
# Version: Volcano 1.15.1, the plugin of its job controller.
# Guess: svc makes a Service, so that pods find each other by name.
# Behavior: it makes a NetworkPolicy as well, whose one rule lets in the pods of the job. `--disable-network-policy` is the
#   argument without it.
# Matters: where policies are enforced, scrapers of metrics, dashboards and proxies reach no trainer, and nothing says why.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/volcano.bash"

cat > stated <<'END'
svc []: Service, NetworkPolicy [Ingress] for pods map[volcano.sh/job-name:train volcano.sh/job-namespace:default] from pods map[volcano.sh/job-name:train volcano.sh/job-namespace:default]
svc [--disable-network-policy]: Service
END

cat > main.go <<'END'
package main

import (
	"context"
	"fmt"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	plugins "volcano.sh/volcano/pkg/controllers/job/plugins/interface"
	"volcano.sh/volcano/pkg/controllers/job/plugins/svc"
)

func main() {
	show()
	show("--disable-network-policy")
}

func show(arguments ...string) {
	kube := fake.NewSimpleClientset()
	job := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "train", Namespace: "default"}}
	job.Status.ControlledResources = map[string]string{}
	job.Spec.Tasks = []batch.TaskSpec{{Name: "trainer", Replicas: 2}}
	if err := svc.New(plugins.PluginClientset{KubeClients: kube}, arguments).OnJobAdd(job); err != nil {
		panic(err)
	}
	fmt.Printf("svc %v:", arguments)
	services, err := kube.CoreV1().Services("default").List(context.Background(), meta.ListOptions{})
	if err != nil {
		panic(err)
	}
	for range services.Items {
		fmt.Print(" Service")
	}
	policies, err := kube.NetworkingV1().NetworkPolicies("default").List(context.Background(), meta.ListOptions{})
	if err != nil {
		panic(err)
	}
	for _, policy := range policies.Items {
		fmt.Printf(", NetworkPolicy %v for pods %v from pods %v", policy.Spec.PolicyTypes, policy.Spec.PodSelector.MatchLabels,
			policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels)
	}
	fmt.Println()
}
END
go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
