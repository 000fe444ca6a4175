package await

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// builtinCheck returns what ready means for a kind; nil for kinds that are
// ready as soon as they exist, custom resources among them.
func builtinCheck(obj *unstructured.Unstructured) check {
	switch obj.GetAPIVersion() + "/" + obj.GetKind() {
	case "v1/Pod":
		return typed(podReadiness)
	case "v1/Service":
		return typed(serviceReadiness)
	case "apps/v1/Deployment":
		return typed(deploymentReadiness)
	case "batch/v1/Job":
		return typed(jobReadiness)
	}
	return nil
}

// typed lets a check work on the kind's Go type.
func typed[T any](look func(*T) readiness) check {
	return func(_ context.Context, live *unstructured.Unstructured) (readiness, error) {
		var value T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &value); err != nil {
			return readiness{}, fmt.Errorf("%s %q does not fit its type: %w", live.GetKind(), live.GetName(), err)
		}
		return look(&value), nil
	}
}
