package await

import corev1 "k8s.io/api/core/v1"

// serviceReadiness: an address where one is to be allocated from outside. All
// other services are ready at once, also without pods behind them.
func serviceReadiness(service *corev1.Service) readiness {
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 {
		return readiness{
			waitingFor: "[2/3] Attempting to allocate IP address to Service",
			problems: []string{
				"Service was not allocated an IP address; does your cloud provider support this?"},
		}
	}
	return readiness{ready: true}
}
