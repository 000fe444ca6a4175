package object

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Annotations that steer the provider. They are part of the object, as the
// official provider has it.
const (
	AnnotationAutonamed           = "pulumi.com/autonamed"
	AnnotationSkipAwait           = "pulumi.com/skipAwait"
	AnnotationWaitFor             = "pulumi.com/waitFor"
	AnnotationTimeoutSeconds      = "pulumi.com/timeoutSeconds"
	AnnotationReplaceUnready      = "pulumi.com/replaceUnready"
	AnnotationPatchForce          = "pulumi.com/patchForce"
	AnnotationPatchFieldManager   = "pulumi.com/patchFieldManager"
	AnnotationDeletionPropagation = "pulumi.com/deletionPropagationPolicy"
)

const managedByLabel = "app.kubernetes.io/managed-by"

// Annotation returns an annotation's text; "" when it is absent or unknown.
func Annotation(obj *unstructured.Unstructured, key string) string {
	annotations, _ := metadataField(obj, "annotations")
	values, isMap := annotations.(map[string]any)
	if !isMap {
		return ""
	}
	text, _ := values[key].(string)
	return text
}

// IsAnnotationTrue tells whether the annotation is exactly "true".
func IsAnnotationTrue(obj *unstructured.Unstructured, key string) bool {
	return Annotation(obj, key) == "true"
}

// Timeout is how long an operation may wait: the resource option, then the
// annotation, then the default.
func Timeout(optionSeconds float64, obj *unstructured.Unstructured, fallback time.Duration) time.Duration {
	if optionSeconds > 0 {
		return time.Duration(optionSeconds * float64(time.Second))
	}
	if seconds, err := strconv.Atoi(Annotation(obj, AnnotationTimeoutSeconds)); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return fallback
}

// DeletionPropagation is what happens to dependents: foreground unless the
// annotation says otherwise.
func DeletionPropagation(obj *unstructured.Unstructured) metav1.DeletionPropagation {
	switch strings.ToLower(Annotation(obj, AnnotationDeletionPropagation)) {
	case "orphan":
		return metav1.DeletePropagationOrphan
	case "background":
		return metav1.DeletePropagationBackground
	default:
		return metav1.DeletePropagationForeground
	}
}

// HasManagedByLabel tells whether the object is labelled as managed by Pulumi.
func HasManagedByLabel(obj *unstructured.Unstructured) bool {
	labels, _ := metadataField(obj, "labels")
	values, isMap := labels.(map[string]any)
	return isMap && values[managedByLabel] == "pulumi"
}

// SetManagedByLabel labels the object as managed by Pulumi, unless its labels
// are not yet known or another manager is named.
func SetManagedByLabel(obj *unstructured.Unstructured) {
	metadata, known := editableMap(obj.Object, "metadata")
	if !known {
		return
	}
	labels, known := editableMap(metadata, "labels")
	if !known || labels[managedByLabel] != nil {
		return
	}
	labels[managedByLabel] = "pulumi"
}
