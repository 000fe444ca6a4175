package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// patchClientSide updates without server-side apply: a three-way patch of old
// inputs, new inputs and the live object; strategic where Kubernetes brings
// the type, a JSON merge patch for custom resources.
func patchClientSide(
	ctx context.Context, client dynamic.ResourceInterface, apply Apply, live *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	body, kind, err := threeWayPatch(apply.LastInputs, apply.Inputs, live)
	if err != nil {
		return nil, fmt.Errorf("computing the patch of %q: %w", live.GetName(), err)
	}
	return client.Patch(ctx, live.GetName(), kind, body,
		metav1.PatchOptions{FieldManager: apply.Manager, DryRun: apply.dryRun()})
}

func threeWayPatch(old, wanted, live *unstructured.Unstructured) ([]byte, types.PatchType, error) {
	var documents [3][]byte
	for index, obj := range []*unstructured.Unstructured{old, wanted, live} {
		document, err := json.Marshal(obj.Object)
		if err != nil {
			return nil, "", err
		}
		documents[index] = document
	}
	typed, err := scheme.Scheme.New(object.GVK(wanted))
	if err != nil {
		body, err := jsonmergepatch.CreateThreeWayJSONMergePatch(documents[0], documents[1], documents[2])
		return body, types.MergePatchType, err
	}
	schema, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return nil, "", err
	}
	body, err := strategicpatch.CreateThreeWayMergePatch(documents[0], documents[1], documents[2], schema, true)
	return body, types.StrategicMergePatchType, err
}
