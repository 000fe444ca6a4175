package await

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// DefaultTimeout is how long an operation waits when nobody says otherwise.
const DefaultTimeout = 10 * time.Minute

// Objects gives the way to objects of a kind; cluster.Cluster does.
type Objects interface {
	ClientIn(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error)
}

// Reporter shows what is going on. Both forget repetitions.
type Reporter interface {
	// Status shows a passing state.
	Status(message string)
	// Warn leaves a warning in the output.
	Warn(message string)
}

// readiness is what a look at an object tells.
type readiness struct {
	ready bool
	// waitingFor says what is missing, in a few words.
	waitingFor string
	// problems are reasons that a user should know if the wait fails.
	problems []string
	// failed is set when waiting longer is useless.
	failed bool
}

// check looks at a live object.
type check func(ctx context.Context, live *unstructured.Unstructured) (readiness, error)

// Ready blocks until the object that was just written is ready, and returns it
// as last seen. Kinds without a notion of readiness are ready at once, unless
// the annotation pulumi.com/waitFor asks for something.
func Ready(
	ctx context.Context, objects Objects, inputs, written *unstructured.Unstructured, timeout time.Duration, report Reporter,
) (*unstructured.Unstructured, error) {
	if object.IsAnnotationTrue(inputs, object.AnnotationSkipAwait) {
		return written, nil
	}
	look, err := checkFor(inputs, written)
	if err != nil {
		return written, &Incomplete{Live: written, Cause: err}
	}
	if look == nil {
		return written, nil
	}
	client, err := objects.ClientIn(object.GVK(written), written.GetNamespace())
	if err != nil {
		return written, &Incomplete{Live: written, Cause: err}
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	go reportEvents(bounded, objects, written, report)

	waiter := &waiter{client: client, look: look, report: report, live: written}
	if err := waiter.run(bounded); err != nil {
		return waiter.live, waiter.incomplete(ctx, err)
	}
	report.Status("")
	return waiter.live, nil
}

// Current looks once, for a refresh: an error when the object is not ready.
func Current(ctx context.Context, inputs, live *unstructured.Unstructured) error {
	if object.IsAnnotationTrue(inputs, object.AnnotationSkipAwait) {
		return nil
	}
	look := builtinCheck(live)
	if look == nil {
		return nil
	}
	state, err := look(ctx, live)
	if err != nil {
		return err
	}
	if state.ready {
		return nil
	}
	return &Incomplete{Live: live, Reasons: state.problems, Cause: fmt.Errorf(
		"resource '%s' was created but failed to initialize", live.GetName())}
}

func checkFor(inputs, written *unstructured.Unstructured) (check, error) {
	if wish := object.Annotation(inputs, object.AnnotationWaitFor); wish != "" {
		return parseWaitFor(wish)
	}
	return builtinCheck(written), nil
}

type waiter struct {
	client dynamic.ResourceInterface
	look   check
	report Reporter
	live   *unstructured.Unstructured
	last   readiness
}

// errFailed ends a wait that has become useless.
var errFailed = errors.New("failed")

func (w *waiter) run(ctx context.Context) error {
	_, err := watchtools.UntilWithSync(ctx, watchOne(w.client, w.live.GetName()), &unstructured.Unstructured{}, nil,
		func(event watch.Event) (bool, error) { return w.observe(ctx, event) })
	return err
}

func (w *waiter) observe(ctx context.Context, event watch.Event) (bool, error) {
	live, isObject := event.Object.(*unstructured.Unstructured)
	if !isObject {
		return false, nil
	}
	if event.Type == watch.Deleted {
		return false, fmt.Errorf("%s %q was deleted", live.GetKind(), live.GetName())
	}
	w.live = live
	state, err := w.look(ctx, live)
	if err != nil {
		return false, err
	}
	w.last = state
	if state.waitingFor != "" {
		w.report.Status(state.waitingFor)
	}
	if state.failed {
		return false, errFailed
	}
	return state.ready, nil
}

// incomplete says why the wait ended, with the object as last seen.
func (w *waiter) incomplete(ctx context.Context, err error) error {
	result := &Incomplete{Live: w.live, Reasons: w.last.problems}
	switch {
	case ctx.Err() != nil:
		result.Cause = fmt.Errorf("resource operation was cancelled for %q", w.live.GetName())
	case errors.Is(err, errFailed):
		result.Cause = fmt.Errorf("resource '%s' was created but failed to initialize", w.live.GetName())
	case isTimeout(err):
		result.Cause = fmt.Errorf("'%s' timed out waiting to be Ready", w.live.GetName())
		if len(result.Reasons) == 0 && w.last.waitingFor != "" {
			result.Reasons = []string{w.last.waitingFor}
		}
	default:
		result.Cause = err
	}
	return result
}

// watchOne watches one object by its name.
func watchOne(client dynamic.ResourceInterface, name string) cache.ListerWatcher {
	byName := fields.OneTermEqualSelector("metadata.name", name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = byName
			// Version "0", which informers ask for, may be answered with the object as it was before it was written:
			// ready, and with the old values.
			options.ResourceVersion = ""
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = byName
			return client.Watch(ctx, options)
		},
	}
}
