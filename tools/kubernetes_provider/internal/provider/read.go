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
	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Read looks at the live object, for a refresh, an import or a get. After a
// refresh the inputs are the live values of what the program had named, so
// that drift shows. Of an object that was not managed before they are all that
// a program could have set, or for a custom resource its identity alone: its
// fields are in no schema.
func (p *Provider) Read(call context.Context, request *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	ctx, done := p.operation(call)
	defer done()
	about := urn.URN(request.GetUrn())
	if err := refuseUnserved(about, string(about.Type().Name())); err != nil {
		return nil, err
	}
	if p.unreachable != "" {
		return p.readUnreachable(ctx, about, request)
	}
	reading, err := p.newReading(about, request)
	if err != nil {
		return nil, err
	}
	live, err := p.cluster.Get(ctx, reading.known, reading.name)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return &pulumirpc.ReadResponse{}, nil // gone, or its whole kind is
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", request.GetId(), err)
	}
	return p.answer(ctx, reading, live)
}

func (p *Provider) readUnreachable(
	ctx context.Context, about urn.URN, request *pulumirpc.ReadRequest,
) (*pulumirpc.ReadResponse, error) {
	p.host().Warn(ctx, about, p.unreachableError().Error())
	switch {
	case p.settings.deleteUnreachable:
		p.host().Info(ctx, about, deletedUnreachable)
		return &pulumirpc.ReadResponse{}, nil
	case p.settings.skipUpdateUnreachable:
		p.host().Info(ctx, about, "configured Kubernetes cluster is unreachable and the `skipUnreachable` option is "+
			"enabled. Returned data could not reflect the actual cluster configuration.")
		return &pulumirpc.ReadResponse{
			Id: request.GetId(), Properties: request.GetProperties(), Inputs: request.GetInputs(),
		}, nil
	}
	return nil, errors.New("failed to read resource state due to unreachable cluster. If the cluster was " +
		"deleted, you can remove this resource from Pulumi state by rerunning the operation with the " +
		"PULUMI_K8S_DELETE_UNREACHABLE environment variable set to \"true\"")
}

// reading is what is known before looking.
type reading struct {
	id, name string
	// known are the old inputs, or only kind and name when there are none.
	known *unstructured.Unstructured
	// first is set when the object was not managed before: import, get.
	first   bool
	last    state
	program resource.PropertyMap
}

func (p *Provider) newReading(about urn.URN, request *pulumirpc.ReadRequest) (*reading, error) {
	namespace, name, err := object.ParseID(request.GetId())
	if err != nil {
		return nil, err
	}
	outputs, err := unmarshal("old state", request.GetProperties())
	if err != nil {
		return nil, err
	}
	program, err := unmarshal("old inputs", request.GetInputs())
	if err != nil {
		return nil, err
	}
	known, err := object.Normalize(object.FromProperties(program))
	if err != nil {
		return nil, err
	}
	found := &reading{id: request.GetId(), name: name, known: known, last: readState(outputs), program: program}
	if known.GetKind() != "" {
		return found, nil
	}
	if last := found.last.live; last.GetKind() != "" {
		known.SetGroupVersionKind(last.GroupVersionKind())
	} else {
		gvk, err := object.GVKFromURN(about)
		if err != nil {
			return nil, err
		}
		known.SetGroupVersionKind(gvk)
		found.first = true
	}
	if known.GetName() == "" {
		known.SetName(name)
	}
	if known.GetNamespace() == "" && namespace != "" {
		known.SetNamespace(namespace)
	}
	return found, nil
}

func (p *Provider) answer(
	ctx context.Context, reading *reading, live *unstructured.Unstructured,
) (*pulumirpc.ReadResponse, error) {
	inputs := &unstructured.Unstructured{Object: object.Prune(live.Object, reading.known.Object)}
	if reading.first && object.IsBuiltin(object.GVK(live)) {
		var err error
		if inputs, err = object.Normalize(live); err != nil {
			return nil, err
		}
		delete(inputs.Object, "status")
	}
	manager, err := p.managerName(reading.last.fieldManager, reading.known)
	if err != nil {
		return nil, err
	}
	initial := reading.last.initialAPIVersion
	if initial == "" {
		initial = reading.known.GetAPIVersion()
	}
	stateNow, err := p.marshalState(
		state{inputs: inputs, live: live, initialAPIVersion: initial, fieldManager: manager}, reading.program)
	if err != nil {
		return nil, err
	}
	properties := object.ToProperties(inputs.Object)
	object.MarkSecrets(properties, reading.program)
	inputsNow, err := p.marshal("inputs", properties)
	if err != nil {
		return nil, err
	}
	if !reading.first {
		if err := await.Current(ctx, reading.known, live); err != nil {
			return nil, initFailed(reading.id, err, stateNow, inputsNow)
		}
	}
	return &pulumirpc.ReadResponse{Id: reading.id, Properties: stateNow, Inputs: inputsNow}, nil
}
