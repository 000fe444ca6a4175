package await

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Incomplete is an object that exists but has not come to the state that the
// operation waits for. It carries the object, so that its state is kept.
type Incomplete struct {
	Live *unstructured.Unstructured
	// Reasons are what was seen on the way, most useful first.
	Reasons []string
	Cause   error
}

func (e *Incomplete) Error() string { return e.Cause.Error() }
func (e *Incomplete) Unwrap() error { return e.Cause }

func isTimeout(err error) bool {
	return wait.Interrupted(err) || errors.Is(err, context.DeadlineExceeded)
}
