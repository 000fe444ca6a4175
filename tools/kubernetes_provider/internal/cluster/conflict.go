package cluster

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const conflictHelp = "https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/" +
	"managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources"

// explainConflict says what an apply conflict is, in the official provider's
// words; every other error stays as it is.
func explainConflict(err error, manager string) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	return errors.Join(
		fmt.Errorf("server-side apply field conflict detected. See %s for troubleshooting help", conflictHelp),
		fmt.Errorf("the resource managed by field manager %q had an apply conflict: %w", manager, err),
	)
}
