package await

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podReadiness: scheduled, initialized and ready, or run to a good end. A pod
// that failed stays unready, since a restart policy may still help it.
func podReadiness(pod *corev1.Pod) readiness {
	if pod.Status.Phase == corev1.PodSucceeded {
		return readiness{ready: true}
	}
	steps := []struct {
		condition corev1.PodConditionType
		doing     string
	}{
		{corev1.PodScheduled, "scheduled"},
		{corev1.PodInitialized, "initialized"},
		{corev1.PodReady, "ready"},
	}
	for _, step := range steps {
		condition := podCondition(pod, step.condition)
		if condition != nil && condition.Status == corev1.ConditionTrue {
			continue
		}
		return readiness{
			waitingFor: fmt.Sprintf("Waiting for Pod %q to be %s", pod.Name, step.doing),
			problems:   podProblems(pod, condition),
		}
	}
	return readiness{ready: true}
}

func podCondition(pod *corev1.Pod, wanted corev1.PodConditionType) *corev1.PodCondition {
	for index := range pod.Status.Conditions {
		if pod.Status.Conditions[index].Type == wanted {
			return &pod.Status.Conditions[index]
		}
	}
	return nil
}

func podProblems(pod *corev1.Pod, condition *corev1.PodCondition) []string {
	var found []string
	if condition != nil && condition.Message != "" {
		found = append(found, condition.Message)
	}
	for _, container := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if problem := containerProblem(container); problem != "" {
			found = append(found, problem)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("[Pod %s]: %s", pod.Name, strings.Join(found, "; "))}
}

func containerProblem(container corev1.ContainerStatus) string {
	waiting, ended := container.State.Waiting, container.State.Terminated
	switch {
	case container.Ready:
		return ""
	case waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing":
		return fmt.Sprintf("[%s] %s", waiting.Reason, waiting.Message)
	case ended != nil && ended.ExitCode != 0 && ended.Message != "":
		return fmt.Sprintf("[%s] %s", ended.Reason, ended.Message)
	case ended != nil && ended.ExitCode != 0:
		return fmt.Sprintf("container %q completed with exit code %d", container.Name, ended.ExitCode)
	}
	return ""
}
