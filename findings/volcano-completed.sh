#!/usr/bin/env bash
# A Volcano job is Completed although most of its pods failed, if as many succeeded as had to start together.
#
# Version: Volcano 1.15.1, the state machine of its job controller.
# Guess: minAvailable is about the start; a job with failed pods and without retries is Failed.
# Behavior: when all pods have ended, minAvailable is the number that must have succeeded, for the job and for each task.
#   A master that starts first (minAvailable 1, `dependsOn`) makes the job Completed when all three workers failed.
# Matters: what waits for the phase reports a success.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/volcano.bash"

cat > stated <<'END'
minAvailable 1 (master 1, worker 0), master succeeded, 3 workers failed: Completed
minAvailable 4 (master 1, worker 3), master succeeded, 3 workers failed: Failed
END

cat > main.go <<'END'
package main

import (
	"fmt"

	core "k8s.io/api/core/v1"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	"volcano.sh/volcano/pkg/controllers/apis"
	"volcano.sh/volcano/pkg/controllers/job/state"
)

func main() {
	state.SyncJob = func(job *apis.JobInfo, update state.UpdateStatusFn) error {
		update(&job.Job.Status)
		return nil
	}
	for _, workers := range []int32{0, 3} {
		master, all := int32(1), workers+1
		job := &batch.Job{}
		job.Spec.MinAvailable = all
		job.Spec.Tasks = []batch.TaskSpec{
			{Name: "master", Replicas: 1, MinAvailable: &master},
			{Name: "worker", Replicas: 3, MinAvailable: &workers, DependsOn: &batch.DependsOn{Name: []string{"master"}}},
		}
		job.Status.State.Phase = batch.Running
		job.Status.Succeeded, job.Status.Failed = 1, 3
		job.Status.TaskStatusCount = map[string]batch.TaskState{
			"master": {Phase: map[core.PodPhase]int32{core.PodSucceeded: 1}},
			"worker": {Phase: map[core.PodPhase]int32{core.PodFailed: 3}},
		}
		if err := state.NewState(&apis.JobInfo{Job: job}).Execute(state.Action{Action: bus.SyncJobAction}); err != nil {
			panic(err)
		}
		fmt.Printf("minAvailable %d (master 1, worker %d), master succeeded, 3 workers failed: %s\n",
			all, workers, job.Status.State.Phase)
	}
}
END
go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
