#!/usr/bin/env bash
# Volcano counts each resume of a job as a retry: the one that reaches maxRetry ends the job, though nothing failed.
#
# Version: Volcano 1.15.1, the state machine of its job controller.
# Guess: maxRetry counts restarts after failures. A job with maxRetry 1 survives one failure, and any number of
#   `vcctl job suspend` and `resume`.
# Behavior: a resume adds one to retryCount, and a restart whose count has reached maxRetry is Failed. So maxRetry 1 allows
#   neither a restart nor a resume, and the default of 3 two of both together.
# Matters: `resume` answers that all is well, and the job ends as Failed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/volcano.bash"

cat > stated <<'END'
maxRetry 1, failure: Running Restarting Failed
maxRetry 1, suspend and resume: Running Aborting Aborted Restarting Failed
maxRetry 3, suspend and resume: Running Aborting Aborted Restarting Pending, retryCount 1
maxRetry 3, the third time: Running Aborting Aborted Restarting Failed
END

cat > main.go <<'END'
package main

import (
	"fmt"
	"strings"

	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	"volcano.sh/volcano/pkg/controllers/apis"
	"volcano.sh/volcano/pkg/controllers/job/state"
)

// The controller deletes and creates pods here; in this cluster that has always succeeded at once.
func done(job *apis.JobInfo, update state.UpdateStatusFn) error {
	if update != nil {
		update(&job.Job.Status)
	}
	return nil
}

// phases gives the requests of the actions to a running job, and says in which phases it was.
func phases(job *batch.Job, actions ...bus.Action) string {
	job.Status.State.Phase = batch.Running
	seen := []string{string(batch.Running)}
	for _, action := range actions {
		if err := state.NewState(&apis.JobInfo{Job: job}).Execute(state.Action{Action: action}); err != nil {
			panic(err)
		}
		seen = append(seen, string(job.Status.State.Phase))
	}
	return strings.Join(seen, " ")
}

func newJob(maxRetry int32) *batch.Job {
	job := &batch.Job{}
	job.Spec.MaxRetry, job.Spec.MinAvailable, job.Status.MinAvailable = maxRetry, 1, 1
	job.Spec.Tasks = []batch.TaskSpec{{Name: "trainer", Replicas: 1}}
	return job
}

func main() {
	state.SyncJob = done
	state.KillJob = func(job *apis.JobInfo, _ state.PhaseMap, update state.UpdateStatusFn) error { return done(job, update) }

	failure := []bus.Action{bus.RestartJobAction, bus.SyncJobAction}
	resume := []bus.Action{bus.AbortJobAction, bus.SyncJobAction, bus.ResumeJobAction, bus.SyncJobAction}
	fmt.Println("maxRetry 1, failure:", phases(newJob(1), failure...))
	fmt.Println("maxRetry 1, suspend and resume:", phases(newJob(1), resume...))
	job := newJob(3)
	fmt.Printf("maxRetry 3, suspend and resume: %s, retryCount %d\n", phases(job, resume...), job.Status.RetryCount)
	phases(job, resume...)
	fmt.Println("maxRetry 3, the third time:", phases(job, resume...))
}
END
go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
