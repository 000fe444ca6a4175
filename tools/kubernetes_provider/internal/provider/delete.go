package provider

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"torchx-pulumi/kubernetes-provider/internal/await"
	"torchx-pulumi/kubernetes-provider/internal/object"
)

const deletedUnreachable = "configured Kubernetes cluster is unreachable and the `deleteUnreachable` option is " +
	"enabled. Deleting the unreachable resource from Pulumi state"

// Delete removes the object and waits until it is gone, dependents first
// unless an annotation says otherwise. What is gone already is deleted.
func (p *Provider) Delete(call context.Context, request *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	ctx, done := p.operation(call)
	defer done()
	about := urn.URN(request.GetUrn())
	if p.unreachable != "" {
		return p.deleteUnreachable(ctx, about)
	}
	outputs, err := unmarshal("state", request.GetProperties())
	if err != nil {
		return nil, err
	}
	_, name, err := object.ParseID(request.GetId())
	if err != nil {
		return nil, err
	}
	err = p.remove(ctx, about, readState(outputs), name, request.GetTimeout())
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, withReasons(err)
	}
	return &emptypb.Empty{}, nil
}

func (p *Provider) remove(
	ctx context.Context, about urn.URN, last state, name string, timeoutSeconds float64,
) error {
	live := target(about, last.live, name)
	if err := p.cluster.Delete(ctx, live, name, object.DeletionPropagation(last.inputs)); err != nil {
		return err
	}
	timeout := object.Timeout(timeoutSeconds, last.inputs, await.DefaultTimeout)
	return await.Gone(ctx, p.cluster, last.inputs, live, timeout, p.host().For(ctx, about))
}

// target makes sure that kind and name are there: the state of a resource
// whose creation was interrupted may lack them.
func target(about urn.URN, live *unstructured.Unstructured, name string) *unstructured.Unstructured {
	if live.GetName() == "" {
		live.SetName(name)
	}
	if gvk, err := object.GVKFromURN(about); err == nil {
		setKind(live, gvk)
	}
	return live
}

func (p *Provider) deleteUnreachable(ctx context.Context, about urn.URN) (*emptypb.Empty, error) {
	p.host().Warn(ctx, about, p.unreachableError().Error())
	if p.settings.deleteUnreachable {
		p.host().Info(ctx, about, deletedUnreachable)
		return &emptypb.Empty{}, nil
	}
	return nil, errors.New("configured Kubernetes cluster is unreachable. If the cluster was deleted, " +
		"you can remove this resource from Pulumi state by rerunning the operation with the " +
		"PULUMI_K8S_DELETE_UNREACHABLE environment variable set to \"true\"")
}
