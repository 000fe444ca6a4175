package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"torchx-pulumi/kubernetes-provider/internal/await"
	"torchx-pulumi/kubernetes-provider/internal/cluster"
	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Update changes the object in place and waits until it is ready again. A
// preview asks the server without storing anything.
func (p *Provider) Update(
	call context.Context, request *pulumirpc.UpdateRequest,
) (*pulumirpc.UpdateResponse, error) {
	ctx, done := p.operation(call)
	defer done()
	if p.unreachable != "" && !request.GetPreview() {
		return nil, p.unreachableError()
	}
	outputs, err := unmarshal("old state", request.GetOlds())
	if err != nil {
		return nil, err
	}
	program, err := unmarshal("inputs", request.GetNews())
	if err != nil {
		return nil, fmt.Errorf("update failed because malformed resource inputs: %w", err)
	}
	inputs, err := object.Normalize(object.FromProperties(program))
	if err != nil {
		return nil, err
	}
	if request.GetPreview() && !p.canAsk(inputs) {
		return &pulumirpc.UpdateResponse{Properties: request.GetNews()}, nil
	}
	update, err := p.newUpdate(request, readState(outputs), program, inputs)
	if err != nil {
		return nil, err
	}
	return update.run(ctx, request)
}

func (p *Provider) newUpdate(
	request *pulumirpc.UpdateRequest, last state, program resource.PropertyMap, inputs *unstructured.Unstructured,
) (*update, error) {
	oldInputs, err := object.Normalize(last.inputs)
	if err != nil {
		return nil, err
	}
	manager, err := p.managerName(last.fieldManager, inputs)
	if err != nil {
		return nil, err
	}
	return &update{
		provider: p, about: urn.URN(request.GetUrn()), program: program, last: last,
		apply: cluster.Apply{
			Inputs: inputs, Last: last.live, Manager: manager,
			LastInputs:    &unstructured.Unstructured{Object: object.Prune(last.live.Object, oldInputs.Object)},
			DryRun:        request.GetPreview(),
			ClientSide:    p.settings.clientSide,
			IgnoreChanges: request.GetIgnoreChanges(),
		},
	}, nil
}

type update struct {
	provider *Provider
	about    urn.URN
	program  resource.PropertyMap
	last     state
	apply    cluster.Apply
}

func (u *update) run(ctx context.Context, request *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	live, err := u.write(ctx, request.GetTimeout())
	if err != nil {
		if u.apply.DryRun && apierrors.IsForbidden(err) {
			return &pulumirpc.UpdateResponse{Properties: request.GetNews()}, nil
		}
		return nil, u.explain(ctx, err)
	}
	if !u.apply.DryRun {
		if err := u.afterwards(ctx, live); err != nil {
			return nil, err
		}
	}
	properties, err := u.provider.marshalState(u.state(live), u.program)
	if err != nil {
		return nil, err
	}
	return &pulumirpc.UpdateResponse{Properties: properties}, nil
}

func (u *update) write(ctx context.Context, timeoutSeconds float64) (*unstructured.Unstructured, error) {
	updated, err := u.provider.cluster.Update(ctx, u.apply)
	if err != nil || u.apply.DryRun {
		return updated, err
	}
	timeout := object.Timeout(timeoutSeconds, u.apply.Inputs, await.DefaultTimeout)
	report := u.provider.host().For(ctx, u.about)
	return await.Ready(ctx, u.provider.cluster, u.apply.Inputs, updated, timeout, report)
}

// afterwards leaves no traces of a former field manager, and notices new kinds.
func (u *update) afterwards(ctx context.Context, live *unstructured.Unstructured) error {
	if object.IsCRD(u.apply.Inputs) {
		u.provider.cluster.KindsChanged()
	}
	former := u.last.fieldManager
	if u.provider.settings.clientSide || former == "" || former == u.apply.Manager {
		return nil
	}
	if err := u.provider.cluster.Relinquish(ctx, live, former); err != nil {
		return fmt.Errorf("giving up the fields of the former manager %q: %w", former, err)
	}
	return nil
}

// explain keeps in the state what is live after a failed update, so that the
// next one starts from there.
func (u *update) explain(ctx context.Context, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("update of resource %q failed because the Kubernetes API server "+
			"reported that the apiVersion for this resource does not exist. "+
			"Verify that any required CRDs have been created: %w", u.about, err)
	}
	live, readErr := u.provider.cluster.Get(context.WithoutCancel(ctx), u.last.live, u.last.live.GetName())
	if readErr != nil {
		return errors.Join(
			fmt.Errorf("update of resource %q failed: %w", u.about, err),
			fmt.Errorf("unable to get cluster state: %w", readErr))
	}
	properties, stateErr := u.provider.marshalState(u.state(live), u.program)
	if stateErr != nil {
		return errors.Join(err, stateErr)
	}
	return initFailed(object.ID(live), fmt.Errorf(
		"the Kubernetes API server reported that %q failed to fully initialize or become live: %w",
		object.ID(live), err), properties, nil)
}

func (u *update) state(live *unstructured.Unstructured) state {
	initial := u.last.initialAPIVersion
	if initial == "" {
		initial = u.last.inputs.GetAPIVersion()
	}
	return state{inputs: u.apply.Inputs, live: live, initialAPIVersion: initial, fieldManager: u.apply.Manager}
}
