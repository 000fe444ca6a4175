package await

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// pollPause is how often a service is looked at: its endpoints are other
// objects, so watching the service would miss them.
const pollPause = 500 * time.Millisecond

const noEndpoints = "Service does not target any Pods. Selected Pods may not be ready, or " +
	"field '.spec.selector' may not match labels on any Pods"

var endpointSliceKind = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")

// serviceCheck: an address where one is to be allocated, and at least one pod
// behind it. Headless and external services are ready at once.
func serviceCheck(objects Objects) check {
	return func(ctx context.Context, live *unstructured.Unstructured) (readiness, error) {
		var service corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &service); err != nil {
			return readiness{}, fmt.Errorf("Service %q does not fit its type: %w", live.GetName(), err)
		}
		if !needsEndpoints(&service) {
			return readiness{ready: true}, nil
		}
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 {
			return readiness{
				waitingFor: "[2/3] Attempting to allocate IP address to Service",
				problems: []string{
					"Service was not allocated an IP address; does your cloud provider support this?"},
			}, nil
		}
		return endpointReadiness(ctx, objects, &service)
	}
}

func polls(obj *unstructured.Unstructured) bool {
	return obj.GetAPIVersion() == "v1" && obj.GetKind() == "Service"
}

func needsEndpoints(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP != corev1.ClusterIPNone
}

func endpointReadiness(ctx context.Context, objects Objects, service *corev1.Service) (readiness, error) {
	missing := readiness{
		waitingFor: "[1/3] Finding Pods to direct traffic to", problems: []string{noEndpoints},
	}
	client, err := objects.ClientIn(endpointSliceKind, service.Namespace)
	if err != nil {
		return readiness{}, err
	}
	ofService := labels.Set{discoveryv1.LabelServiceName: service.Name}.String()
	slices, err := client.List(ctx, metav1.ListOptions{LabelSelector: ofService})
	if err != nil {
		return readiness{}, err
	}
	for _, item := range slices.Items {
		var slice discoveryv1.EndpointSlice
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &slice); err != nil {
			return readiness{}, fmt.Errorf("EndpointSlice %q does not fit its type: %w", item.GetName(), err)
		}
		if hasReadyEndpoint(&slice) {
			return readiness{ready: true}, nil
		}
	}
	return missing, nil
}

func hasReadyEndpoint(slice *discoveryv1.EndpointSlice) bool {
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			return true
		}
	}
	return false
}
