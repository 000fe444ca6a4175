package await

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

func podWith(phase corev1.PodPhase, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Phase: phase, Conditions: conditions},
	}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Message: message}
}

func TestPodReadiness(t *testing.T) {
	scheduled := condition(corev1.PodScheduled, corev1.ConditionTrue, "")
	initialized := condition(corev1.PodInitialized, corev1.ConditionTrue, "")
	for name, one := range map[string]struct {
		pod     *corev1.Pod
		ready   bool
		waiting string
	}{
		"new":         {podWith(corev1.PodPending), false, "to be scheduled"},
		"scheduled":   {podWith(corev1.PodPending, scheduled), false, "to be initialized"},
		"initialized": {podWith(corev1.PodRunning, scheduled, initialized), false, "to be ready"},
		"ready": {
			podWith(corev1.PodRunning, scheduled, initialized, condition(corev1.PodReady, corev1.ConditionTrue, "")), true, "",
		},
		"done": {podWith(corev1.PodSucceeded, scheduled, initialized), true, ""},
	} {
		state := podReadiness(one.pod)
		if state.ready != one.ready || !strings.Contains(state.waitingFor, one.waiting) {
			t.Errorf("%s: got %+v", name, state)
		}
	}
}

func TestPodProblemsNameTheCause(t *testing.T) {
	pod := podWith(corev1.PodPending, condition(corev1.PodScheduled, corev1.ConditionFalse, "0/4 nodes are available"))
	if state := podReadiness(pod); len(state.problems) != 1 || !strings.Contains(state.problems[0], "0/4 nodes") {
		t.Errorf("got %+v", state)
	}
	pod = podWith(corev1.PodPending, condition(corev1.PodScheduled, corev1.ConditionTrue, ""))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such"}}},
		{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}},
		{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}
	want := `[Pod p]: [ErrImagePull] no such; container "b" completed with exit code 3`
	if state := podReadiness(pod); len(state.problems) != 1 || state.problems[0] != want {
		t.Errorf("got %+v", state)
	}
}

func TestJobReadiness(t *testing.T) {
	with := func(kind batchv1.JobConditionType) *batchv1.Job {
		condition := batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "R"}
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{condition}}}
	}
	if state := jobReadiness(with(batchv1.JobComplete)); !state.ready {
		t.Errorf("got %+v", state)
	}
	if state := jobReadiness(with(batchv1.JobFailed)); state.ready || !state.failed || len(state.problems) != 1 {
		t.Errorf("got %+v", state)
	}
	if state := jobReadiness(&batchv1.Job{}); state.ready || state.failed || state.waitingFor == "" {
		t.Errorf("got %+v", state)
	}
}

func TestDeploymentReadiness(t *testing.T) {
	replicas := int32(2)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
	}
	if state := deploymentReadiness(deployment); !state.ready {
		t.Errorf("got %+v", state)
	}
	for name, spoil := range map[string]func(*appsv1.DeploymentStatus){
		"not observed":  func(status *appsv1.DeploymentStatus) { status.ObservedGeneration = 1 },
		"not available": func(status *appsv1.DeploymentStatus) { status.AvailableReplicas = 1 },
		"old ones left": func(status *appsv1.DeploymentStatus) { status.Replicas = 3 },
	} {
		spoiled := deployment.DeepCopy()
		spoil(&spoiled.Status)
		if state := deploymentReadiness(spoiled); state.ready {
			t.Errorf("%s: ready", name)
		}
	}
}

func TestServicesAreReadyButForAnAddressFromOutside(t *testing.T) {
	for name, one := range map[string]struct {
		service corev1.Service
		want    bool
	}{
		"headless":   {corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, true},
		"cluster ip": {corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}, true},
		"waiting":    {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}, false},
		"balanced": {corev1.Service{
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
				Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}},
			}},
		}, true},
	} {
		if got := serviceReadiness(&one.service).ready; got != one.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestWaitFor(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generation": int64(2)},
		"status": map[string]any{"phase": "Done", "count": int64(3), "conditions": []any{
			map[string]any{"type": "Fine", "status": "True"},
			map[string]any{"type": "Stale", "status": "True", "observedGeneration": int64(1)},
			map[string]any{"type": "Off", "status": "False"},
		}},
	}}
	for wish, want := range map[string]bool{
		"jsonpath={.status.phase}":                                   true,
		"jsonpath={.status.phase}=Done":                              true,
		`jsonpath={.status.phase}="Done"`:                            true,
		"jsonpath={.status.phase}=Failed":                            false,
		"jsonpath={.status.count}=3":                                 true,
		"jsonpath={.status.nothing}":                                 false,
		`jsonpath={.status.conditions[?(@.type=="Off")].status}`:     true,
		"condition=Fine":                                             true,
		"condition=fine":                                             true,
		"condition=Off":                                              false,
		"condition=Off=False":                                        true,
		"condition=Stale":                                            false,
		"condition=Missing":                                          false,
		`["jsonpath={.status.phase}=Done", "condition=Fine"]`:        true,
		`["jsonpath={.status.phase}=Done", "jsonpath={.status.no}"]`: false,
	} {
		look, err := parseWaitFor(wish)
		if err != nil {
			t.Errorf("%s: %v", wish, err)
			continue
		}
		if state, err := look(context.Background(), live); state.ready != want || err != nil {
			t.Errorf("%s: got %+v, %v", wish, state, err)
		}
	}
	for _, wrong := range []string{"[]", "ready", "jsonpath=.status.phase", "jsonpath={.status[}"} {
		if _, err := parseWaitFor(wrong); err == nil {
			t.Errorf("%s: expected an error", wrong)
		}
	}
}

// recorded keeps the options of the last list.
type recorded struct {
	dynamic.ResourceInterface
	options metav1.ListOptions
}

func (r *recorded) List(_ context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	r.options = options
	return &unstructured.UnstructuredList{}, nil
}

func TestTheFirstLookIsNotOlderThanTheWrite(t *testing.T) {
	client := &recorded{}
	if _, err := cache.ToListerWatcherWithContext(watchOne(client, "d")).ListWithContext(
		context.Background(), metav1.ListOptions{ResourceVersion: "0"},
	); err != nil {
		t.Fatal(err)
	}
	if client.options.ResourceVersion != "" || client.options.FieldSelector != "metadata.name=d" {
		t.Errorf("got %+v", client.options)
	}
}
