package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"torchx-pulumi/kubernetes-provider/internal/await"
	"torchx-pulumi/kubernetes-provider/internal/cluster"
	"torchx-pulumi/kubernetes-provider/internal/engine"
	"torchx-pulumi/kubernetes-provider/internal/object"
)

// A creation is tried again while its namespace or its kind is missing, since
// both may be on their way: 1, 2, 4, ... seconds apart.
const (
	creationTries = 6
	firstPause    = time.Second
)

// Create writes the object and waits until it is ready. A preview asks the
// server, webhooks included, without storing anything.
func (p *Provider) Create(
	call context.Context, request *pulumirpc.CreateRequest,
) (*pulumirpc.CreateResponse, error) {
	ctx, done := p.operation(call)
	defer done()
	about := urn.URN(request.GetUrn())
	if p.unreachable != "" && !request.GetPreview() {
		return nil, p.unreachableError()
	}
	program, err := unmarshal("inputs", request.GetProperties())
	if err != nil {
		return nil, fmt.Errorf("create failed because malformed resource inputs: %w", err)
	}
	inputs := object.FromProperties(program)
	if request.GetPreview() && (p.settings.clientSide || !p.canAsk(inputs)) {
		return &pulumirpc.CreateResponse{Properties: request.GetProperties()}, nil
	}
	manager, err := p.managerName("", inputs)
	if err != nil {
		return nil, err
	}
	creation := &creation{
		provider: p, about: about, program: program, report: p.host().For(ctx, about),
		apply: cluster.Apply{Inputs: inputs, Manager: manager, DryRun: request.GetPreview(), ClientSide: p.settings.clientSide},
	}
	return creation.run(ctx, request)
}

// canAsk tells whether the server can judge the inputs in a preview: all are
// known, and it serves the kind.
func (p *Provider) canAsk(inputs *unstructured.Unstructured) bool {
	return p.cluster != nil && !object.HasUnknown(inputs.Object) && p.cluster.Serves(object.GVK(inputs))
}

type creation struct {
	provider *Provider
	about    urn.URN
	program  resource.PropertyMap
	apply    cluster.Apply
	report   *engine.Reporter
}

func (c *creation) run(ctx context.Context, request *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	created, err := c.write(ctx)
	if err != nil {
		if c.apply.DryRun && isNoVerdict(err) {
			return &pulumirpc.CreateResponse{Properties: request.GetProperties()}, nil
		}
		return nil, c.explain(err)
	}
	if c.apply.DryRun {
		// A status that the server has not filled in would be read as known.
		delete(created.Object, "status")
		properties, err := c.state(created)
		return &pulumirpc.CreateResponse{Properties: properties}, err
	}
	timeout := object.Timeout(request.GetTimeout(), c.apply.Inputs, await.DefaultTimeout)
	live, waitErr := await.Ready(ctx, c.provider.cluster, c.apply.Inputs, created, timeout, c.report)
	properties, err := c.state(live)
	if err != nil {
		return nil, err
	}
	if waitErr != nil {
		return nil, initFailed(object.ID(live), fmt.Errorf("resource %q was successfully created, but the Kubernetes API "+
			"server reported that it failed to fully initialize or become live: %w", c.about, waitErr), properties, nil)
	}
	if object.IsCRD(c.apply.Inputs) {
		c.provider.cluster.KindsChanged()
	}
	return &pulumirpc.CreateResponse{Id: object.ID(live), Properties: properties}, nil
}

// write creates the object, with patience for what it needs.
func (c *creation) write(ctx context.Context) (*unstructured.Unstructured, error) {
	pause := firstPause
	for try := 0; ; try++ {
		created, err := c.provider.cluster.Create(ctx, c.apply)
		if err == nil {
			c.report.Status("")
			return created, nil
		}
		if c.apply.DryRun && isMissingNamespace(err) {
			return nil, err
		}
		c.report.Status(fmt.Sprintf("Retry #%d; creation failed: %v", try, err))
		if try+1 == creationTries || !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// isNoVerdict tells whether a dry run failed for reasons that say nothing
// about the real thing.
func isNoVerdict(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) || isMissingNamespace(err) || isDryRunUnsupported(err)
}

func (c *creation) explain(err error) error {
	if meta.IsNoMatchError(err) {
		inputs := c.apply.Inputs
		return fmt.Errorf("creation of resource %q with kind %s/%s failed because the Kubernetes API server "+
			"reported that the apiVersion for this resource does not exist. "+
			"Verify that any required CRDs have been created: %w", c.about, inputs.GetAPIVersion(), inputs.GetKind(), err)
	}
	return fmt.Errorf("resource %q was not successfully created by the Kubernetes API server: %w", c.about, err)
}

func (c *creation) state(live *unstructured.Unstructured) (*structpb.Struct, error) {
	return c.provider.marshalState(state{
		inputs: c.apply.Inputs, live: live,
		initialAPIVersion: c.apply.Inputs.GetAPIVersion(), fieldManager: c.apply.Manager,
	}, c.program)
}
