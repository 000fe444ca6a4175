package object

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Fields of metadata that only the API server sets.
var readOnlyMetadata = []string{
	"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation",
	"managedFields", "resourceVersion", "uid",
}

// Normalize brings inputs into the form in which the API server would show
// them, so that two spellings of one thing ("1000m" and "1") are no
// difference. Kinds that Kubernetes does not bring itself stay as written, as
// do inputs that are not all known.
func Normalize(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	normal := &unstructured.Unstructured{Object: runtimeCopy(obj.Object).(map[string]any)}
	if !HasUnknown(normal.Object) {
		if isCoreSecret(normal) {
			foldStringData(normal)
		}
		typed, err := throughType(normal)
		if err != nil {
			return nil, err
		}
		normal.Object = Prune(typed, normal.Object)
	}
	if metadata, isMap := normal.Object["metadata"].(map[string]any); isMap {
		for _, field := range readOnlyMetadata {
			delete(metadata, field)
		}
	}
	return normal, nil
}

// throughType sends a built-in kind through its Go type and back.
func throughType(obj *unstructured.Unstructured) (map[string]any, error) {
	gvk := GVK(obj)
	if !IsBuiltin(gvk) {
		return obj.Object, nil
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", gvk, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed); err != nil {
		return nil, fmt.Errorf("%s %q does not fit its type: %w", gvk.Kind, obj.GetName(), err)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
}

func isCoreSecret(obj *unstructured.Unstructured) bool {
	return obj.GetAPIVersion() == "v1" && obj.GetKind() == "Secret"
}

// foldStringData does what the API server does with a Secret's stringData:
// encode it into data, where it wins.
func foldStringData(obj *unstructured.Unstructured) {
	plain, isMap := obj.Object["stringData"].(map[string]any)
	if !isMap {
		return
	}
	data, known := editableMap(obj.Object, "data")
	if !known {
		return
	}
	for key, value := range plain {
		text, isText := value.(string)
		if !isText {
			return // left to the API server to refuse
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(obj.Object, "stringData")
}

// runtimeCopy copies maps and lists, not leaves: those may be values that are
// not yet known, which Kubernetes' own deep copy refuses.
func runtimeCopy(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for key, element := range value {
			copied[key] = runtimeCopy(element)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for index, element := range value {
			copied[index] = runtimeCopy(element)
		}
		return copied
	default:
		return value
	}
}

// Copy returns an independent copy of an object, unknown values included.
func Copy(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtimeCopy(obj.Object).(map[string]any)}
}
