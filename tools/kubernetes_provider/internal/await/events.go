package await

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var eventKind = schema.GroupVersionKind{Version: "v1", Kind: "Event"}

// reportEvents shows warning events about the object until the wait is over.
// They are a help, not a condition: what fails here fails quietly.
func reportEvents(ctx context.Context, objects Objects, obj *unstructured.Unstructured, report Reporter) {
	client, err := objects.ClientIn(eventKind, obj.GetNamespace())
	if err != nil {
		return
	}
	events, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.uid", string(obj.GetUID())),
		fields.OneTermEqualSelector("type", "Warning"),
	).String()})
	if err != nil {
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		warning, isObject := event.Object.(*unstructured.Unstructured)
		if isObject && (event.Type == watch.Added || event.Type == watch.Modified) {
			report.Warn(eventText(warning))
		}
	}
}

func eventText(event *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(event.Object, "involvedObject", "kind")
	name, _, _ := unstructured.NestedString(event.Object, "involvedObject", "name")
	reason, _, _ := unstructured.NestedString(event.Object, "reason")
	message, _, _ := unstructured.NestedString(event.Object, "message")
	return fmt.Sprintf("[%s %s] %s: %s", kind, name, reason, message)
}
