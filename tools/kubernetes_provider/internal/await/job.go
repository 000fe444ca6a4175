package await

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// jobReadiness: complete. A job that failed fails the wait.
func jobReadiness(job *batchv1.Job) readiness {
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			return readiness{ready: true}
		case batchv1.JobFailed:
			return readiness{failed: true, problems: []string{
				fmt.Sprintf("[Job %s]: %s: %s", job.Name, condition.Reason, condition.Message)}}
		}
	}
	if job.Status.StartTime == nil {
		return readiness{waitingFor: fmt.Sprintf("Waiting for Job %q to start", job.Name)}
	}
	return readiness{waitingFor: fmt.Sprintf("Waiting for Job %q to succeed (Active: %d | Succeeded: %d | Failed: %d)",
		job.Name, job.Status.Active, job.Status.Succeeded, job.Status.Failed)}
}
