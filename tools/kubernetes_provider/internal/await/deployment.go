package await

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// deploymentReadiness: the rollout of the latest generation is done and enough
// replicas are available.
func deploymentReadiness(deployment *appsv1.Deployment) readiness {
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	status := deployment.Status
	if status.ObservedGeneration >= deployment.Generation &&
		status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted && status.Replicas == status.UpdatedReplicas {
		return readiness{ready: true}
	}
	return readiness{
		waitingFor: fmt.Sprintf("Waiting for app ReplicaSet be available (%d/%d Pods available)",
			status.AvailableReplicas, wanted),
		problems: deploymentProblems(status.Conditions),
	}
}

func deploymentProblems(conditions []appsv1.DeploymentCondition) []string {
	var found []string
	for _, condition := range conditions {
		wanted := corev1.ConditionTrue
		if condition.Type == appsv1.DeploymentReplicaFailure {
			wanted = corev1.ConditionFalse
		}
		if condition.Status != wanted && condition.Message != "" {
			found = append(found, fmt.Sprintf("[%s] %s", condition.Reason, condition.Message))
		}
	}
	return found
}
