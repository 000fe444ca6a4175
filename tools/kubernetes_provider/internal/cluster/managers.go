package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ownCreators are the names under which Pulumi creates objects, and wrote them
// before server-side apply.
var ownCreators = []string{creator, "pulumi-kubernetes.exe", "pulumi-resource-kubernetes"}

// isTakenOver tells whether a manager's fields become ours before an update:
// kubectl's (any of its verbs) and those of our creations. A controller's never.
func isTakenOver(entry metav1.ManagedFieldsEntry) bool {
	if entry.Subresource != "" {
		return false
	}
	if entry.Operation == metav1.ManagedFieldsOperationApply {
		return strings.HasPrefix(entry.Manager, "kubectl")
	}
	return strings.HasPrefix(entry.Manager, "kubectl") || entry.Manager == "before-first-apply" || isOwnUpdate(entry)
}

func isOwnUpdate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && slices.Contains(ownCreators, entry.Manager)
}

func hasOwnUpdate(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), isOwnUpdate)
}

// takeOver moves the fields of such managers to ours, so that a "kubectl
// patch" in between is drift that the update corrects, not a conflict.
func takeOver(
	ctx context.Context, client dynamic.ResourceInterface, name, manager string,
) (live *unstructured.Unstructured, err error) {
	// A controller may write between reading and patching, its status for one.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if live, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			live, err = giveFields(ctx, client, live, manager)
		}
		return err
	})
	return live, err
}

func giveFields(
	ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, manager string,
) (*unstructured.Unstructured, error) {
	entries, changed, err := mergeManagers(live.GetManagedFields(), manager)
	if err != nil {
		return nil, fmt.Errorf("reading the field managers of %q: %w", live.GetName(), err)
	}
	if !changed {
		return live, nil
	}
	body, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the field managers of %q: %w", live.GetName(), err)
	}
	return client.Patch(ctx, live.GetName(), types.JSONPatchType, body, metav1.PatchOptions{})
}

func mergeManagers(entries []metav1.ManagedFieldsEntry, manager string) ([]metav1.ManagedFieldsEntry, bool, error) {
	isOurs := func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	}
	var kept []metav1.ManagedFieldsEntry
	var ours *metav1.ManagedFieldsEntry
	fields, changed := fieldpath.NewSet(), false
	for _, entry := range entries {
		taken := isTakenOver(entry)
		if !taken && !isOurs(entry) {
			kept = append(kept, entry)
			continue
		}
		owned, err := fieldSet(entry)
		if err != nil {
			return nil, false, err
		}
		fields, changed = fields.Union(owned), changed || taken
		if ours == nil || isOurs(entry) {
			ours = entry.DeepCopy()
		}
	}
	if !changed {
		return entries, false, nil
	}
	raw, err := fields.ToJSON()
	if err != nil {
		return nil, false, err
	}
	ours.Manager, ours.Operation = manager, metav1.ManagedFieldsOperationApply
	ours.FieldsV1 = &metav1.FieldsV1{Raw: raw}
	return append(kept, *ours), true, nil
}

func fieldSet(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	return fields, fields.FromJSON(bytes.NewReader(entry.FieldsV1.Raw))
}
