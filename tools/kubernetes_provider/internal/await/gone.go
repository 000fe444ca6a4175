package await

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// reportAfter keeps quick deletions quiet.
const reportAfter = time.Second

// kindsThatMaySkipDeletion are those for which pulumi.com/skipAwait also means
// not to wait for the deletion, as in the official provider.
var kindsThatMaySkipDeletion = map[string]bool{
	"v1/Namespace": true, "v1/Pod": true, "v1/ReplicationController": true,
	"apps/v1/DaemonSet": true, "apps/v1/Deployment": true, "apps/v1/StatefulSet": true, "batch/v1/Job": true,
}

// Gone blocks until the object is deleted. An object of the same name with
// another uid is another object.
func Gone(
	ctx context.Context, objects Objects, inputs, last *unstructured.Unstructured, timeout time.Duration, report Reporter,
) error {
	if object.IsAnnotationTrue(inputs, object.AnnotationSkipAwait) &&
		kindsThatMaySkipDeletion[last.GetAPIVersion()+"/"+last.GetKind()] {
		return nil
	}
	client, err := objects.ClientIn(object.GVK(last), last.GetNamespace())
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, last.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		live = last
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	go reportSlowDeletion(bounded, live, report)

	leaving := &deletion{uid: last.GetUID(), live: live}
	_, err = watchtools.UntilWithSync(bounded, watchOne(client, last.GetName()), &unstructured.Unstructured{},
		leaving.alreadyGone, leaving.observe)
	if err == nil {
		report.Status("")
		return nil
	}
	return leaving.incomplete(ctx, client, err)
}

type deletion struct {
	uid  types.UID
	live *unstructured.Unstructured
}

func (d *deletion) alreadyGone(store cache.Store) (bool, error) {
	for _, item := range store.List() {
		if obj, isObject := item.(*unstructured.Unstructured); isObject && !d.isOther(obj) {
			return false, nil
		}
	}
	return true, nil
}

func (d *deletion) observe(event watch.Event) (bool, error) {
	obj, isObject := event.Object.(*unstructured.Unstructured)
	if !isObject {
		return false, nil
	}
	if event.Type == watch.Deleted || d.isOther(obj) {
		return true, nil
	}
	d.live = obj
	return false, nil
}

func (d *deletion) isOther(obj *unstructured.Unstructured) bool {
	return d.uid != "" && obj.GetUID() != d.uid
}

// incomplete looks once more, then says what keeps the object.
func (d *deletion) incomplete(ctx context.Context, client dynamic.ResourceInterface, err error) error {
	_, lookErr := client.Get(context.WithoutCancel(ctx), d.live.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(lookErr) {
		return nil
	}
	result := &Incomplete{Live: d.live, Cause: err}
	switch {
	case ctx.Err() != nil:
		result.Cause = fmt.Errorf("resource operation was cancelled for %q", d.live.GetName())
	case isTimeout(err):
		result.Cause = fmt.Errorf("timed out waiting for deletion of %s/%s %q",
			d.live.GetAPIVersion(), d.live.GetKind(), d.live.GetName())
	}
	if finalizers := d.live.GetFinalizers(); len(finalizers) > 0 {
		result.Reasons = []string{
			fmt.Sprintf("finalizers might be preventing deletion (%s)", strings.Join(finalizers, ", "))}
	}
	return result
}

func reportSlowDeletion(ctx context.Context, obj *unstructured.Unstructured, report Reporter) {
	select {
	case <-ctx.Done():
	case <-time.After(reportAfter):
		report.Status("Resource scheduled for deletion: waiting until " + obj.GetKind() + " " + object.ID(obj) + " is gone")
	}
}
