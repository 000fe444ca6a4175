package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Check completes the inputs: kind, namespace, a name of its own, and the form
// in which the API server would show them.
func (p *Provider) Check(ctx context.Context, request *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	about := urn.URN(request.GetUrn())
	if p.unreachable != "" && p.settings.skipUpdateUnreachable {
		p.host().Warn(ctx, about, "Cluster is unreachable but skipUpdateUnreachable flag is set to true, skipping...")
		return &pulumirpc.CheckResponse{Inputs: request.GetOlds()}, nil
	}
	before, err := unmarshal("old inputs", request.GetOlds())
	if err != nil {
		return nil, err
	}
	program, err := unmarshal("inputs", request.GetNews())
	if err != nil {
		return nil, fmt.Errorf("check failed because malformed resource inputs: %w", err)
	}
	wanted := object.FromProperties(program)
	if err := refuseUnserved(about, wanted.GetKind()); err != nil {
		return nil, err
	}
	gvk, err := object.GVKFromURN(about)
	if err != nil {
		return nil, err
	}
	setKind(wanted, gvk)
	if wanted, err = object.Normalize(wanted); err != nil {
		return &pulumirpc.CheckResponse{
			Inputs: request.GetNews(), Failures: []*pulumirpc.CheckFailure{{Reason: err.Error()}},
		}, nil
	}
	if err := p.complete(about, wanted, object.FromProperties(before), request); err != nil {
		return nil, err
	}
	return p.checked(wanted, program)
}

// complete names and places the object.
func (p *Provider) complete(
	about urn.URN, wanted, before *unstructured.Unstructured, request *pulumirpc.CheckRequest,
) error {
	if len(before.Object) > 0 {
		object.AdoptName(wanted, before)
		// Only kept where it was: adding it would change imported objects.
		if object.HasManagedByLabel(before) {
			object.SetManagedByLabel(wanted)
		}
	} else {
		if err := object.AssignName(wanted, about, request.GetRandomSeed(), request.GetAutonaming()); err != nil {
			return err
		}
		// Server-side apply records its managers itself.
		if p.settings.clientSide {
			object.SetManagedByLabel(wanted)
		}
	}
	if object.IsGenerateName(wanted) && !p.settings.clientSide {
		return errors.New("the `.metadata.generateName` field is not supported in Server-Side Apply mode")
	}
	gvk := object.GVK(wanted)
	if p.settings.rejectUnknownResources && p.cluster != nil && !p.cluster.Serves(gvk) {
		return fmt.Errorf("unable to fetch schema for resource type %s/%s: the API server does not serve it",
			wanted.GetAPIVersion(), wanted.GetKind())
	}
	if p.settings.namespace == "" || object.HasNamespace(wanted) {
		return nil
	}
	namespaced, err := p.isNamespaced(gvk)
	if err != nil {
		return err
	}
	if namespaced {
		object.SetNamespace(wanted, p.settings.namespace)
	}
	return nil
}

// isNamespaced asks the cluster, and guesses when there is none or when the
// kind's definition is yet to be created.
func (p *Provider) isNamespaced(gvk schema.GroupVersionKind) (bool, error) {
	if p.cluster == nil {
		return object.GuessNamespaced(gvk), nil
	}
	namespaced, err := p.cluster.IsNamespaced(gvk)
	if meta.IsNoMatchError(err) {
		return object.GuessNamespaced(gvk), nil
	}
	if err != nil {
		return false, fmt.Errorf("API server returned error when asked if resource type %s is namespaced: %w", gvk, err)
	}
	return namespaced, nil
}

func (p *Provider) checked(
	wanted *unstructured.Unstructured, program resource.PropertyMap,
) (*pulumirpc.CheckResponse, error) {
	inputs := object.ToProperties(wanted.Object)
	object.MarkSecrets(inputs, program)
	marshaled, err := p.marshal("checked inputs", inputs)
	if err != nil {
		return nil, err
	}
	return &pulumirpc.CheckResponse{Inputs: marshaled}, nil
}

// setKind fills in what the type token says and the inputs leave out.
func setKind(obj *unstructured.Unstructured, gvk schema.GroupVersionKind) {
	if obj.Object["apiVersion"] == nil {
		obj.SetAPIVersion(gvk.GroupVersion().String())
	}
	if obj.Object["kind"] == nil {
		obj.SetKind(gvk.Kind)
	}
}
