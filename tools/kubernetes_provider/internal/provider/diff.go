package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"torchx-pulumi/kubernetes-provider/internal/change"
	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Diff compares the new inputs with the last known live object, of which only
// what the old inputs had named counts: what the cluster filled in is no
// difference, what it changed is.
func (p *Provider) Diff(ctx context.Context, request *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	about := urn.URN(request.GetUrn())
	last, err := lastState(request)
	if err != nil {
		return nil, err
	}
	program, err := unmarshal("inputs", request.GetNews())
	if err != nil {
		return nil, fmt.Errorf("diff failed because malformed resource inputs: %w", err)
	}
	wanted, err := object.Normalize(object.FromProperties(program))
	if err != nil {
		return nil, err
	}
	old, err := p.comparable(last, wanted)
	if err != nil {
		return nil, err
	}
	found, err := change.DropIgnored(change.Compare(old.Object, wanted.Object), request.GetIgnoreChanges())
	if err != nil {
		return nil, err
	}
	if object.IsAnnotationTrue(wanted, object.AnnotationReplaceUnready) {
		p.host().Warn(ctx, about, "the stand-in Kubernetes provider ignores the annotation "+object.AnnotationReplaceUnready)
	}
	return p.difference(found, last.live, wanted), nil
}

func lastState(request *pulumirpc.DiffRequest) (state, error) {
	outputs, err := unmarshal("old state", request.GetOlds())
	if err != nil {
		return state{}, err
	}
	last := readState(outputs)
	if len(last.inputs.Object) == 0 {
		inputs, err := unmarshal("old inputs", request.GetOldInputs())
		if err != nil {
			return state{}, err
		}
		last.inputs = object.FromProperties(inputs)
	}
	if last.inputs, err = object.Normalize(last.inputs); err != nil {
		return state{}, err
	}
	return last, nil
}

// comparable returns the old side of the comparison, and brings both sides to
// the same spelling of the namespace.
func (p *Provider) comparable(last state, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	old := &unstructured.Unstructured{Object: object.Prune(last.live.Object, last.inputs.Object)}
	namespaced, err := p.isNamespaced(object.GVK(wanted))
	if err != nil {
		return nil, err
	}
	for _, side := range []*unstructured.Unstructured{old, wanted} {
		switch {
		case !namespaced:
			object.SetNamespace(side, "")
		case !object.HasNamespace(side):
			object.SetNamespace(side, metav1.NamespaceDefault)
		}
	}
	if old.GetKind() == "" {
		setKind(old, object.GVK(wanted))
	}
	// A name that the server generated may be written into the program.
	if object.IsNamed(wanted) && last.live.GetName() != "" {
		old.SetName(last.live.GetName())
	}
	if !p.settings.clientSide {
		unstructured.RemoveNestedField(old.Object, "metadata", "resourceVersion")
	}
	return old, nil
}

func (p *Provider) difference(
	found []change.Change, live, wanted *unstructured.Unstructured,
) *pulumirpc.DiffResponse {
	response := &pulumirpc.DiffResponse{
		Changes: pulumirpc.DiffResponse_DIFF_NONE, HasDetailedDiff: true,
		DetailedDiff: map[string]*pulumirpc.PropertyDiff{},
	}
	if len(found) == 0 {
		return response
	}
	response.Changes = pulumirpc.DiffResponse_DIFF_SOME
	forced := change.ForceNew(wanted, p.settings.mutable)
	for _, one := range found {
		path, kind := one.Path.String(), one.Kind
		if change.Forces(one, forced) {
			kind = replacing[kind]
			response.Replaces = append(response.Replaces, path)
		}
		response.DetailedDiff[path] = &pulumirpc.PropertyDiff{
			Kind: kind, InputDiff: one.Kind == pulumirpc.PropertyDiff_DELETE,
		}
	}
	slices.Sort(response.Replaces)
	response.DeleteBeforeReplace = len(response.Replaces) > 0 && keepsItsPlace(live, wanted)
	return response
}

var replacing = map[pulumirpc.PropertyDiff_Kind]pulumirpc.PropertyDiff_Kind{
	pulumirpc.PropertyDiff_ADD:    pulumirpc.PropertyDiff_ADD_REPLACE,
	pulumirpc.PropertyDiff_DELETE: pulumirpc.PropertyDiff_DELETE_REPLACE,
	pulumirpc.PropertyDiff_UPDATE: pulumirpc.PropertyDiff_UPDATE_REPLACE,
}

// keepsItsPlace tells whether old and new object cannot exist side by side:
// the user chose the name, and it is the same in the same namespace.
func keepsItsPlace(live, wanted *unstructured.Unstructured) bool {
	return wanted.GetName() != "" && !object.IsAutonamed(wanted) &&
		wanted.GetName() == live.GetName() && wanted.GetNamespace() == live.GetNamespace()
}
