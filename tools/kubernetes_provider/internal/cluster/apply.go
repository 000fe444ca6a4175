package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Apply is one write of an object.
type Apply struct {
	// Inputs is what the program wants, complete.
	Inputs *unstructured.Unstructured
	// Last is what was last known to be live, and LastInputs its part that the
	// program had set. Both are nil when the object is created.
	Last, LastInputs *unstructured.Unstructured
	Manager          string
	// DryRun has the server, webhooks included, judge and store nothing.
	DryRun bool
	// ClientSide creates and patches as clients did before server-side apply.
	ClientSide bool
	// IgnoreChanges are properties that the update leaves as they are.
	IgnoreChanges []string
}

func (apply Apply) dryRun() []string {
	if apply.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// creator is the field manager of what Create writes, whatever manager the
// updates after it have.
const creator = "pulumi-kubernetes"

// Create writes an object. An object of the same name is an error.
func (cluster *Cluster) Create(ctx context.Context, apply Apply) (*unstructured.Unstructured, error) {
	client, err := cluster.Client(apply.Inputs)
	if err != nil {
		return nil, err
	}
	return client.Create(ctx, apply.Inputs,
		metav1.CreateOptions{FieldManager: creator, FieldValidation: metav1.FieldValidationWarn, DryRun: apply.dryRun()})
}

// Update changes an object that exists. An object that is gone is an error.
func (cluster *Cluster) Update(ctx context.Context, apply Apply) (*unstructured.Unstructured, error) {
	client, err := cluster.Client(apply.Inputs)
	if err != nil {
		return nil, err
	}
	live, err := client.Get(ctx, apply.Last.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if object.IsCRD(apply.Inputs) {
		// Replaced as a whole: a definition's lists do not merge well.
		whole := object.Copy(apply.Inputs)
		whole.SetResourceVersion(live.GetResourceVersion())
		return client.Update(ctx, whole,
			metav1.UpdateOptions{FieldManager: apply.Manager, DryRun: apply.dryRun()})
	}
	if apply.ClientSide {
		return patchClientSide(ctx, client, apply, live)
	}
	if !apply.DryRun {
		if live, err = takeOver(ctx, client, live.GetName(), apply.Manager); err != nil {
			return nil, err
		}
	}
	inputs, err := leaveIgnored(apply, live)
	if err != nil {
		return nil, err
	}
	updated, err := patch(ctx, client, apply, inputs, forced(apply, live))
	return updated, explainConflict(err, apply.Manager)
}

// Relinquish gives up all fields that a manager owns.
func (cluster *Cluster) Relinquish(ctx context.Context, obj *unstructured.Unstructured, manager string) error {
	client, err := cluster.Client(obj)
	if err != nil {
		return err
	}
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(obj.GroupVersionKind())
	empty.SetName(obj.GetName())
	empty.SetNamespace(obj.GetNamespace())
	_, err = client.Apply(ctx, obj.GetName(), empty, metav1.ApplyOptions{FieldManager: manager})
	return err
}

func patch(
	ctx context.Context, client dynamic.ResourceInterface, apply Apply, inputs *unstructured.Unstructured, force bool,
) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(inputs.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %q as JSON: %w", inputs.GetName(), err)
	}
	return client.Patch(ctx, inputs.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager:    apply.Manager,
		Force:           &force,
		FieldValidation: metav1.FieldValidationWarn,
		DryRun:          apply.dryRun(),
	})
}

// forced tells whether fields of other managers are taken from them.
func forced(apply Apply, live *unstructured.Unstructured) bool {
	if object.IsAnnotationTrue(apply.Inputs, object.AnnotationPatchForce) {
		return true
	}
	if setting, isSet := os.LookupEnv("PULUMI_K8S_ENABLE_PATCH_FORCE"); isSet {
		return setting == "true"
	}
	// An object without a record of managers has nobody to ask; and a preview
	// does not take over what we created, which the update will do.
	return len(live.GetManagedFields()) == 0 || apply.DryRun && hasOwnUpdate(live)
}
