#!/usr/bin/env bash
# The same manifest of a Volcano job is accepted once, and refused when it is applied again without a change.
#
# Version: Volcano 1.15.1, the functions of its two webhooks for jobs.
# Guess: a manifest that was accepted can be applied again.
# Behavior: on creation the webhook fills in each task that lacks minAvailable, turns maxRetry 0 into 3, and adds the plugin
#   svc to pytorch, mpi, tensorflow and ray. On an update it refuses the fields that it filled in itself as changes.
# Matters: `kubectl apply` and tools of desired state fail on a running job, or want to replace it. "No retries" is not
#   what is stored. Tasks with minAvailable and maxRetry above 0 can be applied again.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/volcano.bash"

cat > stated <<'END'
maxRetry 0, nothing else
  stored: maxRetry 3, task maxRetry 3, minAvailable 2, cpu 1, plugins pytorch svc
  applied again: job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`
maxRetry 3, in the task too, with minAvailable
  stored: maxRetry 3, task maxRetry 3, minAvailable 2, cpu 1000m, plugins pytorch svc
  applied again: accepted
END

cat > main.go <<'END'
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/webhooks/admission/jobs/mutate"
	"volcano.sh/volcano/pkg/webhooks/admission/jobs/validate"
)

const manifest = `{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train", "namespace": "default"},
"spec": {"queue": "default", "schedulerName": "volcano", %s, "plugins": {"pytorch": []}, "tasks": [{"name": "trainer", "replicas": 2, %s
"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "example:1", "resources": {"requests": {"cpu": "1000m"}}}]}}}]}}`

func review(operation admission.Operation, old, new []byte) admission.AdmissionReview {
	return admission.AdmissionReview{Request: &admission.AdmissionRequest{
		Operation: operation,
		Resource:  meta.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"},
		OldObject: runtime.RawExtension{Raw: old},
		Object:    runtime.RawExtension{Raw: new},
	}}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	show("maxRetry 0, nothing else", fmt.Sprintf(manifest, `"maxRetry": 0`, ""))
	show("maxRetry 3, in the task too, with minAvailable",
		fmt.Sprintf(manifest, `"maxRetry": 3, "minAvailable": 2`, `"maxRetry": 3, "minAvailable": 2,`))
}

func show(what, manifest string) {
	fmt.Println(what)
	created := mutate.Jobs(review(admission.Create, nil, []byte(manifest)))
	stored := must(must(jsonpatch.DecodePatch(created.Patch)).Apply([]byte(manifest)))
	var job struct {
		Spec struct {
			MaxRetry int
			Plugins  map[string]any
			Tasks    []struct {
				MaxRetry, MinAvailable int
				Template               struct {
					Spec struct {
						Containers []struct {
							Resources struct{ Requests map[string]string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(stored, &job); err != nil {
		panic(err)
	}
	plugins := []string{}
	for name := range job.Spec.Plugins {
		plugins = append(plugins, name)
	}
	slices.Sort(plugins)
	task := job.Spec.Tasks[0]
	fmt.Printf("  stored: maxRetry %d, task maxRetry %d, minAvailable %d, cpu %s, plugins %s\n", job.Spec.MaxRetry, task.MaxRetry,
		task.MinAvailable, task.Template.Spec.Containers[0].Resources.Requests["cpu"], strings.Join(plugins, " "))

	// What `kubectl apply` sends for a custom resource: the stored object with each field of the manifest.
	again := must(jsonpatch.MergePatch(stored, []byte(manifest)))
	if answer := validate.AdmitJobs(review(admission.Update, stored, again)); answer.Allowed {
		fmt.Println("  applied again: accepted")
	} else {
		fmt.Println("  applied again:", answer.Result.Message)
	}
}
END
go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
